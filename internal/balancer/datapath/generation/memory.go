// SPDX-License-Identifier: Apache-2.0

package generation

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

// Memory is the single value of the map `generation`: the complete configuration that the programs read. It is planned
// with headroom, and changes in place for as long as that suffices.
type Memory struct {
	// Map is the map, nil for memory that no program reads.
	Map       *ebpf.Map
	Storage   mapmem.Storage
	Constants objects.XDPSettings
	arena     *mapmem.Arena
	// By family: 4, then 6.
	services, endpoints [2]*mapmem.Directory
	Rows                *mapmem.Rows
	// vips and backendAddresses count the services and endpoints that need the entry of an address.
	vips, backendAddresses map[netip.Addr]int
	Pool                   lb.Pool
	// Numbers are the numbers of the pool's addresses.
	Numbers PoolNumbers
	Hairpin lb.Hairpin
	// Lists: some service does not serve every client.
	Lists bool
	Grace *mapmem.Grace
}

// Capacity is the number of entries of each kind that a generation's memory has room for.
type Capacity struct {
	services, endpoints [2]mapmem.Placement
	indices, spares     uint32
	// arena is in units of a cache line.
	arena uint32
	// By family: the pool's addresses by their numbers, and the numbers of the addresses whose ports new flows get.
	pool [2][]mapmem.Address
	own  [2][]uint32
}

// maxGeneration is the largest offset in bytes that the verifier allows a program to add to a pointer (BPF_MAX_VAR_OFF
// of Linux).
const maxGeneration = 1 << 29

// Headroom. The arena is twice as large as needed, for the tables before a transition of each service, and has further
// room for a change of one service in arenaPart, and for arenaChanges changes of the largest service, rounded up to the
// slack: a change gets its tables before it frees others, and without room it takes a whole new generation.
const (
	arenaPart    = 8
	arenaSlack   = 1 << 18 / mapmem.CacheLine
	arenaChanges = 4
	// IndexSlack is the number of further indices, besides one for every eight.
	IndexSlack = 256
	maxSpares  = 1<<16 - 1
)

// CapacityFor plans memory for the configuration after a change. Error: lb.ErrTooLarge.
func CapacityFor(c *Revision) (Capacity, error) {
	var p Capacity
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
	p.indices = RoomyCount(c.Places.Indices)
	p.spares = min(p.indices, maxSpares)
	pool, numbers := c.pool(), c.Numbers()
	for f := range p.pool {
		p.pool[f], p.own[f] = numbers.pooled(pool).words(f), numbers.numbersOf(pool.Addresses, f)
	}
	return p, p.planArena(c)
}

// RoomyCount returns n with headroom, rounded up to IndexSlack.
func RoomyCount(n uint32) uint32 {
	return (n + n/8 + IndexSlack) / IndexSlack * IndexSlack
}

// planArena gives the arena the size that it needs with headroom, or the rest of the memory if that is less.
func (p *Capacity) planArena(c *Revision) error {
	var need, largest uint64
	for _, r := range c.Records {
		n := uint64(r.unitsNeeded())
		need, largest = need+n, max(largest, n)
	}
	_, size := p.layout()
	room := (maxGeneration - min(maxGeneration, uint64(size))) / mapmem.CacheLine
	if need > room {
		return fmt.Errorf(
			"%w: the tables of the services need %d bytes, and the kernel's verifier allows %d: use fewer services or a smaller table_size",
			lb.ErrTooLarge, need*mapmem.CacheLine, room*mapmem.CacheLine)
	}
	wanted := 2*need + need/arenaPart + arenaChanges*largest + arenaSlack
	p.arena = uint32(min((wanted+arenaSlack-1)/arenaSlack*arenaSlack, room))
	return nil
}

