// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// testPlane is a register with memory outside of the kernel: it plays Apply, without the programs.
type testPlane struct {
	mu sync.Mutex
	*Register
	memory *Memory
	// filled counts how often memory was recreated.
	filled int
	now    time.Time
	// sockets are those of this host, by the id of their service.
	sockets map[uint32]uint32
}

func newTestPlane() *testPlane { return &testPlane{Register: NewRegister(), now: time.Unix(1000, 0)} }

func (p *testPlane) apply(t *testing.T, state lb.State) {
	t.Helper()
	c, err := p.Plan(state, 0, p.now)
	if err != nil {
		t.Fatal(err)
	}
	if !p.publish(c) {
		p.fill(t, c)
	}
	p.Commit(c)
}

// publish changes the memory that is there, if it is enough.
func (p *testPlane) publish(c *Revision) bool {
	m := p.memory
	if m == nil || c.Places.Indices > m.Constants.BackendsIndices || !m.Pool.Equal(c.pool()) {
		return false
	}
	made := m.Prepare(c)
	if made == nil && m.Grace.Wait() {
		made = m.Prepare(c)
	}
	if made == nil {
		return false
	}
	made.Publish()
	return true
}

// fill makes memory again.
func (p *testPlane) fill(t *testing.T, c *Revision) {
	t.Helper()
	plan, err := CapacityFor(c)
	if err != nil {
		t.Fatal(err)
	}
	_, size := plan.layout()
	m := newMemory(&plan, make(mapmem.Storage, size/8), &p.mu)
	m.Grace = mapmem.NewManualGrace()
	homes, err := m.fill(c, &plan)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range c.Records {
		r.placement = homes[i]
	}
	p.memory, p.filled = m, p.filled+1
}

// endTransitions plays Datapath.endTransitions.
func (p *testPlane) endTransitions(flowsOf map[uint32]uint64) {
	p.Places.FreeIDs(flowsOf, p.sockets)
	if c := p.Register.EndTransitions(p.now, flowsOf); c != nil && p.publish(c) {
		p.Commit(c)
	}
}

// packetView has the words of a service that a packet reads, in the order in which it reads them.
type packetView struct {
	service objects.XDPService
	// slot is the one of the hash, with its bit.
	slot uint16
	// number is the one before the table.
	number        uint32
	current, base objects.XDPBackend
	// replaced: the table was another one when the flags had been read.
	replaced bool
}

// lookupAsPacket reads as lookup_slot() of bpf/balancer/select/slot.h does. It returns false where there is no such
// service.
func (m *Memory) lookupAsPacket(key lb.ServiceKey, hash uint32) (s packetView, found bool) {
	d := m.services[mapmem.Family(key.VIP)]
	k := mapmem.KeyOf(key.VIP, key.Port, uint8(key.Protocol))
	value := d.Lookup(k)
	if value == nil {
		return s, false
	}
	words := mapmem.WordsOf(&s.service)
	// The block is read before the flags that it depends on.
	for i := range words {
		words[i] = value.Load(uint32(i))
	}
	m.readSlot(&s, hash, value)
	return s, true
}

func (m *Memory) readSlot(s *packetView, hash uint32, value mapmem.Storage) {
	if s.service.TableSize > 0 {
		s.slot = m.slotAt(s.service.Current.Table + uint32(uint64(hash)*uint64(s.service.TableSize)>>32))
		s.number = uint32(m.slotAt(s.service.Current.Table-2)) | uint32(m.slotAt(s.service.Current.Table-1))<<16
		s.current = m.memberAt(s.service.Current.Members + uint32(s.slot)&uint32(objects.XDPSlotBitsSLOT_MEMBER))
	}
	// A moved slot is marked before the flags are set, for a reader of the flags first.
	again := objects.XDPService{}
	mapmem.WordsOf(&again)[flagsWord] = value.Load(flagsWord)
	s.service.Flags |= again.Flags & uint16(objects.XDPServiceFlagSERVICE_MOVED)
	s.replaced = value.Load(currentWord) != mapmem.WordsOf(&s.service)[currentWord]
	if again.Flags&uint16(objects.XDPServiceFlagSERVICE_BASE) == 0 {
		s.service.Flags &^= uint16(objects.XDPServiceFlagSERVICE_BASE)
		return
	}
	s.service.Flags |= uint16(objects.XDPServiceFlagSERVICE_BASE)
	mapmem.WordsOf(&s.service)[baseWord], mapmem.WordsOf(&again)[sizesWord] = value.Load(baseWord),
		value.Load(sizesWord)
	s.service.BaseSize = again.BaseSize
	slot := m.slotAt(s.service.Base.Table + uint32(uint64(hash)*uint64(s.service.BaseSize)>>32))
	s.base = m.memberAt(s.service.Base.Members + uint32(slot)&uint32(objects.XDPSlotBitsSLOT_MEMBER))
}

