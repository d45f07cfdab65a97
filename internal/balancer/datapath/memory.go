// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// memory is the one value of the map `generation`: all that packets go by. It is
// planned with room to spare, and changes in place for as long as that lasts.
type memory struct {
	// m is the map, nil for memory that no program reads.
	m         *ebpf.Map
	storage   mapmem.Storage
	constants objects.XDPSettings
	arena     *mapmem.Arena
	// By family: 4, then 6.
	services, endpoints [2]*mapmem.Directory
	rows                *mapmem.Rows
	// The entry for a whole address is there for as long as a service or an endpoint needs it.
	vips, backendAddresses map[netip.Addr]int
	pool                   lb.Pool
	// numbers are those of the pool's addresses.
	numbers poolNumbers
	hairpin lb.Hairpin
	// lists: some service does not serve every client.
	lists bool
	later *mapmem.Grace
}

// capacity is what memory is made for.
type capacity struct {
	services, endpoints [2]mapmem.Placement
	indices, spares     uint32
	// arena is in units of a cache line.
	arena uint32
	// By family: the pool's addresses by their numbers, and the numbers of those that new flows get ports of.
	pool [2][]mapmem.Address
	own  [2][]uint32
}

// maxGeneration is the largest offset in bytes that the verifier lets a
// program add to a pointer (BPF_MAX_VAR_OFF of Linux).
const maxGeneration = 1 << 29

// Headroom. The arena holds twice what is needed, and besides room for the largest
// service to change some times before readers are gone.
const (
	arenaSlack   = 1 << 18 / mapmem.CacheLine
	arenaChanges = 4
	// An index more for every eight, and these.
	indexSlack = 256
	maxSpares  = 1<<16 - 1
)

// capacityFor plans memory for what is there after a change.
func capacityFor(c *revision) (capacity, error) {
	var p capacity
	var err error
	for family, keys := range c.serviceKeys() {
		if p.services[family], err = mapmem.Place(keys); err != nil {
			return p, err
		}
	}
	for family, keys := range c.endpointKeys() {
		if p.endpoints[family], err = mapmem.Place(keys); err != nil {
			return p, err
		}
	}
	p.indices = roomyCount(c.places.indices)
	p.spares = min(p.indices, maxSpares)
	pool, numbers := c.pool(), c.numbers()
	for f := range p.pool {
		p.pool[f], p.own[f] = numbers.pooled(pool).words(f), numbers.numbersOf(pool.Addresses, f)
	}
	return p, p.planArena(c)
}

// roomyCount returns n with headroom, in steps of the headroom's least.
func roomyCount(n uint32) uint32 {
	return (n + n/8 + indexSlack) / indexSlack * indexSlack
}

// planArena gives the arena what the rest leaves it, at most what is good for it.
func (p *capacity) planArena(c *revision) error {
	var need, largest uint64
	for _, r := range c.records {
		n := uint64(r.need())
		need, largest = need+n, max(largest, n)
	}
	_, rest := p.layout()
	room := (maxGeneration - min(maxGeneration, uint64(rest))) / mapmem.CacheLine
	if need > room {
		return fmt.Errorf(
			"the tables of the services need %d bytes, and the kernel's verifier allows %d: use fewer services or a smaller table_size",
			need*mapmem.CacheLine, room*mapmem.CacheLine)
	}
	p.arena = uint32(min(2*need+arenaChanges*largest+arenaSlack, room))
	return nil
}

