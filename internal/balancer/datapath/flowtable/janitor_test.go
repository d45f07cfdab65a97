// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// janitorRig is a janitor, and memory as the data plane has it.
type janitorRig struct {
	*Janitor
	input JanitorInput
	head  objects.XDPHead
}

// newJanitorRig has tables for so many flows. Backend b is of service b % 3; service 0
// and 1 are tracked, 1 is persistent, 2 is stateless, 3 is gone.
func newJanitorRig(limit uint32) *janitorRig {
	h := &janitorRig{Janitor: NewJanitor(lb.Timeouts{})}
	h.input = JanitorInput{Head: &h.head, Flows: NewTable(limit, 0x5eed), Newcomers: NewTable(limit/4, 0x5eed),
		Services: []Service{{Present: true, Tracked: true}, {Present: true, Tracked: true, Affinity: 90_000},
			{Present: true}, {}},
		Loads: make([]objects.XDPBackendLoad, 6), Turns: make([]objects.XDPTurn, 4)}
	for b := range 6 {
		h.input.Backends = append(h.input.Backends, Backend{Generation: 1, Service: uint32(b % 3)})
	}
	h.SetInput(h.input)
	return h
}

// rigFlow is a flow of a service's backend.
func rigFlow(n int, service, backend uint32) objects.XDPFlow {
	flow := objects.XDPFlow{Service: service, Backend: backend, Generation: 1, Port: uint16(n)}
	flow.Address[0] = uint32(n >> 16)
	return flow
}

// open plays a packet that begins a flow.
func (h *janitorRig) open(table *Table, flow objects.XDPFlow, state objects.XDPFlowState) bool {
	if !table.Insert(flow, state, atomic.LoadUint32(&h.head.Clock)) {
		return false
	}
	atomic.StoreUint32(&h.head.Remembered, 1)
	if IsLive(state) && h.input.Services[flow.Service&^AffinityKey].Tracked {
		atomic.AddUint32(&h.input.Loads[flow.Backend].Active, 1)
		atomic.AddUint32(&h.input.Turns[flow.Service&^AffinityKey].Active, 1)
	}
	return true
}

// active returns the counts of a backend and of a service.
func (h *janitorRig) active(backend, service uint32) [2]uint32 {
	return [2]uint32{h.input.Loads[backend].Active, h.input.Turns[service].Active}
}

// TestJanitorExpires: an entry goes when it has been silent for as long as its state
// allows, and is counted off once.
func TestJanitorExpires(t *testing.T) {
	d := lb.DefaultTimeouts
	cases := []struct {
		name    string
		state   objects.XDPFlowState
		timeout time.Duration
	}{
		{"opening", objects.XDPFlowStateFLOW_OPENING, d.Opening},
		{"seen", objects.XDPFlowStateFLOW_SEEN, d.Opening},
		{"first", objects.XDPFlowStateFLOW_FIRST, d.First},
		{"established", objects.XDPFlowStateFLOW_ESTABLISHED, d.Established},
		{"UDP", objects.XDPFlowStateFLOW_UDP, d.UDP},
		{"client's FIN", objects.XDPFlowStateFLOW_CLIENT_FIN, d.Fin},
		{"backend's FIN", objects.XDPFlowStateFLOW_BACKEND_FIN, d.Fin},
		{"closed", objects.XDPFlowStateFLOW_CLOSED, d.Closed},
		{"new affinity", objects.XDPFlowStateFLOW_AFFINITY_NEW, d.Opening},
		{"affinity", objects.XDPFlowStateFLOW_AFFINITY, 90 * time.Second},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := newJanitorRig(100)
			flow := rigFlow(i, 1, 4)
			if c.state >= objects.XDPFlowStateFLOW_AFFINITY_NEW {
				flow.Service |= AffinityKey
			}
			for _, table := range []*Table{h.input.Flows, h.input.Newcomers} {
				h.open(table, flow, c.state)
				before := h.active(4, 1)
				if want := map[bool]uint32{true: 1}[IsLive(c.state)]; before != [2]uint32{want, want} {
					t.Fatalf("%v are active, want %d", before, want)
				}
				h.Advance(c.timeout - time.Millisecond)
				if len(table.Places()) != 1 || h.FlowsOf()[1] != 1 {
					t.Fatalf("gone a millisecond too early")
				}
				h.Advance(time.Millisecond)
				if len(table.Places()) != 0 || len(h.FlowsOf()) != 0 {
					t.Errorf("still there after %v", c.timeout)
				}
				if h.active(4, 1) != [2]uint32{} {
					t.Errorf("%v are active after the last has gone", h.active(4, 1))
				}
				if wrongs := table.Check(); wrongs != "" {
					t.Error(wrongs)
				}
			}
		})
	}
}

