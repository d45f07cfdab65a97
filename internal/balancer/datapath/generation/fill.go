// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"errors"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// errNoRoom is an internal error: memory is planned for its contents.
var errNoRoom = errors.New("the configuration has no room in the memory that was planned for it")

// fill writes a configuration into memory that no packet reads yet. It returns the services' placements, in the order
// of the change's records.
func (m *Memory) fill(c *Revision, plan *Capacity) ([]Placement, error) {
	f := filler{m, plan}
	m.Constants.Modes, m.Constants.Schedulers = c.NeededModes(), c.schedulers
	if m.Lists = c.lists; c.lists {
		m.Constants.Clients = 1
	}
	m.Pool, m.Hairpin = c.pool(), c.hairpin()
	m.Numbers = c.Numbers().pooled(m.Pool)
	if c.hairpins {
		m.Constants.Hairpins = 1
	}
	if c.State.Local != "" {
		m.Constants.Local = 1
	}
	m.Constants.HairpinFirstPort, m.Constants.HairpinLastPort = m.Hairpin.FirstPort, m.Hairpin.LastPort
	m.Constants.FirstPort, m.Constants.LastPort = m.Pool.FirstPort, m.Pool.LastPort
	placements := make([]Placement, len(c.Records))
	for i, r := range c.Records {
		var ok bool
		rows := r.rows()
		if placements[i], ok = m.placeService(r, nil, rows); !ok {
			return nil, errNoRoom
		}
		for at := range rows {
			m.Rows.Set(r.Places[at].Index, &rows[at], m.Grace)
		}
		f.put(f.Capacity.services, f.Memory.services, r.Key.VIP, r.slotKey(), mapmem.WordsOf(&placements[i].value))
		m.vips[r.Key.VIP]++
	}
	f.addVIPs()
	f.addEndpoints(c)
	return placements, nil
}

// filler is the state of fill while it runs.
type filler struct {
	*Memory
	*Capacity
}

// put writes a value into the slot of its key, in the directory of the address's family.
func (f *filler) put(at [2]mapmem.Placement, in [2]*mapmem.Directory, address netip.Addr, key mapmem.Key,
	value mapmem.Storage) {
	in[mapmem.Family(address)].Fill(key, at[mapmem.Family(address)].At[key], value)
}

// addVIPs adds the addresses of the services and of the pool.
func (f *filler) addVIPs() {
	kinds := map[netip.Addr]objects.XDPServiceKind{}
	for vip := range f.Memory.vips {
		kinds[vip] = objects.XDPServiceKindKIND_VIP
	}
	for _, address := range f.Memory.Pool.All() {
		kinds[address] = objects.XDPServiceKindKIND_POOL
	}
	for address, kind := range kinds {
		value := objects.XDPService{Kind: uint8(kind)}
		f.put(f.Capacity.services, f.Memory.services, address, vipKey(address), mapmem.WordsOf(&value))
	}
}

// addEndpoints adds endpoints, also those of removed backends: late replies from them are counted under their index,
// which no present backend has.
func (f *filler) addEndpoints(c *Revision) {
	for key, e := range c.allEndpoints() {
		address, value := key.address.Addr(), e.value()
		f.put(f.Capacity.endpoints, f.Memory.endpoints, address, key.slot(), mapmem.WordsOf(&value))
		if f.backendAddresses[address]++; f.backendAddresses[address] == 1 {
			f.put(f.Capacity.endpoints, f.Memory.endpoints, address, vipKey(address),
				mapmem.WordsOf(&objects.XDPEndpoint{}))
		}
		if f.Rows.IsFresh(e.Index) {
			f.Rows.Set(e.Index, &objects.XDPBackend{Index: e.Index, Generation: c.Places.generation(e.Index)}, f.Grace)
		}
	}
}

// FillMap writes the configuration after a change into a zeroed map of the planned size. It returns the services'
// placements, in the order of the change's records. The memory owns the map, which is closed on an error. mu is the
// lock of the memory's user.
func FillMap(m *ebpf.Map, plan *Capacity, c *Revision, mu *sync.Mutex) (*Memory, []Placement, error) {
	all, err := mapmem.Map(m)
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	memory := newMemory(plan, all, mu)
	memory.Map = m
	placements, err := memory.fill(c, plan)
	if err != nil {
		memory.Close()
		return nil, nil, err
	}
	return memory, placements, nil
}