// layout says by constants where each vector is, and how many bytes all of them take.
func (p *capacity) layout() (objects.XDPSettings, uint32) {
	s := objects.XDPSettings{BackendsCount: p.indices + p.spares, BackendsIndices: p.indices,
		Pool4Count: uint32(len(p.pool[0])), Pool6Count: uint32(len(p.pool[1])), Own4Count: uint32(len(p.own[0])),
		Own6Count:  uint32(len(p.own[1])),
		TableSlots: p.arena * mapmem.CacheLine / 2, MembersCount: p.arena, Weak: mapmem.Weak()}
	s.Services4, s.Services6 = vectorOf(p.services[0].Size), vectorOf(p.services[1].Size)
	s.Endpoints4, s.Endpoints6 = vectorOf(p.endpoints[0].Size), vectorOf(p.endpoints[1].Size)
	// The head has a cache line.
	at := uint32(mapmem.CacheLine)
	for _, v := range []struct {
		at    *uint32
		lines uint32
	}{
		{&s.Services4.At, p.services[0].Size},
		{&s.Services6.At, p.services[1].Size},
		{&s.Endpoints4.At, p.endpoints[0].Size},
		{&s.Endpoints6.At, p.endpoints[1].Size},
		{&s.Backends, s.BackendsCount},
		{&s.Pool4, mapmem.Units(16 * len(p.pool[0]))},
		{&s.Pool6, mapmem.Units(16 * len(p.pool[1]))},
		{&s.Own4, mapmem.Units(4 * len(p.own[0]))},
		{&s.Own6, mapmem.Units(4 * len(p.own[1]))},
		{&s.Table, p.arena},
	} {
		*v.at = at
		at += v.lines * mapmem.CacheLine
	}
	s.Members = s.Table
	return s, at
}

// vectorOf describes a hash table of that many slots.
func vectorOf(slots uint32) objects.XDPVector {
	return objects.XDPVector{Mask: slots - 1, Shift: mapmem.HashShift(slots)}
}

// head is what the memory begins with.
func (m *memory) head() *objects.XDPHead {
	return &mapmem.ElementsOf[objects.XDPHead](m.storage[:mapmem.CacheLine/8])[0]
}

// storeHead writes what packets are to know of all services together.
func (c *revision) storeHead(h *objects.XDPHead) {
	var answers uint32
	// Another balancer may know the flow, or have just told of it.
	if c.poolAnswers && len(c.pool().Others) == 0 {
		answers = 1
	}
	atomic.StoreUint32(&h.PoolAnswers, answers)
}

// bytes is how large the memory is.
func (p *capacity) bytes() uint32 {
	_, size := p.layout()
	return size
}

// fillMap puts what is there after a change into a map of zeros that is as large as planned for it. It returns where the
// services are, in the order of the change's records. The memory has the map from now on, which is closed on an error.
// The lock is the one that the memory's user has.
func fillMap(m *ebpf.Map, plan *capacity, c *revision, mu *sync.Mutex) (*memory, []placement, error) {
	all, err := mapmem.Map(m)
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	made := newMemory(plan, all, mu)
	made.m = m
	homes, err := made.fill(c, plan)
	if err != nil {
		made.close()
		return nil, nil, err
	}
	return made, homes, nil
}

// newMemory lays memory out that is all zeros, of the size that layout says. The lock
// is the one that its user has.
func newMemory(p *capacity, all mapmem.Storage, mu *sync.Mutex) *memory {
	constants, _ := p.layout()
	m := &memory{storage: all, constants: constants, arena: mapmem.NewArena(p.arena),
		vips: map[netip.Addr]int{}, backendAddresses: map[netip.Addr]int{}, later: mapmem.NewGrace(mu)}
	vector := func(at, lines uint32) mapmem.Storage { return all[at/8:][:lines*mapmem.SlotWords] }
	m.services[0] = mapmem.NewDirectory(vector(constants.Services4.At, p.services[0].Size), p.services[0].Size, false)
	m.services[1] = mapmem.NewDirectory(vector(constants.Services6.At, p.services[1].Size), p.services[1].Size, true)
	m.endpoints[0] = mapmem.NewDirectory(vector(constants.Endpoints4.At, p.endpoints[0].Size), p.endpoints[0].Size,
		false)
	m.endpoints[1] = mapmem.NewDirectory(vector(constants.Endpoints6.At, p.endpoints[1].Size), p.endpoints[1].Size,
		true)
	m.rows = mapmem.NewRows(vector(constants.Backends, constants.BackendsCount), p.indices, p.spares)
	for f, at := range [2]struct{ pool, own uint32 }{{constants.Pool4, constants.Own4}, {constants.Pool6,
		constants.Own6}} {
		copy(mapmem.ElementsOf[mapmem.Address](vector(at.pool, mapmem.Units(16*len(p.pool[f])))), p.pool[f])
		copy(mapmem.ElementsOf[uint32](vector(at.own, mapmem.Units(4*len(p.own[f])))), p.own[f])
	}
	return m
}