// TestJanitorCountsHeldPorts: a flow of full NAT holds its port from its proof until it is over; a port that it gives
// up to a new flow does not count, in either table. Nothing is counted where no service is of full NAT.
func TestJanitorCountsHeldPorts(t *testing.T) {
	holds := map[objects.XDPFlowState]bool{
		objects.XDPFlowStateFLOW_SEEN: true, objects.XDPFlowStateFLOW_ESTABLISHED: true,
		objects.XDPFlowStateFLOW_CONTESTED: true, objects.XDPFlowStateFLOW_UDP: true,
		objects.XDPFlowStateFLOW_CLIENT_FIN: true, objects.XDPFlowStateFLOW_BACKEND_FIN: true,
	}
	for _, pooled := range []bool{false, true} {
		h := newJanitorRig(1000)
		if pooled {
			h.input.Returns = &ReturnTable{}
			h.SetInput(h.input)
		}
		want := uint32(0)
		for state := objects.XDPFlowStateFLOW_OPENING; state < objects.XDPFlowStateFLOW_AFFINITY_NEW; state++ {
			for i, table := range []*Table{h.input.Flows, h.input.Newcomers} {
				h.open(table, rigFlow(2*int(state)+i, 1, 4), state)
				if holds[state] && pooled {
					want++
				}
			}
			h.Advance(0)
			if got := h.Presence().Backends[4].Held; got != want {
				t.Errorf("with flows up to state %d, %d ports are held, want %d", state, got, want)
			}
		}
		h.open(h.input.Flows, rigFlow(99, 1|AffinityKey, 4), objects.XDPFlowStateFLOW_AFFINITY)
		h.Advance(0)
		if got := h.Presence().Backends; got[4].Held != want || got[1].Held != 0 {
			t.Errorf("with a client of no flow: %+v, want %d of backend 4", got, want)
		}
		h.Advance(lb.DefaultTimeouts.Established)
		if got := h.Presence().Backends[4].Held; got != 0 {
			t.Errorf("%d ports are held after all flows have been forgotten", got)
		}
	}
}

// TestJanitorKeepsWhatIsSeen: times that packets note count, also by the clock of another generation, which is ahead.
func TestJanitorKeepsWhatIsSeen(t *testing.T) {
	h := newJanitorRig(100)
	h.open(h.input.Flows, rigFlow(1, 0, 0), objects.XDPFlowStateFLOW_UDP)
	for range 10 {
		h.Advance(100 * time.Second)
		place := h.input.Flows.Places()
		if len(place) != 1 {
			t.Fatal("a flow that was seen is gone")
		}
		place[0].Bucket.Seen[place[0].At] = h.Now() + 50
	}
	// Nor does it matter that the clock wraps around.
	for half := range 2 {
		h.Advance(1<<31*time.Millisecond - time.Duration(h.Now())*time.Millisecond*time.Duration(1-half) -
			500*time.Millisecond)
	}
	h.open(h.input.Flows, rigFlow(2, 0, 0), objects.XDPFlowStateFLOW_ESTABLISHED)
	h.Advance(2 * time.Second)
	if n := len(h.input.Flows.Places()); n != 1 || h.head.Clock > 2000 {
		t.Errorf("%d flows after the clock went around to %d, want 1", n, h.head.Clock)
	}
}

