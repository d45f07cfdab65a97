// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// serviceKeys lists the keys in the directories of services after a change, by family.
func (c *Revision) serviceKeys() (keys [2][]mapmem.Key) {
	seen := map[netip.Addr]bool{}
	add := func(address netip.Addr) {
		if !seen[address] {
			seen[address] = true
			keys[mapmem.Family(address)] = append(keys[mapmem.Family(address)], vipKey(address))
		}
	}
	for _, r := range c.Records {
		keys[mapmem.Family(r.Key.VIP)] = append(keys[mapmem.Family(r.Key.VIP)], r.slotKey())
		add(r.Key.VIP)
	}
	for _, address := range c.pool().All() {
		add(address)
	}
	return keys
}

// vipKey returns the key of an address, for all its ports and protocols.
func vipKey(address netip.Addr) mapmem.Key {
	return mapmem.KeyOf(address, 0, uint8(objects.XDPAgreementPROTOCOL_ANY))
}

// endpointKeys lists the keys in the directories of endpoints after a change, by family.
func (c *Revision) endpointKeys() (keys [2][]mapmem.Key) {
	seen := map[netip.Addr]bool{}
	for key := range c.allEndpoints() {
		address := key.address.Addr()
		keys[mapmem.Family(address)] = append(keys[mapmem.Family(address)], key.slot())
		if !seen[address] {
			seen[address] = true
			keys[mapmem.Family(address)] = append(keys[mapmem.Family(address)], vipKey(address))
		}
	}
	return keys
}

// allEndpoints returns the endpoints of present and of previous backends after a change.
func (c *Revision) allEndpoints() map[endpointKey]natEndpoint {
	all := map[endpointKey]natEndpoint{}
	r := c.Places
	for key, e := range r.Places.Previous {
		all[key] = e
	}
	for _, key := range r.expired {
		delete(all, key)
	}
	for key, e := range r.removedEndpoints {
		all[key] = r.previousOf(e)
	}
	for _, after := range c.Records {
		after.endpointsOf(func(key endpointKey, e natEndpoint) { all[key] = e })
	}
	return all
}

// slotKey returns the service's key in the directories of services.
func (r *Record) slotKey() mapmem.Key {
	protocol := uint8(r.Key.Protocol)
	if r.Key.Hairpin {
		protocol |= uint8(objects.XDPAgreementPROTOCOL_HAIRPIN)
	}
	return mapmem.KeyOf(r.Key.VIP, r.Key.Port, protocol)
}
