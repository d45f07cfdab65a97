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

// errNoRoom should not be seen: memory is planned for its contents.
var errNoRoom = errors.New("the configuration has no room in the memory that was planned for it")

// fill puts a configuration into memory that no packet reads yet. It returns the services' placements, in the order of
// the change's records.
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
	homes := make([]Placement, len(c.Records))
	for i, r := range c.Records {
		var ok bool
		rows := r.rows()
		if homes[i], ok = m.placeService(r, nil, rows); !ok {
			return nil, errNoRoom
		}
		for at := range rows {
			m.Rows.Set(r.Places[at].Index, &rows[at], m.Grace)
		}
		f.put(f.Capacity.services, f.Memory.services, r.Key.VIP, r.slotKey(), mapmem.WordsOf(&homes[i].value))
		m.vips[r.Key.VIP]++
	}
	f.addVIPs()
	f.addEndpoints(c)
	return homes, nil
}

// filler is the state of fill while it runs.
type filler struct {
	*Memory
	*Capacity
}

// put puts a value where its key is to be in one of two directories.
func (f *filler) put(at [2]mapmem.Placement, in [2]*mapmem.Directory, address netip.Addr, key mapmem.Key,
	value mapmem.Storage) {
	in[mapmem.Family(address)].Fill(key, at[mapmem.Family(address)].At[key], value)
}

// addVIPs makes the addresses of the services known, and those of the pool.
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

// addEndpoints makes endpoints known, those of backends that have left, too: late replies from them are counted under
// their index, which no present backend has.
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

// FillMap puts the configuration after a change into a map of zeros that is as large as planned for it. It returns the
// services' placements, in the order of the change's records. The memory owns the map from now on, which is closed on
// an error. The lock is the one that the memory's user has.
func FillMap(m *ebpf.Map, plan *Capacity, c *Revision, mu *sync.Mutex) (*Memory, []Placement, error) {
	all, err := mapmem.Map(m)
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	made := newMemory(plan, all, mu)
	made.Map = m
	homes, err := made.fill(c, plan)
	if err != nil {
		made.Close()
		return nil, nil, err
	}
	return made, homes, nil
}
