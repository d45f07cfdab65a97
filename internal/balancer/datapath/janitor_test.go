// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// testHouse is a janitor, and memory as the data plane has it.
type testHouse struct {
	*janitor
	scene flowScene
	head  objects.XDPHead
}

// newTestHouse has tables for so many flows. Backend b is of service b % 3; service 0
// and 1 are tracked, 1 is persistent, 2 is stateless, 3 is gone.
func newTestHouse(limit uint32) *testHouse {
	h := &testHouse{janitor: newJanitor(lb.Timeouts{})}
	h.scene = flowScene{head: &h.head, flows: testTable(limit), newcomers: testTable(limit / 4),
		services: []flowService{{present: true, tracked: true}, {present: true, tracked: true, affinity: 90_000}, {present: true}, {}},
		loads:    make([]objects.XDPBackendLoad, 6), turns: make([]objects.XDPTurn, 4)}
	for b := range 6 {
		h.scene.backends = append(h.scene.backends, flowBackend{generation: 1, service: uint32(b % 3)})
	}
	h.use(h.scene)
	return h
}

// houseFlow is a flow of a service's backend.
func houseFlow(n int, service, backend uint32) objects.XDPFlow {
	flow := objects.XDPFlow{Service: service, Backend: backend, Generation: 1, Port: uint16(n)}
	flow.Address[0] = uint32(n >> 16)
	return flow
}

// open does what a packet does that begins a flow.
func (h *testHouse) open(table *flowTable, flow objects.XDPFlow, state objects.XDPFlowState) bool {
	if !table.insert(flow, state, atomic.LoadUint32(&h.head.Clock)) {
		return false
	}
	atomic.StoreUint32(&h.head.Remembered, 1)
	if isLive(state) && h.scene.services[flow.Service&^affinityKey].tracked {
		atomic.AddUint32(&h.scene.loads[flow.Backend].Active, 1)
		atomic.AddUint32(&h.scene.turns[flow.Service&^affinityKey].Active, 1)
	}
	return true
}

// active returns the counts of a backend and of a service.
func (h *testHouse) active(backend, service uint32) [2]uint32 {
	return [2]uint32{h.scene.loads[backend].Active, h.scene.turns[service].Active}
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
			h := newTestHouse(100)
			flow := houseFlow(i, 1, 4)
			if c.state >= objects.XDPFlowStateFLOW_AFFINITY_NEW {
				flow.Service |= affinityKey
			}
			for _, table := range []*flowTable{h.scene.flows, h.scene.newcomers} {
				h.open(table, flow, c.state)
				before := h.active(4, 1)
				if want := map[bool]uint32{true: 1}[isLive(c.state)]; before != [2]uint32{want, want} {
					t.Fatalf("%v are active, want %d", before, want)
				}
				h.pass(c.timeout - time.Millisecond)
				if len(table.places()) != 1 || h.flowsOf()[1] != 1 {
					t.Fatalf("gone a millisecond too early")
				}
				h.pass(time.Millisecond)
				if len(table.places()) != 0 || len(h.flowsOf()) != 0 {
					t.Errorf("still there after %v", c.timeout)
				}
				if h.active(4, 1) != [2]uint32{} {
					t.Errorf("%v are active after the last has gone", h.active(4, 1))
				}
				if wrongs := table.wrongs(); wrongs != "" {
					t.Error(wrongs)
				}
			}
		})
	}
}

// TestJanitorCountsHeldPorts: a flow of full NAT holds its port from when it is proven until
// it is over; what it gives up to a new flow does not count, in either table. Nothing is
// counted where no service is of full NAT.
func TestJanitorCountsHeldPorts(t *testing.T) {
	holds := map[objects.XDPFlowState]bool{
		objects.XDPFlowStateFLOW_SEEN: true, objects.XDPFlowStateFLOW_ESTABLISHED: true, objects.XDPFlowStateFLOW_CONTESTED: true, objects.XDPFlowStateFLOW_UDP: true,
		objects.XDPFlowStateFLOW_CLIENT_FIN: true, objects.XDPFlowStateFLOW_BACKEND_FIN: true,
	}
	for _, pooled := range []bool{false, true} {
		h := newTestHouse(1000)
		if pooled {
			h.scene.returns = &returnTable{}
			h.use(h.scene)
		}
		want := uint32(0)
		for state := objects.XDPFlowStateFLOW_OPENING; state < objects.XDPFlowStateFLOW_AFFINITY_NEW; state++ {
			for i, table := range []*flowTable{h.scene.flows, h.scene.newcomers} {
				h.open(table, houseFlow(2*int(state)+i, 1, 4), state)
				if holds[state] && pooled {
					want++
				}
			}
			h.pass(0)
			if got := h.met().backends[4].held; got != want {
				t.Errorf("with flows up to state %d, %d ports are held, want %d", state, got, want)
			}
		}
		h.open(h.scene.flows, houseFlow(99, 1|affinityKey, 4), objects.XDPFlowStateFLOW_AFFINITY)
		h.pass(0)
		if got := h.met().backends; got[4].held != want || got[1].held != 0 {
			t.Errorf("with a client of no flow: %+v, want %d of backend 4", got, want)
		}
		h.pass(lb.DefaultTimeouts.Established)
		if got := h.met().backends[4].held; got != 0 {
			t.Errorf("%d ports are held after all flows have been forgotten", got)
		}
	}
}