func (m *Memory) slotAt(at uint32) uint16 {
	return mapmem.ElementsOf[uint16](m.Storage[m.Constants.Table/8:])[at]
}

func (m *Memory) memberAt(at uint32) objects.XDPBackend {
	return mapmem.ElementsOf[objects.XDPBackend](m.Storage[m.Constants.Members/8:])[at]
}

// randomState has some of the services that follow, with some of their backends.
func randomState(rng *rand.Rand) lb.State {
	var state lb.State
	for i := range 12 {
		if rng.IntN(5) == 0 {
			continue
		}
		vip := netip.AddrFrom4([4]byte{198, 18, 0, byte(100 + i/3)})
		if i%4 == 3 {
			vip = netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i)})
		}
		n := 1 + rng.IntN(6)
		if rng.IntN(20) == 0 {
			n = 40
		}
		s := testService(vip, uint16(80+i), lb.TCP, lb.Schedulers[rng.IntN(len(lb.Schedulers))], n)
		s.TableSize = []uint32{61, 61, 61, 127}[rng.IntN(4)]
		if rng.IntN(3) == 0 {
			s.Mode = lb.NAT
		}
		for at := range s.Backends {
			s.Backends[at].Port = s.Port
			switch rng.IntN(6) {
			case 0:
				s.Paths[at].MAC = nil
			case 1:
				s.Backends[at].Weight = uint16(rng.IntN(4))
			case 2:
				s.Backends[at].Upper = uint32(rng.IntN(3))
			}
		}
		from := rng.IntN(len(s.Backends))
		s.Backends, s.Paths = s.Backends[from:], s.Paths[from:]
		state.Services = append(state.Services, s)
	}
	rng.Shuffle(len(state.Services), func(i, j int) {
		state.Services[i], state.Services[j] = state.Services[j], state.Services[i]
	})
	return state
}

// expect compares all of the memory with the state that was applied last.
func (p *testPlane) expect(t *testing.T, step int) {
	t.Helper()
	present := map[lb.ServiceKey]bool{}
	for i := range p.State.Services {
		service := &p.State.Services[i]
		present[service.Key()] = true
		p.expectService(t, step, service)
	}
	for i := range 12 {
		s := testService(netip.AddrFrom4([4]byte{198, 18, 0, byte(100 + i/3)}), uint16(80+i), lb.TCP, lb.Maglev, 1)
		if _, found := p.memory.lookupAsPacket(s.Key(), 0); found != present[s.Key()] {
			t.Fatalf("step %d: %v is found: %t", step, s.Key(), found)
		}
	}
	p.expectEndpoints(t, step)
}

// expectService looks a service up by enough hashes to meet each of its slots.
func (p *testPlane) expectService(t *testing.T, step int, s *lb.RoutedService) {
	t.Helper()
	r := p.ByKey[s.Key()]
	recipe := tables.RecipeOf(s, 0)
	want, err := recipe.Build()
	if err != nil {
		t.Fatal(err)
	}
	rows := map[netip.AddrPort]objects.XDPBackend{}
	for i, b := range s.Backends {
		row := r.Row(i)
		rows[netip.AddrPortFrom(b.Address, b.Port)] = row
		if got := p.memory.Rows.Find(row.Index); got != row {
			t.Fatalf("step %d: %s: index %d has %+v, want %+v", step, s.Name, row.Index, got, row)
		}
	}
	for probe := range uint32(512) {
		hash := probe << 23
		got, found := p.memory.lookupAsPacket(s.Key(), hash)
		if !found {
			t.Fatalf("step %d: %s is not found", step, s.Name)
		}
		if got.service.Id != r.ID || int(got.service.TableSize) != len(want.Slots) || got.service.Flags != r.flags() {
			t.Fatalf("step %d: %s is %+v, want %d slots, flags %b", step, s.Name, got.service,
				len(want.Slots), r.flags())
		}
		if len(want.Slots) > 0 {
			slot := uint64(hash) * uint64(len(want.Slots)) >> 32
			if owner := want.Owners[want.Slots[slot]]; got.current != rows[owner] {
				t.Fatalf("step %d: %s: hash %x leads to %+v, want %+v", step, s.Name, hash, got.current, rows[owner])
			}
			if moved := got.slot&uint16(objects.XDPSlotBitsSLOT_MOVED) != 0; moved != r.View.Moved.Has(int(slot)) {
				t.Fatalf("step %d: %s: slot %d moved: %t", step, s.Name, slot, moved)
			}
			number := uint32(len(want.Owners))<<objects.XDPAgreementSEQUENCE_BITS | uint32(len(want.Sequence))
			if got.number != number {
				t.Fatalf("step %d: %s: the number before its table is %x, want %x", step, s.Name, got.number, number)
			}
			p.expectSequence(t, got.service.Current.Table, want.Sequence)
		}
		if base := r.View.Base; base != nil {
			owner := base.Owners[base.Slots[uint64(hash)*uint64(len(base.Slots))>>32]]
			if got.base != rows[owner] {
				t.Fatalf("step %d: %s: hash %x led to %+v, want %+v", step, s.Name, hash, got.base, rows[owner])
			}
		}
	}
}