// TestJanitorForgetsWhoLeft: entries of previous backends and services go at the next round, whatever their age, and
// are subtracted where they were counted.
func TestJanitorForgetsWhoLeft(t *testing.T) {
	h := newJanitorRig(100)
	for backend := range uint32(6) {
		h.open(h.input.Flows, rigFlow(int(backend), backend%3, backend), objects.XDPFlowStateFLOW_ESTABLISHED)
		h.open(h.input.Newcomers, rigFlow(int(100+backend), backend%3, backend), objects.XDPFlowStateFLOW_OPENING)
	}
	next := h.input
	next.Backends = append([]Backend(nil), h.input.Backends...)
	next.Backends[0].Generation = 2 // another owner
	next.Backends[4] = Backend{}    // none
	next.Services = append([]Service(nil), h.input.Services...)
	next.Services[2] = Service{}
	h.SetInput(next)
	h.Advance(0)
	for _, table := range []*Table{h.input.Flows, h.input.Newcomers} {
		left := map[uint32]bool{}
		for _, place := range table.Places() {
			flow := place.Flow()
			left[flow.Backend] = true
		}
		if want := map[uint32]bool{1: true, 3: true}; !maps.Equal(left, want) {
			t.Errorf("flows of backends %v are left, want %v", left, want)
		}
	}
	for backend, want := range []uint32{0, 2, 0, 2, 0, 0} {
		if got := h.input.Loads[backend].Active; got != want {
			t.Errorf("backend %d has %d active flows, want %d", backend, got, want)
		}
	}
	if want := map[uint32]uint64{0: 2, 1: 2}; !maps.Equal(h.FlowsOf(), want) {
		t.Errorf("flows by service %v, want %v", h.FlowsOf(), want)
	}
}

// TestJanitorCountsSockets: a round also counts the sockets of this host, those of removed services, too. Where they
// cannot be read, the numbers are those of the round before.
func TestJanitorCountsSockets(t *testing.T) {
	h := newJanitorRig(100)
	sockets, failure := map[uint32]uint32{0: 2, 3: 5}, error(nil)
	h.tallySockets = func(*ebpf.Map) (socketTally, error) { return socketTally{Services: sockets}, failure }
	expect := func(when string, want map[uint32]uint32) {
		t.Helper()
		h.Advance(0)
		if got := h.SocketsOf(); !maps.Equal(got, want) {
			t.Errorf("%s, sockets by service %v, want %v", when, got, want)
		}
	}
	expect("without programs at sockets", nil)
	h.input.Sockets = new(ebpf.Map)
	h.SetInput(h.input)
	expect("after a round", sockets)
	before := sockets
	sockets, failure = nil, errors.New("no memory")
	expect("where they cannot be read", before)
	failure = nil
	expect("after they were closed", nil)
}

// TestJanitorCountsAnew: when a service begins to be tracked its flows count, and when
// it ceases to be they do not.
func TestJanitorCountsAnew(t *testing.T) {
	h := newJanitorRig(100)
	for n := range 30 {
		backend := uint32(n % 6)
		h.open(h.input.Flows, rigFlow(n, backend%3, backend), objects.XDPFlowStateFLOW_ESTABLISHED)
	}
	next := h.input
	next.Services = append([]Service(nil), h.input.Services...)
	next.Services[0].Tracked, next.Services[2].Tracked = false, true
	h.input.Turns[2].Fewest = 1
	h.SetInput(next)
	if got := h.input.Turns[2].Fewest; got != 0 {
		t.Errorf("counted anew, the fewest flows of a backend are %d, want 0", got)
	}
	for backend, want := range []uint32{0, 5, 5, 0, 5, 5} {
		if got := h.input.Loads[backend].Active; got != want {
			t.Errorf("backend %d has %d active flows, want %d", backend, got, want)
		}
	}
	for service, want := range []uint32{0, 10, 10} {
		if got := h.input.Turns[service].Active; got != want {
			t.Errorf("service %d has %d active flows, want %d", service, got, want)
		}
	}
	h.input = next
	h.Advance(lb.DefaultTimeouts.Established)
	for backend := range h.input.Loads {
		if got := h.input.Loads[backend].Active; got != 0 {
			t.Errorf("backend %d has %d active flows when all have gone", backend, got)
		}
	}
}