// TestJanitorKeepsWhatIsSeen: what packets note counts, also if they note it by the clock
// of another generation, which is ahead.
func TestJanitorKeepsWhatIsSeen(t *testing.T) {
	h := newTestHouse(100)
	h.open(h.scene.flows, houseFlow(1, 0, 0), objects.XDPFlowStateFLOW_UDP)
	for range 10 {
		h.pass(100 * time.Second)
		place := h.scene.flows.places()
		if len(place) != 1 {
			t.Fatal("a flow that was seen is gone")
		}
		place[0].bucket.Seen[place[0].at] = h.now() + 50
	}
	// Nor does it matter that the clock wraps around.
	for half := range 2 {
		h.pass(1<<31*time.Millisecond - time.Duration(h.now())*time.Millisecond*time.Duration(1-half) - 500*time.Millisecond)
	}
	h.open(h.scene.flows, houseFlow(2, 0, 0), objects.XDPFlowStateFLOW_ESTABLISHED)
	h.pass(2 * time.Second)
	if n := len(h.scene.flows.places()); n != 1 || h.head.Clock > 2000 {
		t.Errorf("%d flows after the clock went around to %d, want 1", n, h.head.Clock)
	}
}

// TestJanitorForgetsWhoLeft: entries of former backends and services go at the next
// round, whatever their age, and are counted off where they were counted.
func TestJanitorForgetsWhoLeft(t *testing.T) {
	h := newTestHouse(100)
	for backend := range uint32(6) {
		h.open(h.scene.flows, houseFlow(int(backend), backend%3, backend), objects.XDPFlowStateFLOW_ESTABLISHED)
		h.open(h.scene.newcomers, houseFlow(int(100+backend), backend%3, backend), objects.XDPFlowStateFLOW_OPENING)
	}
	next := h.scene
	next.backends = append([]flowBackend(nil), h.scene.backends...)
	next.backends[0].generation = 2  // another owner
	next.backends[4] = flowBackend{} // none
	next.services = append([]flowService(nil), h.scene.services...)
	next.services[2] = flowService{}
	h.use(next)
	h.pass(0)
	for _, table := range []*flowTable{h.scene.flows, h.scene.newcomers} {
		left := map[uint32]bool{}
		for _, place := range table.places() {
			flow := place.flow()
			left[flow.Backend] = true
		}
		if want := map[uint32]bool{1: true, 3: true}; !maps.Equal(left, want) {
			t.Errorf("flows of backends %v are left, want %v", left, want)
		}
	}
	for backend, want := range []uint32{0, 2, 0, 2, 0, 0} {
		if got := h.scene.loads[backend].Active; got != want {
			t.Errorf("backend %d has %d active flows, want %d", backend, got, want)
		}
	}
	if want := map[uint32]uint64{0: 2, 1: 2}; !maps.Equal(h.flowsOf(), want) {
		t.Errorf("flows by service %v, want %v", h.flowsOf(), want)
	}
}