func (p *testPlane) expectSequence(t *testing.T, table uint32, want []uint16) {
	t.Helper()
	for i, member := range want {
		if got := p.memory.slotAt(table - 2 - uint32(len(want)) + uint32(i)); got != member {
			t.Fatalf("turn %d of %d is member %d's, want %d's", i, len(want), got, member)
		}
	}
}

// expectEndpoints looks for the endpoints of backends that are there, and of those that
// have left.
func (p *testPlane) expectEndpoints(t *testing.T, step int) {
	t.Helper()
	want := map[endpointKey]natEndpoint{}
	for key, e := range p.Places.Previous {
		want[key] = e
	}
	for _, r := range p.Records {
		r.endpointsOf(func(key endpointKey, e natEndpoint) { want[key] = e })
	}
	addresses := map[netip.Addr]bool{}
	for key, e := range want {
		addresses[key.address.Addr()] = true
		there := p.memory.endpoints[mapmem.Family(key.address.Addr())].Value(key.slot())
		if value := e.value(); there == nil || !slices.Equal([]uint64(there[:4]), []uint64(mapmem.WordsOf(&value))) {
			t.Fatalf("step %d: endpoint %v is %v, want %v", step, key, there, value)
		}
	}
	found := 0
	for _, d := range p.memory.endpoints {
		found += d.Keys()
	}
	if found != len(want)+len(addresses) {
		t.Fatalf("step %d: %d endpoints and addresses, want %d and %d", step, found, len(want), len(addresses))
	}
}

// TestPublishedMemory applies random states, one upon the other, and reads the memory
// after each as packets do. Most must be changes in place.
func TestPublishedMemory(t *testing.T) {
	inPlace, filled := 0, 0
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		p := newTestPlane()
		for step := range 60 {
			p.now = p.now.Add(time.Duration(rng.IntN(400)) * time.Second)
			if step > 0 && rng.IntN(3) == 0 {
				p.endTransitions(map[uint32]uint64{uint32(rng.IntN(12)): 1})
			} else {
				p.apply(t, randomState(rng))
			}
			p.expect(t, step)
			if rng.IntN(3) == 0 {
				p.memory.Grace.Wait()
			}
			inPlace++
		}
		filled += p.filled
		p.expectNoLeak(t)
	}
	if filled < 21 || filled > inPlace/4 {
		t.Errorf("%d changes, and memory was made %d times: the test needs both", inPlace, filled)
	}
}

// expectNoLeak checks that the arena holds the services' pieces and no others, once no packet reads earlier ones.
func (p *testPlane) expectNoLeak(t *testing.T) {
	t.Helper()
	p.memory.Grace.Wait()
	var held []*mapmem.Extent
	for _, r := range p.Records {
		for _, e := range r.placement.pieces() {
			if !slices.Contains(held, e) {
				held = append(held, e)
			}
		}
	}
	if err := p.memory.arena.Check(held); err != nil {
		t.Fatal(err)
	}
	p.apply(t, lb.State{})
	p.memory.Grace.Wait()
	if err := p.memory.arena.Check(nil); err != nil {
		t.Errorf("with no service: %v", err)
	}
	for _, d := range p.memory.services {
		if n := d.Keys(); n != 0 {
			t.Errorf("with no service, %d are left", n)
		}
	}
}