// layout returns the constants with each vector's offset, and the size of the memory in bytes.
func (p *Capacity) layout() (objects.XDPSettings, uint32) {
	s := objects.XDPSettings{BackendsCount: p.indices + p.spares, BackendsIndices: p.indices,
		Pool4Count: uint32(len(p.pool[0])), Pool6Count: uint32(len(p.pool[1])), Own4Count: uint32(len(p.own[0])),
		Own6Count:  uint32(len(p.own[1])),
		TableSlots: p.arena * mapmem.CacheLine / 2, MembersCount: p.arena, Weak: mapmem.Weak()}
	s.Services4, s.Services6 = vectorOf(p.services[0].Size), vectorOf(p.services[1].Size)
	s.Endpoints4, s.Endpoints6 = vectorOf(p.endpoints[0].Size), vectorOf(p.endpoints[1].Size)
	// The head occupies a cache line.
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

// Head returns the header at the beginning of the memory.
func (m *Memory) Head() *objects.XDPHead {
	return &mapmem.ElementsOf[objects.XDPHead](m.Storage[:mapmem.CacheLine/8])[0]
}

// StoreHead writes the flags that apply to all services.
func (c *Revision) StoreHead(h *objects.XDPHead) {
	var answers uint32
	// Another balancer may know the flow, or have just sent it.
	if c.poolAnswers && len(c.pool().Others) == 0 {
		answers = 1
	}
	atomic.StoreUint32(&h.PoolAnswers, answers)
}

// Bytes returns the size of the memory.
func (p *Capacity) Bytes() uint32 {
	_, size := p.layout()
	return size
}

// newMemory lays out zeroed memory, of the size that layout returns. mu is the lock of the memory's user.
func newMemory(p *Capacity, all mapmem.Storage, mu *sync.Mutex) *Memory {
	constants, _ := p.layout()
	m := &Memory{Storage: all, Constants: constants, arena: mapmem.NewArena(p.arena),
		vips: map[netip.Addr]int{}, backendAddresses: map[netip.Addr]int{}, Grace: mapmem.NewGrace(mu)}
	vector := func(at, lines uint32) mapmem.Storage { return all[at/8:][:lines*mapmem.SlotWords] }
	m.services[0] = mapmem.NewDirectory(vector(constants.Services4.At, p.services[0].Size), p.services[0].Size, false)
	m.services[1] = mapmem.NewDirectory(vector(constants.Services6.At, p.services[1].Size), p.services[1].Size, true)
	m.endpoints[0] = mapmem.NewDirectory(vector(constants.Endpoints4.At, p.endpoints[0].Size), p.endpoints[0].Size,
		false)
	m.endpoints[1] = mapmem.NewDirectory(vector(constants.Endpoints6.At, p.endpoints[1].Size), p.endpoints[1].Size,
		true)
	m.Rows = mapmem.NewRows(vector(constants.Backends, constants.BackendsCount), p.indices, p.spares)
	for f, at := range [2]struct{ pool, own uint32 }{{constants.Pool4, constants.Own4}, {constants.Pool6,
		constants.Own6}} {
		copy(mapmem.ElementsOf[mapmem.Address](vector(at.pool, mapmem.Units(16*len(p.pool[f])))), p.pool[f])
		copy(mapmem.ElementsOf[uint32](vector(at.own, mapmem.Units(4*len(p.own[f])))), p.own[f])
	}
	return m
}

// CanHold reports whether a change fits the fixed parts of the memory; the arena may still lack room. Schedulers that
// no service uses any more cost packets nothing, and may be used again.
func (m *Memory) CanHold(c *Revision) bool {
	return m.Constants.Modes == c.NeededModes() && c.schedulers&^m.Constants.Schedulers == 0 && m.Lists == c.lists &&
		m.Pool.Equal(c.pool()) && m.Hairpin.Equal(c.hairpin()) && c.Places.Indices <= m.Constants.BackendsIndices
}

// bytesOf returns the memory of a piece of the arena.
func (m *Memory) bytesOf(e *mapmem.Extent) []byte {
	return m.Storage[(m.Constants.Table+e.At*mapmem.CacheLine)/8:][:e.Size*mapmem.SlotWords].Bytes()
}

// Close frees the memory. Programs that use it keep the map.
func (m *Memory) Close() {
	if m == nil {
		return
	}
	m.Grace.Close()
	if m.Map != nil {
		m.Storage.Unmap()
		m.Map.Close()
	}
}

// OpenMemory opens the pinned memory of a generation, which the caller unmaps and closes.
func OpenMemory(path string) (*Memory, error) {
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
	return &Memory{Map: m, Storage: all}, nil
}

// Numbers returns the numbers of the pool's addresses after the change.
func (c *Revision) Numbers() PoolNumbers { return c.Places.Places.pool.with(c.pool()) }

// OwnNumbers returns, by family and number, which addresses of the pool are the balancer's own; nil where all are.
func (m *Memory) OwnNumbers() (own [2][]bool) {
	if len(m.Pool.Others) == 0 {
		return own
	}
	for f := range own {
		own[f] = make([]bool, len(m.Numbers[f]))
		for _, number := range m.Numbers.numbersOf(m.Pool.Addresses, f) {
			own[f][number] = true
		}
	}
	return own
}