// TestJanitorCountsAnew: when a service begins to be tracked its flows count, and when
// it ceases to be they do not.
func TestJanitorCountsAnew(t *testing.T) {
	h := newTestHouse(100)
	for n := range 30 {
		backend := uint32(n % 6)
		h.open(h.scene.flows, houseFlow(n, backend%3, backend), objects.XDPFlowStateFLOW_ESTABLISHED)
	}
	next := h.scene
	next.services = append([]flowService(nil), h.scene.services...)
	next.services[0].tracked, next.services[2].tracked = false, true
	h.scene.turns[2].Fewest = 1
	h.use(next)
	if got := h.scene.turns[2].Fewest; got != 0 {
		t.Errorf("counted anew, the fewest flows of a backend are %d, want 0", got)
	}
	for backend, want := range []uint32{0, 5, 5, 0, 5, 5} {
		if got := h.scene.loads[backend].Active; got != want {
			t.Errorf("backend %d has %d active flows, want %d", backend, got, want)
		}
	}
	for service, want := range []uint32{0, 10, 10} {
		if got := h.scene.turns[service].Active; got != want {
			t.Errorf("service %d has %d active flows, want %d", service, got, want)
		}
	}
	h.scene = next
	h.pass(lb.DefaultTimeouts.Established)
	for backend := range h.scene.loads {
		if got := h.scene.loads[backend].Active; got != 0 {
			t.Errorf("backend %d has %d active flows when all have gone", backend, got)
		}
	}
}

// TestJanitorPutsCountsRight: what is impossible at once, what is wrong when nothing
// moves; and what is right, never.
func TestJanitorPutsCountsRight(t *testing.T) {
	h := newTestHouse(100)
	for n := range 10 {
		h.open(h.scene.flows, houseFlow(n, 0, 0), objects.XDPFlowStateFLOW_ESTABLISHED)
	}
	for range 2 * stillRounds {
		h.pass(time.Second)
	}
	if h.drift.corrected != 0 {
		t.Fatalf("%d counts that were right were changed", h.drift.corrected)
	}
	h.scene.loads[3].Active--
	h.scene.loads[0].Active += 2
	h.scene.turns[0].Fewest = 12
	for range stillRounds - 1 {
		h.pass(time.Second)
	}
	if got := h.scene.loads[3].Active; got != 0 {
		t.Errorf("a count below 0 became %d", got)
	}
	if got := h.scene.loads[0].Active; got != 12 {
		t.Errorf("%d are active: changed though packets may have been on their way", got)
	}
	h.pass(time.Second)
	if got := h.active(0, 0); got != [2]uint32{10, 10} {
		t.Errorf("%v are active, want 10", got)
	}
	if got := h.scene.turns[0].Fewest; got > 10 {
		t.Errorf("a backend has 10 flows, and the fewest flows of a backend are %d", got)
	}
}

// TestJanitorRests: the janitor does not walk over empty tables until a packet has put
// something in; rounds go on, for others count by them.
func TestJanitorRests(t *testing.T) {
	h := newTestHouse(10000)
	now := time.Hour
	rounds := func(n int) (ended int) {
		for range n * int(flowsEvery/stepEvery) {
			if h.step(now) {
				ended++
			}
			now += stepEvery
		}
		return ended
	}
	if got := rounds(3); got != 3 {
		t.Errorf("%d rounds of 3 over empty tables", got)
	}
	// What only a packet can do, here without telling.
	h.scene.flows.insert(houseFlow(1, 2, 2), objects.XDPFlowStateFLOW_ESTABLISHED, h.head.Clock)
	if got := rounds(2); got != 2 || h.flowsOf()[2] != 0 {
		t.Errorf("%d rounds of 2, and %d flows were met: the janitor has walked", got, h.flowsOf()[2])
	}
	h.open(h.scene.newcomers, houseFlow(2, 2, 2), objects.XDPFlowStateFLOW_OPENING)
	if rounds(2); h.flowsOf()[2] != 2 || h.head.Remembered != 0 {
		t.Errorf("%d flows were met, want 2", h.flowsOf()[2])
	}
	h.pass(lb.DefaultTimeouts.Established)
	if n := len(h.scene.flows.places()) + len(h.scene.newcomers.places()); n != 0 {
		t.Errorf("%d flows are left", n)
	}
	// A change of the scene may bring flows along.
	rounds(3)
	h.scene.flows.insert(houseFlow(1, 2, 2), objects.XDPFlowStateFLOW_ESTABLISHED, h.head.Clock)
	h.use(h.scene)
	if rounds(2); h.flowsOf()[2] != 1 {
		t.Errorf("%d flows were met after a change, want 1", h.flowsOf()[2])
	}
}