// TestLeavingBackendKeepsItsPath: a packet under way that has chosen a backend finds where to send it, when that has
// left meanwhile. Without an MTU, its sender would be notified that it is too big.
func TestLeavingBackendKeepsItsPath(t *testing.T) {
	p := newTestPlane()
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 3)
	p.apply(t, lb.State{Services: []lb.RoutedService{s}})
	before := p.ByKey[s.Key()].Row(2)
	s.Backends, s.Paths = s.Backends[:2], s.Paths[:2]
	p.apply(t, lb.State{Services: []lb.RoutedService{s}})
	after := p.memory.Rows.Get(before.Index)
	if after.Up != 0 || after.Generation == before.Generation {
		t.Errorf("the backend has left, and its row is %+v", after)
	}
	if after.Mtu != before.Mtu || after.Destination != before.Destination || after.Source != before.Source {
		t.Errorf("the row was %+v, and is %+v", before, after)
	}
}

// TestRoomWhileAllAreInTransition: when each service has had a change, and keeps its previous table, a change of many
// of them at once is still made in the memory that is there.
func TestRoomWhileAllAreInTransition(t *testing.T) {
	p := newTestPlane()
	state := lb.State{}
	for i := range uint16(200) {
		state.Services = append(state.Services, testService(vip4, 1000+i, lb.TCP, lb.Maglev, 20))
	}
	// change takes a backend out of some services, or puts it back.
	change := func(from, to, backends int) {
		t.Helper()
		state.Services = slices.Clone(state.Services)
		for i := from; i < to; i++ {
			s := testService(vip4, 1000+uint16(i), lb.TCP, lb.Maglev, 20)
			s.Backends, s.Paths = s.Backends[:backends], s.Paths[:backends]
			state.Services[i] = s
		}
		p.now = p.now.Add(time.Second)
		p.apply(t, state)
	}
	p.apply(t, state)
	for i := 0; i < len(state.Services); i += 10 {
		change(i, i+10, 19)
	}
	change(0, 30, 20)
	if p.filled != 1 {
		t.Errorf("memory was made %d times, want once: a change loads programs", p.filled)
	}
}

// TestTablesExceedTheVerifier: tables that no program could address are an error of size, which a client can tell from
// a fault of the data plane.
func TestTablesExceedTheVerifier(t *testing.T) {
	p := newTestPlane()
	c, err := p.Plan(lb.State{Services: []lb.RoutedService{testService(vip4, 80, lb.TCP, lb.Maglev, 2)}}, 0, p.now)
	if err != nil {
		t.Fatal(err)
	}
	large := *c.Records[0].View.Table
	large.Slots = make([]uint16, maxGeneration)
	c.Records[0].View.Table = &large
	if _, err := CapacityFor(c); !errors.Is(err, lb.ErrTooLarge) || !strings.Contains(err.Error(), "smaller table_size") {
		t.Errorf("%v, want lb.ErrTooLarge with its remedy", err)
	}
}

// TestPublishedMeanwhile changes a service while packets look it up: all that they read belongs to a version of the
// service that there was, and leads to one of its backends.
func TestPublishedMeanwhile(t *testing.T) {
	p := newTestPlane()
	s := testService(vip4, 80, lb.TCP, lb.WeightedRoundRobin, 12)
	for i := range s.Backends {
		s.Backends[i].Port = uint16(1000 + i)
	}
	p.apply(t, lb.State{Services: []lb.RoutedService{s}})
	var readers sync.RWMutex
	later := p.memory.Grace
	later.Synchronize = func() {
		readers.Lock()
		defer readers.Unlock()
	}
	stop := make(chan struct{})
	var group sync.WaitGroup
	for reader := range 2 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(reader), 9))
			for {
				select {
				case <-stop:
					return
				default:
				}
				readers.RLock()
				got, found := p.memory.lookupAsPacket(s.Key(), rng.Uint32())
				problem := viewFault(got, found, len(s.Backends))
				readers.RUnlock()
				if problem != "" {
					t.Error(problem)
					return
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(5, 6))
	filled := p.filled
	for range 3000 {
		next := s
		next.Backends, next.Paths = slices.Clone(s.Backends), slices.Clone(s.Paths)
		next.TableSize = []uint32{61, 61, 61, 61, 127}[rng.IntN(5)]
		if rng.IntN(10) == 0 {
			next.Scheduler = lb.Schedulers[rng.IntN(len(lb.Schedulers))]
		}
		for i := range next.Backends {
			switch rng.IntN(8) {
			case 0:
				next.Paths[i].MAC = nil
			case 1:
				next.Backends[i].Weight = uint16(rng.IntN(3))
			}
		}
		if rng.IntN(40) == 0 {
			next.Paths = nil
		}
		p.now = p.now.Add(time.Minute)
		p.apply(t, lb.State{Services: []lb.RoutedService{next}})
		if rng.IntN(2) == 0 {
			p.endTransitions(nil)
		}
	}
	close(stop)
	group.Wait()
	if p.filled != filled {
		t.Error("the memory was made anew: the readers did not read that")
	}
}