// suits says whether what is planned for good in the memory is what a change needs. There may be no room all the same.
func (m *memory) suits(c *revision) bool {
	return m.constants.Modes == c.neededModes() && m.lists == c.lists && m.pool.Equal(c.pool()) &&
		m.hairpin.Equal(c.hairpin()) && c.places.indices <= m.constants.BackendsIndices
}

// piece returns the memory of a piece of the arena.
func (m *memory) piece(e *mapmem.Extent) []byte {
	return m.storage[(m.constants.Table+e.At*mapmem.CacheLine)/8:][:e.Size*mapmem.SlotWords].Bytes()
}

// close frees the memory. Programs that use it keep the map.
func (m *memory) close() {
	if m == nil {
		return
	}
	m.later.Close()
	if m.m != nil {
		m.storage.Unmap()
		m.m.Close()
	}
}

// pool returns what full NAT sends from, nothing where no service has that mode.
func (c *revision) pool() lb.Pool {
	if c.neededModes()&(1<<objects.XDPModeMODE_FULLNAT) == 0 {
		return lb.Pool{}
	}
	return c.state.Pool
}

// hairpin returns who is served by hairpins, nothing where there are none.
func (c *revision) hairpin() lb.Hairpin {
	if !c.hairpins {
		return lb.Hairpin{}
	}
	return c.state.Hairpin
}

// serviceKeys lists what is in the directories of services after a change, by family.
func (c *revision) serviceKeys() (keys [2][]mapmem.Key) {
	seen := map[netip.Addr]bool{}
	add := func(address netip.Addr) {
		if !seen[address] {
			seen[address] = true
			keys[mapmem.Family(address)] = append(keys[mapmem.Family(address)], vipKey(address))
		}
	}
	for _, r := range c.records {
		keys[mapmem.Family(r.key.VIP)] = append(keys[mapmem.Family(r.key.VIP)], r.slotKey())
		add(r.key.VIP)
	}
	for _, address := range c.pool().All() {
		add(address)
	}
	return keys
}

// vipKey is what an address as a whole is under.
func vipKey(address netip.Addr) mapmem.Key {
	return mapmem.KeyOf(address, 0, uint8(objects.XDPAgreementPROTOCOL_ANY))
}

// endpointKeys likewise lists what is in the directories of endpoints.
func (c *revision) endpointKeys() (keys [2][]mapmem.Key) {
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

// allEndpoints returns those of present and of previous backends after a change.
func (c *revision) allEndpoints() map[endpointKey]natEndpoint {
	all := map[endpointKey]natEndpoint{}
	r := c.places
	for key, e := range r.places.previous {
		all[key] = e
	}
	for _, key := range r.forgotten {
		delete(all, key)
	}
	for key, e := range r.gone {
		all[key] = r.previousOf(e)
	}
	for _, is := range c.records {
		is.endpointsOf(func(key endpointKey, e natEndpoint) { all[key] = e })
	}
	return all
}

// openMemory opens the pinned memory of a generation. The caller unmaps and closes it.
func openMemory(path string) (*memory, error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return nil, fmt.Errorf("%s is no memory of a generation: %w", path, err)
	}
	if m.Type() != ebpf.Array || m.ValueSize() < mapmem.CacheLine {
		return nil, errors.Join(fmt.Errorf("%s is no memory of a generation, but %s", path, m), m.Close())
	}
	all, err := mapmem.Map(m)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &memory{m: m, storage: all}, nil
}