// TestJanitorSteps: the clock follows the time, but for what a process that was held up
// has missed, and a round takes its time.
func TestJanitorSteps(t *testing.T) {
	h := newTestHouse(10000)
	h.open(h.scene.flows, houseFlow(1, 0, 0), objects.XDPFlowStateFLOW_ESTABLISHED)
	now, start, rounds := time.Hour, h.now(), 0
	for range 100 {
		if h.step(now) {
			rounds++
		}
		now += stepEvery
	}
	if got, want := h.head.Clock-start, uint32(99*stepEvery.Milliseconds()); got != want || h.now() != h.head.Clock {
		t.Errorf("the clock went on by %d ms, want %d", got, want)
	}
	if want := int(100 * stepEvery / flowsEvery); rounds != want || h.flowsOf()[0] != 1 {
		t.Errorf("%d rounds, want %d", rounds, want)
	}
	start = h.head.Clock
	h.step(now + 3*time.Hour)
	if got := h.head.Clock - start; got != uint32(longestStep.Milliseconds()) {
		t.Errorf("after a stall the clock went on by %d ms", got)
	}
	h.step(now)
	if got := h.head.Clock - start; got != uint32(longestStep.Milliseconds()) {
		t.Errorf("the clock went back, or on, when time did: by %d ms", got)
	}
	if len(h.scene.flows.places()) != 1 {
		t.Error("a stall has aged a flow")
	}
}

// TestJanitorAmongPackets: several goroutines open, prove and end flows as CPUs do, some
// of them the same ones, while the janitor walks and time flies. In the end nothing is
// left, no place is lost, and all counts are 0.
func TestJanitorAmongPackets(t *testing.T) {
	const workers, epochs, packets, window = 4, 200, 100, 40
	h := newTestHouse(epochs * window / 3) // too small: some find no room
	expired := 0
	for epoch := range epochs {
		var group sync.WaitGroup
		for worker := range workers {
			group.Go(func() {
				random := rand.New(rand.NewPCG(uint64(epoch), uint64(worker)))
				for range packets {
					// A flow has packets in two epochs, and is then silent for good.
					n := epoch*window + random.IntN(2*window)
					h.packet(houseFlow(n, uint32(n%3), uint32(n%6)), random.IntN(8) == 0)
				}
			})
		}
		h.pass(lb.DefaultTimeouts.Opening / 7)
		group.Wait()
		expired += int(h.newcomers.last.expired)
	}
	if expired == 0 {
		t.Error("no flow has expired among the packets")
	}
	if n := h.drift.corrected; n != 0 {
		t.Errorf("%d counts were wrong in between", n)
	}
	h.pass(lb.DefaultTimeouts.Established)
	for _, table := range []*flowTable{h.scene.flows, h.scene.newcomers} {
		if n, wrongs := len(table.places()), table.wrongs(); n != 0 || wrongs != "" {
			t.Errorf("%d flows are left: %s", n, wrongs)
		}
	}
	for i := range h.scene.loads {
		if got := h.scene.loads[i].Active; got != 0 {
			t.Errorf("backend %d has %d active flows", i, int32(got))
		}
	}
	for i := range h.scene.turns {
		if got := h.scene.turns[i].Active; got != 0 {
			t.Errorf("service %d has %d active flows", i, int32(got))
		}
	}
}

// packet does what bpf/balancer/flow/track.h does with a packet of a client.
func (h *testHouse) packet(flow objects.XDPFlow, ends bool) {
	place, proven := h.scene.flows.find(&flow)
	if !proven {
		var found bool
		if place, found = h.scene.newcomers.find(&flow); !found {
			h.open(h.scene.newcomers, flow, objects.XDPFlowStateFLOW_OPENING)
			return
		}
	}
	state, tag := place.state(), place.tag()
	atomic.StoreUint32(&place.bucket.Seen[place.at], atomic.LoadUint32(&h.head.Clock))
	switch {
	case isLive(state) && ends:
		if place.change(state, objects.XDPFlowStateFLOW_CLIENT_FIN) {
			h.rules.countOff(&flow, state)
		}
	case state == objects.XDPFlowStateFLOW_OPENING && place.change(state, objects.XDPFlowStateFLOW_ESTABLISHED):
		if h.scene.flows.insert(flow, objects.XDPFlowStateFLOW_ESTABLISHED, place.seen()) && place.change(objects.XDPFlowStateFLOW_ESTABLISHED, objects.XDPFlowStateFLOW_FREE) {
			h.scene.newcomers.release(place, tag, always)
		}
	}
}