// viewFault returns the fault of a sighting, if it has one.
func viewFault(got packetView, found bool, backends int) string {
	known := func(b objects.XDPBackend) bool {
		port := mapmem.NetworkOrder(b.Port)
		return port >= 1000 && int(port) < 1000+backends &&
			b.Address == mapmem.OfAddress(backendAddress(int(port-1000)))
	}
	switch {
	case !found:
		return "the service is not found"
	case got.service.TableSize > 0 && (got.current.Up == 0 || !known(got.current)):
		return fmt.Sprintf("a slot leads to %+v (of %+v)", got.current, got.service)
	case got.slot&uint16(objects.XDPSlotBitsSLOT_MOVED) != 0 &&
		got.service.Flags&uint16(objects.XDPServiceFlagSERVICE_MOVED) == 0 && !got.replaced:
		// The end of a transition is another matter: then the table goes first.
		return fmt.Sprintf("a slot has moved, and the service does not know: %+v", got.service)
	case got.service.Flags&uint16(objects.XDPServiceFlagSERVICE_BASE) != 0 && !known(got.base):
		return fmt.Sprintf("a slot led to %+v (of %+v)", got.base, got.service)
	}
	return ""
}

func backendAddress(i int) netip.Addr {
	a := netip.MustParseAddr("198.18.2.1").As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+uint32(i))
	return netip.AddrFrom4(a)
}

// TestIDsComeBackLate gives a service's id to another only when the janitor has found
// no flow of the first in some rounds.
func TestIDsComeBackLate(t *testing.T) {
	p := newTestPlane()
	a, b := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1), testService(vip4, 81, lb.TCP, lb.RoundRobin, 1)
	p.apply(t, lb.State{Services: []lb.RoutedService{a}})
	id := p.Places.Services[a.Key()]
	p.apply(t, lb.State{})
	other := func() uint32 {
		p.apply(t, lb.State{Services: []lb.RoutedService{b}})
		got := p.Places.Services[b.Key()]
		p.apply(t, lb.State{})
		delete(p.Places.quarantine, got)
		return got
	}
	p.endTransitions(map[uint32]uint64{id: 3})
	p.sockets = map[uint32]uint32{id: 1}
	for range IDRounds + 1 {
		p.endTransitions(map[uint32]uint64{})
		if other() == id {
			t.Fatal("another service has the id, and there are sockets of the first")
		}
	}
	p.sockets = nil
	for range IDRounds {
		if other() == id {
			t.Fatal("another service has the id, and there may be flows of the first")
		}
		p.endTransitions(map[uint32]uint64{})
	}
	if got := other(); got != id {
		t.Errorf("the id is %d, want %d again", got, id)
	}
}

// TestBadStatesChangeNothing plans impossible states: the register is as it was.
func TestBadStatesChangeNothing(t *testing.T) {
	p := newTestPlane()
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 4)
	p.apply(t, lb.State{Services: []lb.RoutedService{s}})
	before := slices.Clone(p.memory.Storage)
	many := testService(vip4, 81, lb.TCP, lb.Maglev, tables.MaxMembers+1)
	twice := testService(vip4, 81, lb.TCP, lb.Maglev, 2)
	twice.Backends[1] = twice.Backends[0]
	small := testService(vip4, 81, lb.TCP, lb.Maglev, 9)
	small.TableSize = 7
	changed := s
	changed.Backends = s.Backends[1:]
	changed.Paths = s.Paths[1:]
	for name, bad := range map[string]lb.RoutedService{"too many": many, "twice": twice, "small": small} {
		if _, err := p.Plan(lb.State{Services: []lb.RoutedService{changed, bad}}, 0, p.now); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if !slices.Equal(before, p.memory.Storage) || len(p.Records) != 1 || len(p.Places.Backends) != 4 ||
		len(p.Places.free) != 0 {
		t.Error("something has changed")
	}
	p.expect(t, 0)
}