// TestJanitorPutsCountsRight: impossible counts are corrected at once, wrong ones when nothing moves, and right ones
// never.
func TestJanitorPutsCountsRight(t *testing.T) {
	h := newJanitorRig(100)
	for n := range 10 {
		h.open(h.input.Flows, rigFlow(n, 0, 0), objects.XDPFlowStateFLOW_ESTABLISHED)
	}
	for range 2 * stillRounds {
		h.Advance(time.Second)
	}
	if h.Drift.Corrected != 0 {
		t.Fatalf("%d counts that were right were changed", h.Drift.Corrected)
	}
	h.input.Loads[3].Active--
	h.input.Loads[0].Active += 2
	h.input.Turns[0].Fewest = 12
	for range stillRounds - 1 {
		h.Advance(time.Second)
	}
	if got := h.input.Loads[3].Active; got != 0 {
		t.Errorf("a count below 0 became %d", got)
	}
	if got := h.input.Loads[0].Active; got != 12 {
		t.Errorf("%d are active: changed though packets may have been on their way", got)
	}
	h.Advance(time.Second)
	if got := h.active(0, 0); got != [2]uint32{10, 10} {
		t.Errorf("%v are active, want 10", got)
	}
	if got := h.input.Turns[0].Fewest; got > 10 {
		t.Errorf("a backend has 10 flows, and the fewest flows of a backend are %d", got)
	}
}

// TestJanitorRests: the janitor does not walk over empty tables until a packet has put something in; rounds go on,
// because others count by them.
func TestJanitorRests(t *testing.T) {
	h := newJanitorRig(10000)
	now := time.Hour
	rounds := func(n int) (ended int) {
		for range n * int(flowsEvery/StepEvery) {
			if h.Step(now) {
				ended++
			}
			now += StepEvery
		}
		return ended
	}
	if got := rounds(3); got != 3 {
		t.Errorf("%d rounds of 3 over empty tables", got)
	}
	// Only a packet inserts flows; here one does so without setting the flag.
	h.input.Flows.Insert(rigFlow(1, 2, 2), objects.XDPFlowStateFLOW_ESTABLISHED, h.head.Clock)
	if got := rounds(2); got != 2 || h.FlowsOf()[2] != 0 {
		t.Errorf("%d rounds of 2, and %d flows were met: the janitor has walked", got, h.FlowsOf()[2])
	}
	h.open(h.input.Newcomers, rigFlow(2, 2, 2), objects.XDPFlowStateFLOW_OPENING)
	if rounds(2); h.FlowsOf()[2] != 2 || h.head.Remembered != 0 {
		t.Errorf("%d flows were met, want 2", h.FlowsOf()[2])
	}
	h.Advance(lb.DefaultTimeouts.Established)
	if n := len(h.input.Flows.Places()) + len(h.input.Newcomers.Places()); n != 0 {
		t.Errorf("%d flows are left", n)
	}
	// A change of the input may bring flows along.
	rounds(3)
	h.input.Flows.Insert(rigFlow(1, 2, 2), objects.XDPFlowStateFLOW_ESTABLISHED, h.head.Clock)
	h.SetInput(h.input)
	if rounds(2); h.FlowsOf()[2] != 1 {
		t.Errorf("%d flows were met after a change, want 1", h.FlowsOf()[2])
	}
}

