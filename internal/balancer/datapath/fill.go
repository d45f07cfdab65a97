// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// errNoRoom should not be seen: memory is planned for what is put there.
var errNoRoom = errors.New("the configuration has no room in the memory that was planned for it")

// fill puts a configuration into memory that no packet reads yet. It returns where
// the services are, in the order of the change's records.
func (m *memory) fill(c *revision, plan *capacity) ([]placement, error) {
	f := filling{m, plan}
	m.constants.Modes = c.neededModes()
	if m.lists = c.lists; c.lists {
		m.constants.Clients = 1
	}
	m.pool, m.hairpin = c.pool(), c.hairpin()
	m.numbers = c.numbers().pooled(m.pool)
	if c.hairpins {
		m.constants.Hairpins = 1
	}
	if c.state.Local != "" {
		m.constants.Local = 1
	}
	m.constants.HairpinFirstPort, m.constants.HairpinLastPort = m.hairpin.FirstPort, m.hairpin.LastPort
	m.constants.FirstPort, m.constants.LastPort = m.pool.FirstPort, m.pool.LastPort
	homes := make([]placement, len(c.records))
	for i, r := range c.records {
		var ok bool
		rows := r.rows()
		if homes[i], ok = m.placeService(r, nil, rows); !ok {
			return nil, errNoRoom
		}
		for at := range rows {
			m.rows.Set(r.places[at].index, &rows[at], m.later)
		}
		f.put(f.capacity.services, f.memory.services, r.key.VIP, r.slotKey(), mapmem.WordsOf(&homes[i].value))
		m.vips[r.key.VIP]++
	}
	f.addVIPs()
	f.addEndpoints(c)
	return homes, nil
}

// filling is the work of fill.
type filling struct {
	*memory
	*capacity
}

// put puts a value where its key is to be in one of two directories.
func (f *filling) put(at [2]mapmem.Placement, in [2]*mapmem.Directory, address netip.Addr, key mapmem.Key,
	value mapmem.Storage) {
	in[mapmem.Family(address)].Fill(key, at[mapmem.Family(address)].At[key], value)
}

// addVIPs makes the addresses of the services known, and those of the pool.
func (f *filling) addVIPs() {
	kinds := map[netip.Addr]objects.XDPServiceKind{}
	for vip := range f.memory.vips {
		kinds[vip] = objects.XDPServiceKindKIND_VIP
	}
	for _, address := range f.memory.pool.All() {
		kinds[address] = objects.XDPServiceKindKIND_POOL
	}
	for address, kind := range kinds {
		value := objects.XDPService{Kind: uint8(kind)}
		f.put(f.capacity.services, f.memory.services, address, vipKey(address), mapmem.WordsOf(&value))
	}
}

// addEndpoints makes endpoints known, those of backends that have left, too: what
// still comes from them is counted under their index, which no present backend has.
func (f *filling) addEndpoints(c *revision) {
	for key, e := range c.allEndpoints() {
		address, value := key.address.Addr(), e.value()
		f.put(f.capacity.endpoints, f.memory.endpoints, address, key.slot(), mapmem.WordsOf(&value))
		if f.backendAddresses[address]++; f.backendAddresses[address] == 1 {
			f.put(f.capacity.endpoints, f.memory.endpoints, address, vipKey(address),
				mapmem.WordsOf(&objects.XDPEndpoint{}))
		}
		if f.rows.IsFresh(e.index) {
			f.rows.Set(e.index, &objects.XDPBackend{Index: e.index, Generation: c.places.generation(e.index)}, f.later)
		}
	}
}