// TestInPlaceOrder goes through every moment of a change in place, for every pair of
// flags: whenever a packet reads the block, and whenever after that the flags, and then the
// base, it finds a whole transition, of before or of after.
func TestInPlaceOrder(t *testing.T) {
	moved, base := uint16(objects.XDPServiceFlagSERVICE_MOVED), uint16(objects.XDPServiceFlagSERVICE_BASE)
	made := func(flags uint16, at uint32) objects.XDPService {
		s := objects.XDPService{TableSize: 61, Id: 7, Flags: flags, Current: objects.XDPBlock{Table: at, Members: at}}
		if flags&base != 0 {
			s.Base, s.BaseSize = objects.XDPBlock{Table: 1000 + at, Members: at}, 127
		}
		return s
	}
	for _, flags := range [][2]uint16{{0, moved | base}, {moved, moved | base}, {moved | base, moved}, {moved, 0},
		{moved | base, 0}, {moved | base, moved | base}} {
		before, after := made(flags[0], 100), made(flags[1], 200)
		steps := inPlace(&before, &after)
		// moments[i] is the service after i steps.
		moments := []objects.XDPService{before}
		for _, s := range steps {
			next := moments[len(moments)-1]
			mapmem.Storage(mapmem.WordsOf(&next)).Store(s.At, s.Word)
			moments = append(moments, next)
		}
		if last := moments[len(moments)-1]; last.Current != after.Current || last.Flags != after.Flags ||
			flags[1]&base != 0 && last.Base != after.Base {
			t.Fatalf("%b: it becomes %+v, not %+v", flags, last, after)
		}
		for i, block := range moments {
			for j, flag := range moments[i:] {
				whose := before
				if block.Current == after.Current {
					whose = after
				}
				if ends := whose.Flags == before.Flags && flag.Current == after.Current; !ends &&
					whose.Flags&moved != 0 && flag.Flags&moved == 0 {
					t.Errorf("%b: a packet with the block of step %d does not know at step %d that slots have moved",
						flags, i, i+j)
				}
				for k, then := range moments[i+j:] {
					if flag.Flags&base == 0 || flags[1]&base == 0 && then.Base == before.Base {
						continue
					}
					if then.BaseSize != 127 || then.Base.Table <= 1000 {
						t.Errorf("%b: told of a base at step %d, a packet finds %+v at step %d", flags, i+j,
							then, i+j+k)
					}
				}
			}
		}
	}
}

// TestModeFullNATHasItsOwnFlows: a flow's entry stays valid between all modes but fullnat, where an entry of another
// mode would lack a port, and whose own port another mode would take for a sequence number.
func TestModeFullNATHasItsOwnFlows(t *testing.T) {
	p, key := newTestPlane(), testService(vip4, 80, lb.TCP, lb.RoundRobin, 2).Key()
	pool := lb.Pool{Addresses: []netip.Addr{netip.MustParseAddr("198.18.0.9")}, FirstPort: 20000, LastPort: 20099}
	id := func(mode lb.Mode) uint32 {
		s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 2)
		s.Mode = mode
		p.apply(t, lb.State{Services: []lb.RoutedService{s}, Pool: pool})
		seen, found := p.memory.lookupAsPacket(key, 0)
		got := p.Places.Services[key]
		if !found || seen.service.Id != got {
			t.Errorf("packets see the id %d, and it is %d", seen.service.Id, got)
		}
		for id, s := range p.FlowServices {
			if s.Present != (uint32(id) == got) {
				t.Errorf("flows of id %d are good: %t, and the service in mode %s has %d", id, s.Present, mode, got)
			}
		}
		for index := range p.FlowBackends {
			if b := p.FlowBackends[index]; b.Generation != 0 && b.Service != got {
				t.Errorf("backend %d is of service %d, want %d", index, b.Service, got)
			}
		}
		return got
	}
	first := id(lb.L2DSR)
	if id(lb.NAT) != first {
		t.Error("the flows end with another mode")
	}
	full := id(lb.FullNAT)
	if full == first {
		t.Error("flows without a port go on in mode fullnat")
	}
	if again := id(lb.L2DSR); again == full {
		t.Error("flows of mode fullnat go on without it")
	}
}