// TestJanitorSteps: the clock follows the time, except for the time in which a process was held up, and a round takes
// its time.
func TestJanitorSteps(t *testing.T) {
	h := newJanitorRig(10000)
	h.open(h.input.Flows, rigFlow(1, 0, 0), objects.XDPFlowStateFLOW_ESTABLISHED)
	now, start, rounds := time.Hour, h.Now(), 0
	for range 100 {
		if h.Step(now) {
			rounds++
		}
		now += StepEvery
	}
	if got, want := h.head.Clock-start, uint32(99*StepEvery.Milliseconds()); got != want || h.Now() != h.head.Clock {
		t.Errorf("the clock went on by %d ms, want %d", got, want)
	}
	if want := int(100 * StepEvery / flowsEvery); rounds != want || h.FlowsOf()[0] != 1 {
		t.Errorf("%d rounds, want %d", rounds, want)
	}
	start = h.head.Clock
	h.Step(now + 3*time.Hour)
	if got := h.head.Clock - start; got != uint32(maxStep.Milliseconds()) {
		t.Errorf("after a stall the clock went on by %d ms", got)
	}
	h.Step(now)
	if got := h.head.Clock - start; got != uint32(maxStep.Milliseconds()) {
		t.Errorf("the clock went back, or on, when time did: by %d ms", got)
	}
	if len(h.input.Flows.Places()) != 1 {
		t.Error("a stall has aged a flow")
	}
}

// TestJanitorAmongPackets: several goroutines open, prove and end flows as CPUs do, some
// of them the same ones, while the janitor walks and time flies. In the end nothing is
// left, no place is lost, and all counts are 0.
func TestJanitorAmongPackets(t *testing.T) {
	const workers, epochs, packets, window = 4, 200, 100, 40
	h := newJanitorRig(epochs * window / 3) // too small: some find no room
	expired := 0
	for epoch := range epochs {
		var group sync.WaitGroup
		for worker := range workers {
			group.Go(func() {
				random := rand.New(rand.NewPCG(uint64(epoch), uint64(worker)))
				for range packets {
					// A flow has packets in two epochs, and is then silent permanently.
					n := epoch*window + random.IntN(2*window)
					h.packet(rigFlow(n, uint32(n%3), uint32(n%6)), random.IntN(8) == 0)
				}
			})
		}
		h.Advance(lb.DefaultTimeouts.Opening / 7)
		group.Wait()
		expired += int(h.Newcomers.Last.Expired)
	}
	if expired == 0 {
		t.Error("no flow has expired among the packets")
	}
	if n := h.Drift.Corrected; n != 0 {
		t.Errorf("%d counts were wrong in between", n)
	}
	h.Advance(lb.DefaultTimeouts.Established)
	for _, table := range []*Table{h.input.Flows, h.input.Newcomers} {
		if n, wrongs := len(table.Places()), table.Check(); n != 0 || wrongs != "" {
			t.Errorf("%d flows are left: %s", n, wrongs)
		}
	}
	for i := range h.input.Loads {
		if got := h.input.Loads[i].Active; got != 0 {
			t.Errorf("backend %d has %d active flows", i, int32(got))
		}
	}
	for i := range h.input.Turns {
		if got := h.input.Turns[i].Active; got != 0 {
			t.Errorf("service %d has %d active flows", i, int32(got))
		}
	}
}

// packet plays bpf/balancer/flow/track.h for a packet of a client.
func (h *janitorRig) packet(flow objects.XDPFlow, ends bool) {
	place, proven := h.input.Flows.Find(&flow)
	if !proven {
		var found bool
		if place, found = h.input.Newcomers.Find(&flow); !found {
			h.open(h.input.Newcomers, flow, objects.XDPFlowStateFLOW_OPENING)
			return
		}
	}
	state, tag := place.State(), place.Tag()
	atomic.StoreUint32(&place.Bucket.Seen[place.At], atomic.LoadUint32(&h.head.Clock))
	switch {
	case IsLive(state) && ends:
		if place.SetState(state, objects.XDPFlowStateFLOW_CLIENT_FIN) {
			h.Rules.subtract(&flow, state)
		}
	case state == objects.XDPFlowStateFLOW_OPENING && place.SetState(state, objects.XDPFlowStateFLOW_ESTABLISHED):
		if h.input.Flows.Insert(flow, objects.XDPFlowStateFLOW_ESTABLISHED, place.Seen()) &&
			place.SetState(objects.XDPFlowStateFLOW_ESTABLISHED, objects.XDPFlowStateFLOW_FREE) {
			h.input.Newcomers.Release(place, tag, always)
		}
	}
}
