// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Lists of prefixes are in a map that all programs share, each list under its own number: a service's exceptions
// (lb.Service.Untranslated), whose number is in the endpoints of its backends, and its clients (lb.Service.Allow and
// Deny), whose number is in the service. A changed list gets another number: so entries do not change while packets
// read them, and routes that were cached under the old number are not used with the new list.

// listed is a prefix, and its list's verdict on the addresses in it.
type listed struct {
	netip.Prefix
	verdict objects.XDPPrefixVerdict
}

// clientList returns the verdicts of a service's lists on clients. Clients that are in neither list get the opposite
// verdict of the only list, and are denied where there are both.
func clientList(s *lb.Service) []listed {
	fallback := objects.XDPPrefixVerdictPREFIX_ALLOWED
	if len(s.Allow) > 0 {
		fallback = objects.XDPPrefixVerdictPREFIX_DENIED
	}
	list := []listed{{netip.PrefixFrom(unspecified(s.VIP), 0), fallback}}
	for _, prefix := range s.Allow {
		list = append(list, listed{prefix, objects.XDPPrefixVerdictPREFIX_ALLOWED})
	}
	for _, prefix := range s.Deny {
		list = append(list, listed{prefix, objects.XDPPrefixVerdictPREFIX_DENIED})
	}
	return list
}

// unspecified returns the unspecified address of an address's family.
func unspecified(like netip.Addr) netip.Addr {
	if like.Is6() {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// exceptionList returns a service's exceptions.
func exceptionList(s *lb.Service) []listed {
	list := make([]listed, len(s.Untranslated))
	for i, prefix := range s.Untranslated {
		list[i] = listed{prefix, objects.XDPPrefixVerdictPREFIX_UNTRANSLATED}
	}
	return list
}

// PrefixMap is the map of all lists, with the keys under each number.
type PrefixMap struct {
	*ebpf.Map
	Lists map[uint32][]objects.XDPPrefixKey
}

// ListBits is the length in bits of the list's number, which precedes the address in a key.
const ListBits = 32

// PrefixKey returns the key by which the data plane finds a prefix.
func PrefixKey(number uint32, prefix netip.Prefix) objects.XDPPrefixKey {
	return objects.XDPPrefixKey{Bits: ListBits + uint32(prefix.Bits()), List: number,
		Address: mapmem.OfAddress(prefix.Addr())}
}

// Add adds the lists of new and changed services, before anything refers to their numbers.
func (m *PrefixMap) Add(c *Revision) error {
	for _, s := range c.services {
		service := &s.after.Service.Service
		if err := m.put(s.after.Exceptions, func() []listed { return exceptionList(service) }); err != nil {
			return fmt.Errorf("service %s: noting which destinations stay untranslated: %w", service.Name, err)
		}
		if err := m.put(s.after.clients, func() []listed { return clientList(service) }); err != nil {
			return fmt.Errorf("service %s: noting which clients it serves: %w", service.Name, err)
		}
	}
	return nil
}

// put adds a list under a number, unless it exists, or the number is 0. If that fails, the next change removes the keys
// that were added.
func (m *PrefixMap) put(number uint32, list func() []listed) error {
	if _, found := m.Lists[number]; found || number == 0 {
		return nil
	}
	for _, p := range list() {
		key := PrefixKey(number, p.Prefix)
		if err := mapmem.Allocate(func() error { return m.Put(key, uint32(p.verdict)) }); err != nil {
			return fmt.Errorf("%s: %w", p.Prefix, err)
		}
		m.Lists[number] = append(m.Lists[number], key)
	}
	return nil
}

// Sweep removes the lists that no service and no endpoint of a removed backend needs any more. An entry that cannot be
// removed stays, and is never looked up.
func (m *PrefixMap) Sweep(r *Register) {
	if len(m.Lists) == 0 {
		return
	}
	used := map[uint32]bool{}
	for _, after := range r.Records {
		used[after.Exceptions], used[after.clients] = true, true
	}
	for _, e := range r.Places.Previous {
		used[e.exceptions] = true
	}
	for number, keys := range m.Lists {
		if used[number] {
			continue
		}
		removed := true
		for _, key := range keys {
			err := m.Delete(key)
			removed = removed && (err == nil || errors.Is(err, ebpf.ErrKeyNotExist))
		}
		if removed {
			delete(m.Lists, number)
		}
	}
}

// RestoreLists reads the keys of the previous process's lists from the map.
func (m *PrefixMap) RestoreLists() error {
	m.Lists = map[uint32][]objects.XDPPrefixKey{}
	var key objects.XDPPrefixKey
	var value uint32
	all := m.Iterate()
	for all.Next(&key, &value) {
		m.Lists[key.List] = append(m.Lists[key.List], key)
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("reading the lists of prefixes: %w", err)
	}
	return nil
}
