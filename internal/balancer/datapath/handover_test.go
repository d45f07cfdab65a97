// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowsync"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// Several balancers in one process: packets of a flow reach one, and then another.

// peer is one of them.
type peer struct {
	*Datapath
	t *testing.T
}

// newPeer returns one that has just started, with those services.
func newPeer(t *testing.T, services ...lb.RoutedService) peer {
	t.Helper()
	testenv.Root(t)
	d := NewDetached(Options{Hook: lb.HookXDP, TableSize: testTableSize, FlowLimit: 5000, UnprovenLimit: 5000},
		balancerMAC)
	t.Cleanup(func() { d.Close() })
	m := peer{d, t}
	m.apply(services...)
	return m
}

// newPeerOfOnePort returns one whose pool of full NAT has one port.
func newPeerOfOnePort(t *testing.T, services ...lb.RoutedService) peer {
	t.Helper()
	m := newPeer(t)
	m.applyWith(lb.Pool{Addresses: []netip.Addr{netip.MustParseAddr("198.18.0.77")}, FirstPort: 20000, LastPort: 20000},
		services...)
	return m
}

// restartProcess plays the next process, which does not know which flows were sent, after an absence.
func (m peer) restartProcess(absent time.Duration) {
	m.janitor.Resume(m.janitor.Now(), absent)
	flowsync.ForgetSent(m.Exchange)
}

func (m peer) apply(services ...lb.RoutedService) {
	m.t.Helper()
	m.applyWith(lb.Pool{Addresses: []netip.Addr{netip.MustParseAddr("198.18.0.77")}, FirstPort: 20000, LastPort: 20999},
		services...)
}

func (m peer) applyWith(pool lb.Pool, services ...lb.RoutedService) {
	m.t.Helper()
	if err := m.Apply(lb.State{Services: services, Pool: pool}); err != nil {
		m.t.Fatal(err)
	}
}

// send sends packets of a client's port, and returns the frame that the last one became.
func (m peer) send(port int, flags ...string) string {
	m.t.Helper()
	var frame []byte
	for _, f := range flags {
		_, out, err := m.Program().Test(with(web4(), func(p *packetSpec) {
			p.sport, p.flags = uint16(port), f
		}).build(m.t))
		if err != nil {
			m.t.Fatal(err)
		}
		frame = out
	}
	return fmt.Sprintf("%x", frame[:6])
}

// changed returns the flows that have changed since it was called last.
func (m peer) changed() (flows []lb.Flow) {
	m.t.Helper()
	for whole := false; !whole; {
		var err error
		if whole, err = m.ChangedFlows(100, func(f *lb.Flow) { flows = append(flows, *f) }); err != nil {
			m.t.Fatal(err)
		}
	}
	return flows
}

// snapshot returns all flows that another balancer is to know.
func (m peer) snapshot() (flows []lb.Flow) {
	m.t.Helper()
	walk := m.SnapshotFlows()
	for whole := false; !whole; {
		var err error
		if whole, err = walk.Next(100, func(f *lb.Flow) { flows = append(flows, *f) }); err != nil {
			m.t.Fatal(err)
		}
	}
	return flows
}

// take takes flows, and expects this result.
func (m peer) take(flows []lb.Flow, want mergeResult) {
	m.t.Helper()
	if want.Refused == nil {
		want.Refused = map[string]int{}
	}
	got, err := m.MergeFlows(flows)
	if err != nil {
		m.t.Fatal(err)
	}
	got.Missed = want.Missed // by the reason
	if diff := cmp.Diff(want, got); diff != "" {
		m.t.Errorf("of %d flows (-want +got):\n%s", len(flows), diff)
	}
}

// activeOf returns how many flows the service counts.
func (m peer) activeOf(s *lb.RoutedService) uint32 {
	return mapmem.ElementsOf[objects.XDPTurn](m.shared.Turn(m.register.ByKey[s.Key()].ID))[0].Active
}

const handedFlows = 40

// TestFlowGoesOnElsewhere: a flow that was proven at one balancer goes on at another, by a scheduler that tracks flows;
// without being told of them, that one sends some of them elsewhere.
func TestFlowGoesOnElsewhere(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)
	a, told, untold := newPeer(t, s), newPeer(t, s), newPeer(t, s)
	at, astray := map[int]string{}, 0
	for port := 1000; port < 1000+handedFlows; port++ {
		at[port] = a.send(port, "S", "A")
	}
	a.send(3000, "S") // may be forged
	flows := a.changed()
	told.take(flows, mergeResult{New: handedFlows})
	told.take(flows, mergeResult{Known: handedFlows})
	for port, backend := range at {
		if got := told.send(port, "A"); got != backend {
			t.Errorf("port %d goes to %s, and went to %s", port, got, backend)
		}
		if untold.send(port, "A") != backend {
			astray++
		}
	}
	if astray == 0 {
		t.Error("without being told of any flow, a balancer has sent each to its backend: the test shows nothing")
	}
	if got := told.activeOf(&s); got != handedFlows {
		t.Errorf("%d flows are active, want %d", got, handedFlows)
	}
	// A flow that came from another balancer is not sent back to it, and an unchanged one is not sent at all.
	if again, back := a.changed(), told.changed(); len(again)+len(back) != 0 {
		t.Errorf("told again: %v, and back: %v", again, back)
	}
	// A balancer that joins hears of it, also from one that was told.
	third := newPeer(t, s)
	third.take(told.snapshot(), mergeResult{New: handedFlows})
	// An end is news, and counts once.
	told.send(1000, "FA")
	ended := told.changed()
	if len(ended) != 1 || ended[0].State != lb.FlowClientFIN {
		t.Fatalf("after a FIN: %v", ended)
	}
	a.take(ended, mergeResult{Known: 1})
	a.take(ended, mergeResult{Known: 1})
	if got := a.activeOf(&s); got != handedFlows {
		t.Errorf("%d flows are active, want %d and the one that may be forged", got, handedFlows-1)
	}
}

// TestFlowThatGoesOnIsToldAgain: a balancer that sees no packet of a flow would forget it.
func TestFlowThatGoesOnIsToldAgain(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)
	a, b := newPeer(t, s), newPeer(t, s)
	a.send(1000, "S", "A")
	b.take(a.changed(), mergeResult{New: 1})
	for range 6 {
		a.janitor.Advance(time.Hour)
		b.janitor.Advance(time.Hour)
		a.send(1000, "A")
		flows := a.changed()
		if len(flows) != 1 {
			t.Fatalf("after an hour: %v", flows)
		}
		b.take(flows, mergeResult{Known: 1})
	}
}

// TestPortThatIsUsedAgainElsewhere: the client of a flow that came from another balancer has another connection there.
func TestPortThatIsUsedAgainElsewhere(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)
	a, b := newPeer(t, s), newPeer(t, s)
	a.send(1000, "S", "A")
	flows := a.changed()
	b.take(flows, mergeResult{New: 1})
	other := flows[0]
	for _, backend := range s.Backends {
		if key := s.BackendKey(backend); key != flows[0].Backend {
			other.Backend = key
		}
	}
	b.janitor.Advance(10 * time.Second)
	b.take([]lb.Flow{other}, mergeResult{New: 1})
	if got := b.activeOf(&s); got != 1 {
		t.Errorf("%d flows are active, want 1", got)
	}
	// A flow of b's own stays, unless the other one was seen later by so much that nothing but a later connection
	// explains it.
	b.send(1001, "S", "A")
	mine := b.changed()
	strange := mine[len(mine)-1]
	if strange.Backend == flows[0].Backend {
		strange.Backend = other.Backend
	} else {
		strange.Backend = flows[0].Backend
	}
	known := mergeResult{Refused: map[string]int{flowsync.RefusedKnown: 1}}
	b.janitor.Advance(flowsync.MinLateness - time.Second)
	b.take([]lb.Flow{strange}, known)
	b.janitor.Advance(time.Minute)
	late := strange
	late.Silent = time.Minute // its balancer has told it when it had waited for so long
	b.take([]lb.Flow{late}, known)
	b.take([]lb.Flow{strange}, mergeResult{New: 1})
}

// TestNextConnectionIsToldBySYN: within the delay that messages may have, sequence numbers say which of two connections
// of a port is the later one; the end of the one before does not end it.
func TestNextConnectionIsToldBySYN(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 2)
	a, b := newPeer(t, s), newPeer(t, s)
	syn := func(m peer, sequence uint32) lb.Flow {
		for _, p := range []packetSpec{{flags: "S", seq: sequence}, {flags: "A", seq: sequence + 1}} {
			p.from, p.at, p.sport, p.dport = client4, vip4, 1000, 80
			m.run(p)
		}
		flows := m.changed()
		return flows[len(flows)-1]
	}
	first := syn(b, 1000)
	a.take([]lb.Flow{first}, mergeResult{New: 1})
	a.janitor.Advance(10 * time.Second)
	a.send(1000, "R")
	ended := a.changed()[0]
	next := first
	for _, backend := range s.Backends {
		if key := s.BackendKey(backend); key != first.Backend {
			next.Backend = key
		}
	}
	b.janitor.Advance(time.Second)
	known := mergeResult{Refused: map[string]int{flowsync.RefusedKnown: 1}}
	for _, older := range []uint32{0, 999, 1<<31 + 5000} {
		next.SYN = older
		b.take([]lb.Flow{next}, known)
	}
	next.SYN = 2000
	b.take([]lb.Flow{next}, mergeResult{New: 1})
	// Once more, to the same backend, and with the end of the one before after it.
	b.janitor.Advance(time.Second)
	again := next
	again.SYN = 3000
	b.take([]lb.Flow{again}, mergeResult{Known: 1})
	late := next
	late.State, late.Silent = lb.FlowClosed, time.Second
	b.take([]lb.Flow{late, ended}, mergeResult{Known: 1, Refused: map[string]int{flowsync.RefusedKnown: 1}})
	if got := b.snapshot(); len(got) != 1 || got[0].State != lb.FlowEstablished || got[0].SYN != 3000 ||
		got[0].Backend != next.Backend {
		t.Errorf("it has %v", got)
	}
	if got := b.activeOf(&s); got != 1 {
		t.Errorf("%d flows are active, want 1", got)
	}
	// A connection that has ended here does not begin again by a late message.
	b.run(packetSpec{from: client4, at: vip4, sport: 1000, dport: 80, flags: "R", seq: 3001})
	b.janitor.Advance(time.Second)
	b.take([]lb.Flow{again}, known)
}

// TestSenderThatWasHeldUp: a balancer whose process stood still sends the true silence of its flows, so that they take
// no place from connections that have begun elsewhere meanwhile; and takes those.
func TestSenderThatWasHeldUp(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 2)
	a, b := newPeer(t, s), newPeer(t, s)
	now := time.Hour
	for _, m := range []peer{a, b} {
		m.janitor.Monotonic = func() time.Duration { return now }
		m.janitor.Step(now)
	}
	a.send(1000, "S", "A")
	old := a.changed()[0]
	for range 20 {
		now += time.Second
		b.janitor.Step(now)
	}
	b.send(1000, "S", "A")
	mine := b.changed()[0]
	if mine.Backend == old.Backend {
		b.send(1000, "R")
		b.janitor.Advance(2 * time.Minute)
		b.send(1000, "S", "A")
		mine = b.changed()[0]
	}
	if mine.Backend == old.Backend {
		t.Fatal("both have the same backend")
	}
	b.janitor.Advance(flowsync.MinLateness)
	told := a.snapshot()
	if len(told) != 1 || told[0].Silent < 19*time.Second {
		t.Errorf("before its clock moves it tells of %v", told)
	}
	b.take(told, mergeResult{Refused: map[string]int{flowsync.RefusedKnown: 1}})
	a.take([]lb.Flow{mine}, mergeResult{New: 1})
}

// TestSYNThatIsSentAgainElsewhere: a client's SYN came here and got no answer; it was sent again, and reached a backend
// by another balancer, as routers changed their ways meanwhile. The flow that that balancer has proven counts, unless
// the client has begun another connection here since.
func TestSYNThatIsSentAgainElsewhere(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)
	a, b := newPeer(t, s), newPeer(t, s)
	at, elsewhere := map[int]string{}, 0
	a.send(999, "S", "A")
	a.changed()
	for port := 1000; port < 1000+handedFlows; port++ {
		unanswered := b.send(port, "S")
		if at[port] = a.send(port, "S", "A"); at[port] != unanswered {
			elsewhere++
		}
	}
	if elsewhere == 0 {
		t.Fatal("both have the same backend for each: the test shows nothing")
	}
	flows := a.changed()
	b.janitor.Advance(time.Second)
	b.take(flows, mergeResult{New: handedFlows})
	for port, backend := range at {
		if got := b.send(port, "A"); got != backend {
			t.Errorf("port %d goes to %s, and went to %s", port, got, backend)
		}
	}
	if got := b.activeOf(&s); got != handedFlows {
		t.Errorf("%d flows are active, want %d", got, handedFlows)
	}
	// Another connection of the client's: a late message reports the end of the one before it.
	b.janitor.Advance(10 * time.Second)
	goesTo := b.send(3000, "S")
	late := flows[0]
	late.Client, late.SYN, late.Silent = netip.AddrPortFrom(client4, 3000), 7, 5*time.Second
	for _, backend := range s.Backends {
		if late.Backend = s.BackendKey(backend); b.backendOf(3000) != late.Backend {
			break
		}
	}
	b.take([]lb.Flow{late}, mergeResult{Refused: map[string]int{flowsync.RefusedKnown: 1}})
	if got := b.send(3000, "A"); got != goesTo {
		t.Errorf("a connection that began here since goes to %s, and went to %s", got, goesTo)
	}
}

// backendOf is the backend of the flow from a client's port.
func (m peer) backendOf(port uint16) (key lb.BackendKey) {
	m.t.Helper()
	flows, _, err := m.Flows(func(f *lb.Flow) bool { return f.Client.Port() == port }, 1)
	if err != nil || len(flows) != 1 {
		m.t.Fatalf("the flow of port %d: %v, %v", port, flows, err)
	}
	return flows[0].Backend
}

// TestPortThatIsUsedAgainMeanwhile: while a balancer's process was dead, a client's connection ended at another
// balancer, and the client has another one from the same port, to another backend. The flow that that balancer sends
// counts, unless packets have come here since.
func TestPortThatIsUsedAgainMeanwhile(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)
	b := newPeer(t, s)
	b.send(1000, "S", "A")
	b.send(1001, "S", "A")
	flows := b.changed()
	for i := range flows {
		for _, backend := range s.Backends {
			if key := s.BackendKey(backend); key != flows[i].Backend {
				flows[i].Backend, flows[i].SYN = key, flows[i].SYN+1
				break
			}
		}
		flows[i].Silent = time.Minute // an idle one: this balancer's clock stood still meanwhile
	}
	b.take(flows, mergeResult{Refused: map[string]int{flowsync.RefusedKnown: 2}})
	b.janitor.Resume(b.janitor.Now(), 2*time.Minute) // as the next process does
	b.janitor.Advance(10 * time.Second)
	goesTo := b.send(1001, "A")
	b.take(flows, mergeResult{New: 1, Refused: map[string]int{flowsync.RefusedKnown: 1}})
	if got := b.send(1001, "A"); got != goesTo {
		t.Errorf("a flow whose packets come here went to %s, and goes to %s", goesTo, got)
	}
	if got := b.activeOf(&s); got != 2 {
		t.Errorf("%d flows are active, want 2", got)
	}
}

// TestPortThatWasUsedAgainBefore: just before a balancer's process ended, a connection ended and its client's port had
// another one, of which others were not told. When the next process is there, they send the one before, which takes no
// place.
func TestPortThatWasUsedAgainBefore(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)
	a, b := newPeer(t, s), newPeer(t, s)
	a.send(1000, "S", "A")
	b.take(a.changed(), mergeResult{New: 1})
	a.send(1000, "R")
	a.janitor.Advance(time.Second)
	b.janitor.Advance(time.Second)
	goesTo := a.send(1000, "S", "A")
	if previous := b.backendOf(1000); previous == a.backendOf(1000) {
		t.Fatalf("both connections go to %v", previous)
	}
	a.restartProcess(3 * time.Second)
	b.janitor.Advance(3 * time.Second)
	a.take(b.snapshot(), mergeResult{Refused: map[string]int{flowsync.RefusedKnown: 1}})
	if got := a.send(1000, "A"); got != goesTo {
		t.Errorf("its connection went to %s, and goes to %s", goesTo, got)
	}
}

// TestFlowsThatAreNotTaken: flows that do not fit this configuration are refused.
func TestFlowsThatAreNotTaken(t *testing.T) {
	s, computing := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3), testService(vip4, 81, lb.TCP, lb.Maglev, 3)
	m := newPeer(t, s, computing)
	good := lb.Flow{Backend: s.BackendKey(s.Backends[0]), Client: netip.AddrPortFrom(client4, 1000),
		State: lb.FlowEstablished, Proven: true}
	for _, test := range []struct {
		name, reason string
		change       func(*lb.Flow)
	}{
		{"unproven", flowsync.RefusedUnproven, func(f *lb.Flow) { f.Proven = false }},
		{"a SYN only", flowsync.RefusedUnproven, func(f *lb.Flow) { f.State = lb.FlowOpening }},
		{"no state", flowsync.RefusedUnproven, func(f *lb.Flow) { f.State = "" }},
		{"of UDP", flowsync.RefusedUnknown, func(f *lb.Flow) { f.State = lb.FlowUDP }},
		{"another backend", flowsync.RefusedUnknown, func(f *lb.Flow) { f.Backend.Port++ }},
		{"another service", flowsync.RefusedUnknown, func(f *lb.Flow) { f.Backend.Service.Port = 82 }},
		{"another family", flowsync.RefusedUnknown, func(f *lb.Flow) { f.Client = netip.AddrPortFrom(client6, 1) }},
		{"no client", flowsync.RefusedUnknown, func(f *lb.Flow) { f.Client = netip.AddrPort{} }},
		{"a hairpin", flowsync.RefusedUnknown, func(f *lb.Flow) { f.Backend.Service.Hairpin = true }},
		{"a service that computes", flowsync.RefusedComputed, func(f *lb.Flow) {
			f.Backend = computing.BackendKey(computing.Backends[0])
		}},
		{"silent for long", flowsync.RefusedExpired, func(f *lb.Flow) { f.Silent = 3 * time.Hour }},
		{"silent for ever", flowsync.RefusedExpired, func(f *lb.Flow) { f.Silent = 1 << 62 }},
		{"it has ended, and was not known", flowsync.RefusedExpired, func(f *lb.Flow) { f.State = lb.FlowClosed }},
	} {
		t.Run(test.name, func(t *testing.T) {
			flow := good
			test.change(&flow)
			m.take([]lb.Flow{flow}, mergeResult{Refused: map[string]int{test.reason: 1}})
		})
	}
	if n := len(m.snapshot()); n != 0 {
		t.Errorf("%d flows were taken", n)
	}
	m.Close()
	if _, err := m.MergeFlows([]lb.Flow{good}); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// drained returns the service with one backend that takes no new flows.
func drained(s lb.RoutedService, at int) lb.RoutedService {
	s.Backends = append([]lb.Backend(nil), s.Backends...)
	s.Backends[at].Draining = true
	return s
}

// TestTransitionElsewhere: the same change at two balancers, and one that has started after it. A flow from before it
// goes on at all of them, once the third knows the base; one that has begun since, once they know the flow.
func TestTransitionElsewhere(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 5)
	a, b := newPeer(t, s), newPeer(t, s)
	before := map[int]string{}
	for port := 1000; port < 1200; port++ {
		before[port] = a.send(port, "S", "A")
	}
	if flows := a.changed(); len(flows) != 0 {
		t.Fatalf("in steady state %d flows are told of", len(flows))
	}
	a.apply(drained(s, 1))
	b.apply(drained(s, 1))
	late, informed := newPeer(t, drained(s, 1)), newPeer(t, drained(s, 1))
	bases, err := a.Bases()
	if err != nil || len(bases) != 1 {
		t.Fatalf("%v, %v", bases, err)
	}
	if err := informed.MergeBase(bases[0]); err != nil {
		t.Fatal(err)
	}
	if err := b.MergeBase(bases[0]); !errors.Is(err, ErrOwnBase) {
		t.Errorf("of one that was there: %v", err)
	}
	astray := 0
	for port, backend := range before {
		for name, m := range map[string]peer{"there at the change": b, "told of the base": informed} {
			if got := m.send(port, "A"); got != backend {
				t.Errorf("%s: port %d goes to %s, and went to %s", name, port, got, backend)
			}
		}
		if late.send(port, "A") != backend {
			astray++
		}
	}
	if astray == 0 {
		t.Error("a balancer that came after the change has sent each flow to its backend: the test shows nothing")
	}
	if own, err := informed.Bases(); err != nil ||
		cmp.Diff(bases[0], own[0], cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() < time.Minute }),
			cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool {
				return a == b
			})) != "" {
		t.Errorf("it has the base %v, %v", own, err)
	}

	since, moved := map[int]string{}, 0
	for port := 2000; port < 2200; port++ {
		since[port] = a.send(port, "S", "A")
	}
	flows := a.changed()
	b.take(flows, mergeResult{New: len(flows)})
	for port, backend := range since {
		if got := b.send(port, "A"); got != backend {
			t.Errorf("port %d, begun after the change, goes to %s, and went to %s", port, got, backend)
		}
		if informed.send(port, "A") != backend {
			moved++
		}
	}
	if moved == 0 || len(flows) < moved {
		t.Errorf("%d flows were told of, and without that %d go elsewhere", len(flows), moved)
	}
}

// TestPreviousOwnerComesBack: a flow began at a balancer that was killed before it sent the flow, by a slot whose owner
// had left. Another one sends it to the same backend, as its table is the same, and goes on to when that owner is back.
func TestPreviousOwnerComesBack(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 5)
	without := s
	without.Backends, without.Paths = slices.Delete(slices.Clone(s.Backends), 1, 2),
		slices.Delete(slices.Clone(s.Paths), 1, 2)
	a, b := newPeer(t, s), newPeer(t, s)
	a.apply(without)
	b.apply(without)
	at := map[int]string{}
	for port := 1000; port < 1200; port++ {
		// Of some, the slot is one that another backend had before the change.
		if backend := a.send(port, "S", "A"); b.send(port, "A") == backend {
			at[port] = backend
		}
	}
	for _, when := range []string{"while it is away", "when it is back"} {
		for port, backend := range at {
			if got := b.send(port, "A"); got != backend {
				t.Errorf("%s, port %d goes to %s, and went to %s", when, port, got, backend)
			}
		}
		b.apply(s)
	}
	if flows := b.changed(); len(flows) == 0 {
		t.Error("no flow had the slot of the one that was away: the test shows nothing")
	}
}

// TestFreshStartBesideOthers: flows of another balancer reach their backends by one whose first table is complete. One
// that finds its backends one by one is in a transition from each to the next, and takes flows for older than that.
func TestFreshStartBesideOthers(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 5)
	first := newPeer(t, s)
	found := func(n int) lb.RoutedService {
		some := s
		some.Paths = slices.Clone(s.Paths)
		clear(some.Paths[n:])
		return some
	}
	whole, piecemeal := newPeer(t, found(0)), newPeer(t, found(0))
	whole.apply(s)
	for n := range len(s.Paths) {
		piecemeal.apply(found(n + 1))
	}
	if whole.register.ByKey[s.Key()].View.InTransition() {
		t.Error("the first table with backends has begun a transition")
	}
	astray := 0
	for port := 1000; port < 1200; port++ {
		want := first.send(port, "S", "A")
		if got := whole.send(port, "A"); got != want {
			t.Errorf("port %d goes to %s, and went to %s", port, got, want)
		}
		if piecemeal.send(port, "A") != want {
			astray++
		}
	}
	if astray == 0 {
		t.Error("a balancer that found its backends one by one has sent each flow to its backend: a start need not wait for them")
	}
	t.Logf("found one by one, %d of 200 flows go astray", astray)
}

// TestRememberedSlotsElsewhere: the window is over, and flows of slots that have changed hands still have entries.
func TestRememberedSlotsElsewhere(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 5)
	a := newPeer(t, s)
	now := time.Now()
	a.now = func() time.Time { return now }
	at := map[int]string{}
	for port := 1000; port < 1200; port++ {
		at[port] = a.send(port, "S", "A")
	}
	a.apply(drained(s, 1))
	for port := range at {
		a.send(port, "A", "A")
	}
	now = now.Add(20 * time.Minute)
	a.endTransitions(now, map[uint32]uint64{a.register.ByKey[s.Key()].ID: 40})
	bases, err := a.Bases()
	if err != nil || len(bases) != 1 || bases[0].Size != 0 {
		t.Fatalf("%v, %v", bases, err)
	}
	b := newPeer(t, drained(s, 1))
	if err := b.MergeBase(bases[0]); err != nil {
		t.Fatal(err)
	}
	flows := a.changed()
	b.take(flows, mergeResult{New: len(flows)})
	for port, backend := range at {
		if got := b.send(port, "A"); got != backend {
			t.Errorf("port %d goes to %s, and went to %s", port, got, backend)
		}
	}
}

// TestChangeBeforeAnnouncement: a health verdict that comes before any packet begins no transition: no flow goes to a
// backend that had failed by then, and the table is that of a balancer which has known it from the first.
func TestChangeBeforeAnnouncement(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 5)
	late, knows := newPeer(t, s), newPeer(t, drained(s, 1))
	if err := late.Apply(lb.State{Services: []lb.RoutedService{drained(s, 1)}, Fresh: true}); err != nil {
		t.Fatal(err)
	}
	if bases, err := late.Bases(); len(bases) != 0 || err != nil {
		t.Errorf("a transition has begun: %v, %v", bases, err)
	}
	for port := 1000; port < 1000+handedFlows; port++ {
		if got, want := late.send(port, "A"), knows.send(port, "A"); got != want {
			t.Errorf("port %d goes to %s, and at the other balancer to %s", port, got, want)
		}
	}
}

// TestBasesThatAreNotTaken: each is refused, or means nothing, and changes nothing.
func TestBasesThatAreNotTaken(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 5)
	a := newPeer(t, s)
	a.apply(drained(s, 1))
	bases, err := a.Bases()
	if err != nil || len(bases) != 1 {
		t.Fatalf("%v, %v", bases, err)
	}
	m := newPeer(t, drained(s, 1))
	for _, test := range []struct {
		name   string
		change func(*lb.Base)
		want   error
	}{
		{"another service", func(b *lb.Base) { b.Service.Port++ }, ErrNotHere},
		{"a hairpin", func(b *lb.Base) { b.Service.Hairpin = true }, ErrNotHere},
		{"another hash", func(b *lb.Base) { b.BySource = true }, ErrNotHere},
		{"a size that is no prime", func(b *lb.Base) { b.Size = 1000 }, nil},
		{"of no slots", func(b *lb.Base) { b.Size = 0 }, nil},
		{"too large", func(b *lb.Base) { b.Size = 4294967291 }, nil},
		{"no weight", func(b *lb.Base) { b.Backends[0].Weight = 0 }, nil},
		{"too much weight", func(b *lb.Base) { b.Backends[0].Weight = 1 << 20 }, nil},
		{"a peer without an address", func(b *lb.Base) { b.Backends[0].Endpoint = netip.AddrPort{} }, nil},
		{"no peer", func(b *lb.Base) {
			for i := range b.Backends {
				b.Backends[i] = lb.BaseBackend{Identity: b.Backends[i].Identity, Absent: true}
			}
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := bases[0]
			base.Backends = append([]lb.BaseBackend(nil), base.Backends...)
			test.change(&base)
			if err := m.MergeBase(base); err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%v, want an error, of them %v", err, test.want)
			}
			if own, err := m.Bases(); len(own) != 0 || err != nil {
				t.Errorf("it has %v, %v", own, err)
			}
		})
	}
}

// TestBaseBeforeTheChange: a balancer hears of a flow that has begun since a change, and the change is yet to come
// there.
func TestBaseBeforeTheChange(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 5)
	a, b := newPeer(t, s), newPeer(t, s)
	a.apply(drained(s, 1))
	bases, err := a.Bases()
	if err != nil || len(bases) != 1 {
		t.Fatalf("%v, %v", bases, err)
	}
	if err := b.MergeBase(bases[0]); err != nil {
		t.Fatal(err)
	}
	at := map[int]string{}
	for port := 1000; port < 1200; port++ {
		at[port] = a.send(port, "S", "A")
	}
	flows := a.changed()
	b.take(flows, mergeResult{New: len(flows)})
	for _, when := range []string{"before", "after"} {
		for port, backend := range at {
			if got := b.send(port, "A"); got != backend {
				t.Errorf("%s the change port %d goes to %s, and went to %s", when, port, got, backend)
			}
		}
		b.apply(drained(s, 1))
	}
}

// TestChangeThatWasTakenBackElsewhere: within a transition that two balancers have in common, a backend is drained at
// one for a moment. Flows that began there meanwhile go on at the other, which has not seen the drain, once it gets the
// base again; by the flows alone, some go elsewhere.
func TestChangeThatWasTakenBackElsewhere(t *testing.T) {
	s := drained(testService(vip4, 80, lb.TCP, lb.Maglev, 5), 1)
	a, b := newPeer(t, s), newPeer(t, s)
	for _, m := range []peer{a, b} {
		m.apply(drained(s, 2))
	}
	before, err := a.Bases()
	if err != nil || len(before) != 1 {
		t.Fatalf("%v, %v", before, err)
	}
	a.apply(drained(drained(s, 2), 3))
	at := map[int]string{}
	for port := 1000; port < 1200; port++ {
		at[port] = a.send(port, "S", "A")
	}
	a.apply(drained(s, 2))
	flows := a.changed()
	b.take(flows, mergeResult{New: len(flows)})
	overflowed := func() (n int) {
		for port, backend := range at {
			if b.send(port, "A") != backend {
				n++
			}
		}
		return n
	}
	if overflowed() == 0 {
		t.Error("all flows go on before the base is heard of again: the test shows nothing")
	}
	after, err := a.Bases()
	if err != nil || len(after) != 1 || !after[0].Beyond || after[0].Moved == before[0].Moved ||
		after[0].Size != before[0].Size {
		t.Fatalf("%v, %v", after, err)
	}
	if err := b.MergeBase(after[0]); err != nil {
		t.Fatal(err)
	}
	if n := overflowed(); n > 0 {
		t.Errorf("%d flows go elsewhere", n)
	}
}

// TestFlowsOfALaterChange: a balancer is notified of flows whose backend, or transition, is yet to come there. Once it
// has come, the balancer asks for them, and once only.
func TestFlowsOfALaterChange(t *testing.T) {
	s, computing := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3), testService(vip4, 80, lb.TCP, lb.Maglev, 3)
	a := newPeer(t, s)
	for port := 1000; port < 1000+handedFlows; port++ {
		a.send(port, "S", "A")
	}
	flows := a.changed()
	fewer := s
	fewer.Backends, fewer.Paths = s.Backends[:2], s.Paths[:2]
	for name, b := range map[string]peer{"a service": newPeer(t), "a backend": newPeer(t, fewer),
		"what remembers": newPeer(t, computing)} {
		retries := func(when string, want bool) {
			t.Helper()
			if got, err := b.RetryMissed(); got != want || err != nil {
				t.Errorf("%s, %s: flows are to be told again: %v, %v", name, when, got, err)
			}
		}
		retries("at first", false)
		done, err := b.MergeFlows(flows)
		if err != nil || done.Missed == 0 || done.Missed+done.New != handedFlows {
			t.Fatalf("%s: %+v, %v", name, done, err)
		}
		retries("before the change", false)
		unrelated := testService(vip4, 81, lb.TCP, lb.RoundRobin, 3)
		switch name {
		case "a service":
			b.apply(unrelated)
		case "a backend":
			b.apply(fewer, unrelated)
		default:
			b.apply(computing, unrelated)
		}
		retries("after another change", false)
		b.apply(s)
		retries("after the change", true)
		b.take(flows, mergeResult{New: done.Missed, Known: done.New})
		b.apply(s, unrelated)
		retries("after the next", false)
	}
}

// TestFullNATElsewhere: replies find their flow, and no two flows have the same 5-tuple of replies.
func TestFullNATElsewhere(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1)
	s.Mode = lb.FullNAT
	a, b := newPeer(t, s), newPeer(t, s)
	a.send(1000, "S", "A")
	flows := a.changed()
	if len(flows) != 1 || !flows[0].Source.IsValid() {
		t.Fatalf("%v", flows)
	}
	b.take(flows, mergeResult{New: 1})
	reply := packetSpec{from: s.Backends[0].Address, sport: s.Backends[0].Port, at: flows[0].Source.Addr(),
		dport: flows[0].Source.Port(), flags: "A"}
	_, out, err := b.Program().Test(reply.build(t))
	if err != nil {
		t.Fatal(err)
	}
	if source, destination := netip.AddrFrom4([4]byte(out[26:30])),
		netip.AddrFrom4([4]byte(out[30:34])); source != vip4 || destination != client4 {
		t.Errorf("a reply goes from %s to %s, want from %s to %s", source, destination, vip4, client4)
	}
	twice, strange := flows[0], flows[0]
	twice.Client = netip.AddrPortFrom(client4, 1001)
	strange.Client, strange.Source = twice.Client, netip.AddrPortFrom(vip4, flows[0].Source.Port())
	outside := twice
	outside.Source = netip.AddrPortFrom(flows[0].Source.Addr(), 19999)
	b.take([]lb.Flow{twice, strange, outside}, mergeResult{Refused: map[string]int{flowsync.RefusedPool: 3}})
}

// TestFullNATPortGoesOnToAnother: the port of a flow is another flow's before long. The next flow is taken where the
// one before has ended as it has at the balancer that assigned the port, from the same client or another; and where its
// end was not sent.
func TestFullNATPortGoesOnToAnother(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 1)
	s.Mode = lb.FullNAT
	a, b := newPeer(t, s), newPeer(t, s)
	a.send(1000, "S", "A")
	first := a.changed()
	b.take(first, mergeResult{New: 1})
	a.send(1000, "FA")
	b.take(a.changed(), mergeResult{Known: 1})
	a.run(with(answersTo(&s, first[0].Source), func(p *packetSpec) { p.flags = "FA" }))
	b.take(a.changed(), mergeResult{Known: 1})
	b.janitor.Advance(time.Second)
	if got := b.snapshot(); len(got) != 1 || got[0].State != lb.FlowClosed {
		t.Errorf("after the ends of both: %v", got)
	}
	a.janitor.Advance(time.Second)
	a.send(1000, "S", "A")
	again := a.changed()
	if len(again) != 1 || again[0].Source != first[0].Source {
		t.Fatalf("its client comes again as %v, and was %v", again, first)
	}
	b.take(again, mergeResult{New: 1})

	// It ends, and the next one is another client's.
	other := again[0]
	other.Client = netip.AddrPortFrom(client4, 1001)
	a.send(1000, "R")
	b.take(a.changed(), mergeResult{Known: 1})
	b.take([]lb.Flow{other}, mergeResult{New: 1})
	// So is the one after that, and no end was told.
	b.janitor.Advance(time.Second)
	third := other
	third.Client = netip.AddrPortFrom(client4, 1002)
	b.take([]lb.Flow{third}, mergeResult{New: 1})
	if got := b.activeOf(&s); got != 1 {
		t.Errorf("%d flows are active, want 1", got)
	}
	if from, to := b.run(answersTo(&s, third.Source)); from != vip4 || to != client4 {
		t.Errorf("its reply goes from %s to %s, want from %s to %s", from, to, vip4, client4)
	}
	// A flow whose packets come here keeps its port.
	b.send(1002, "A")
	b.janitor.Advance(time.Second)
	b.send(1002, "A")
	b.take([]lb.Flow{other}, mergeResult{Refused: map[string]int{flowsync.RefusedPool: 1}})
	// Unless the process here ends: while there was none, nobody could tell it of that flow's end.
	b.restartProcess(time.Minute)
	b.janitor.Advance(time.Second)
	b.take([]lb.Flow{other}, mergeResult{New: 1})
	if got := b.activeOf(&s); got != 1 {
		t.Errorf("after the process has ended, %d flows are active, want 1", got)
	}
}

// TestFullNATPortOfBeforeIsKept: just before a balancer's process ended, it gave the port of a flow that had ended to
// another one, which was not sent to others. When the next process is there, they send the one before: it takes no port
// from the flow that has it, and that port is given to no other flow.
func TestFullNATPortOfBeforeIsKept(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 1)
	s.Mode = lb.FullNAT
	a, b := newPeerOfOnePort(t, s), newPeerOfOnePort(t, s)
	a.send(1000, "S", "A")
	b.take(a.changed(), mergeResult{New: 1})
	a.send(1000, "R")
	a.janitor.Advance(time.Second)
	b.janitor.Advance(time.Second)
	a.send(1001, "S", "A")
	own := a.snapshot()
	if len(own) != 1 || own[0].Client.Port() != 1001 {
		t.Fatalf("the flows are %v, want that of port 1001", own)
	}
	a.restartProcess(3 * time.Second)
	b.janitor.Advance(3 * time.Second)
	a.take(b.snapshot(), mergeResult{Refused: map[string]int{flowsync.RefusedPool: 1}})
	a.send(1002, "S", "A")
	if got := a.snapshot(); len(got) != 1 || got[0].Client.Port() != 1001 {
		t.Errorf("the flows are %v, want that of port 1001", got)
	}
	if from, to := a.run(answersTo(&s, own[0].Source)); from != vip4 || to != client4 {
		t.Errorf("its reply goes from %s to %s, want from %s to %s", from, to, vip4, client4)
	}
}

// TestFullNATPortIsGivenMeanwhile: while a flow is taken, a packet begins another one that gets its port. That one has
// to begin again, and two flows have one port at no time after that.
func TestFullNATPortIsGivenMeanwhile(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1)
	s.Mode = lb.FullNAT
	a, b := newPeerOfOnePort(t, s), newPeerOfOnePort(t, s)
	b.send(1000, "S", "A")
	told := b.changed()
	here := a.flowDestination()
	here.BeforeWrite = func() { a.send(1001, "S") }
	if taken := flowsync.Merge(a.Exchange, here, told); taken.New != 1 {
		t.Fatalf("the flow is not taken: %v", taken)
	}
	expect := func(when string) {
		t.Helper()
		flows, _, err := a.Flows(func(*lb.Flow) bool { return true }, 10)
		if err != nil || len(flows) != 1 || flows[0].Client.Port() != 1000 {
			t.Errorf("%s, the flows are %v, want that of port 1000: %v", when, flows, err)
		}
		if got := a.activeOf(&s); got != 1 {
			t.Errorf("%s, %d flows are active, want 1", when, got)
		}
	}
	expect("once it is taken")
	a.send(1001, "S")
	expect("when the other one begins again")
	if from, to := a.run(answersTo(&s, told[0].Source)); from != vip4 || to != client4 {
		t.Errorf("its reply goes from %s to %s, want from %s to %s", from, to, vip4, client4)
	}
}

// TestEndIsKnownBeforeItsBeginning: a balancer to which others send all flows gets a connection's end from one of them,
// and from another one, which does not know of the end yet, the same connection as live. Its own entry is the
// connection that the client's port had before.
func TestEndIsKnownBeforeItsBeginning(t *testing.T) {
	for _, mode := range []lb.Mode{lb.L2DSR, lb.FullNAT} {
		for _, before := range []lb.FlowState{lb.FlowEstablished, lb.FlowClosed} {
			t.Run(fmt.Sprint(mode, ", the one before is ", before), func(t *testing.T) {
				s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)
				s.Mode = mode
				a, b := newPeer(t, s), newPeer(t, s)
				receive := func(from lb.Flow, state lb.FlowState, silent time.Duration, want mergeResult) {
					t.Helper()
					from.State, from.Silent = state, silent
					b.take([]lb.Flow{from}, want)
				}
				refused := mergeResult{Refused: map[string]int{flowsync.RefusedKnown: 1}}
				a.send(1000, "S", "A")
				a.send(1001, "S", "A")
				flows := a.snapshot()
				slices.SortFunc(flows, func(a, b lb.Flow) int { return int(a.Client.Port()) - int(b.Client.Port()) })
				previous, other := flows[0], flows[1]
				other.Client = previous.Client
				if other.SYN = previous.SYN + 1; mode == lb.FullNAT {
					other.SYN = 0
				}
				receive(previous, lb.FlowEstablished, 10*time.Second, mergeResult{New: 1})
				if before == lb.FlowClosed {
					receive(previous, lb.FlowClosed, 9*time.Second, mergeResult{Known: 1})
					receive(other, lb.FlowClosed, time.Second, mergeResult{Known: 1})
				} else {
					receive(other, lb.FlowClosed, 11*time.Second, refused)
					if got := b.activeOf(&s); got != 1 {
						t.Errorf("after the end of an earlier one %d flows are active, want 1", got)
					}
					receive(other, lb.FlowClosed, time.Second, refused)
				}
				receive(other, lb.FlowEstablished, 2*time.Second, refused)
				if got := b.activeOf(&s); got != 0 {
					t.Errorf("%d flows are active, want none", got)
				}
				if other.SYN++; mode == lb.FullNAT {
					other.SYN = 0
				}
				receive(other, lb.FlowEstablished, 0, mergeResult{New: 1})
			})
		}
	}
}

// TestFullNATConnectionOfBeforeHasEnded: while a balancer's process was dead, its client had a connection from the same
// port elsewhere, which has ended. The client's next one here is not taken for that of before: others are notified of
// it.
func TestFullNATConnectionOfBeforeHasEnded(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 1)
	s.Mode = lb.FullNAT
	a := newPeer(t, s)
	a.send(1000, "S", "A")
	a.restartProcess(10 * time.Second)
	ended := a.changed()
	if len(ended) != 1 {
		t.Fatalf("the flows are %v, want one", ended)
	}
	ended[0].State, ended[0].Source = lb.FlowClosed,
		netip.AddrPortFrom(ended[0].Source.Addr(), ended[0].Source.Port()^1)
	// One that has ended before tells nothing of this one.
	for _, since := range []struct {
		silent time.Duration
		active uint32
	}{{12 * time.Second, 1}, {3 * time.Second, 0}} {
		ended[0].Silent = since.silent
		a.take(ended, mergeResult{Refused: map[string]int{flowsync.RefusedKnown: 1}})
		if got := a.activeOf(&s); got != since.active {
			t.Errorf("after an end %s ago, %d flows are active, want %d", since.silent, got, since.active)
		}
	}
	a.send(1000, "S", "A")
	if flows := a.changed(); len(flows) != 1 || flows[0].State != lb.FlowEstablished || a.activeOf(&s) != 1 {
		t.Errorf("others are told of %v, want the next connection", flows)
	}
}

// answersTo returns the packet of a backend to the pool's end of a flow, from which it went to the backend.
func answersTo(s *lb.RoutedService, source netip.AddrPort) packetSpec {
	return packetSpec{from: s.Backends[0].Address, sport: s.Backends[0].Port, at: source.Addr(), dport: source.Port(),
		flags: "A"}
}

// run sends a packet, and returns its source and destination; as it was sent where it is dropped.
func (m peer) run(p packetSpec) (source, destination netip.Addr) {
	m.t.Helper()
	_, out, err := m.Program().Test(p.build(m.t))
	if err != nil {
		m.t.Fatal(err)
	}
	return netip.AddrFrom4([4]byte(out[26:30])), netip.AddrFrom4([4]byte(out[30:34]))
}

// TestDividedPool: of a pool that is divided, each balancer gives out ports of its own address alone; a flow goes on
// from another's address, there and back, and while it does, its balancer does not give out its port again.
func TestDividedPool(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1)
	s.Mode, s.Limits.Refuse = lb.FullNAT, lb.RefuseByReset
	first, second := netip.MustParseAddr("198.18.0.77"), netip.MustParseAddr("198.18.0.78")
	poolOf := func(own, other netip.Addr) lb.Pool {
		return lb.Pool{Addresses: []netip.Addr{own}, Others: []netip.Addr{other}, FirstPort: 20000, LastPort: 20063}
	}
	a, b := newPeer(t), newPeer(t)
	a.applyWith(poolOf(first, second), s)
	b.applyWith(poolOf(second, first), s)
	for port := 1000; port < 1032; port++ {
		a.send(port, "S", "A")
	}
	flows := a.changed()
	if len(flows) != 32 {
		t.Fatalf("%d flows, want 32", len(flows))
	}
	// Before it is told, the other one answers nothing: it must not end the connection.
	for _, p := range []packetSpec{answersTo(&s, flows[0].Source), answersTo(&s, netip.AddrPortFrom(second, 20001))} {
		if from, to := b.run(p); from != p.from || to != p.at {
			t.Errorf("a reply to %s:%d was answered: from %s to %s", p.at, p.dport, from, to)
		}
	}
	b.take(flows, mergeResult{New: 32})
	for _, f := range flows {
		if f.Source.Addr() != first {
			t.Fatalf("a flow was sent from %s, want %s", f.Source, first)
		}
		packet := with(web4(), func(p *packetSpec) { p.sport, p.flags = f.Client.Port(), "A" })
		if from, to := b.run(packet); from != first || to != s.Backends[0].Address {
			t.Errorf("the flow of %s goes on from %s to %s, want from %s", f.Client, from, to, first)
		}
		if from, to := b.run(answersTo(&s, f.Source)); from != vip4 || to != client4 {
			t.Errorf("its reply goes from %s to %s, want from %s to %s", from, to, vip4, client4)
		}
	}
	for port := 2000; port < 2010; port++ {
		b.send(port, "S", "A")
	}
	for _, f := range b.changed() {
		if f.Client.Port() >= 2000 && f.Source.Addr() != second {
			t.Errorf("a new flow is sent from %s, want %s", f.Source, second)
		}
	}
	if held := b.PortsHeld([]lb.BackendKey{s.BackendKey(s.Backends[0])}); len(held) != 1 || held[0] > 10 {
		t.Errorf("%v ports of its own are held, want 10 at most", held)
	}
	// The first comes back, and is told.
	again := newPeer(t)
	again.applyWith(poolOf(first, second), s)
	again.take(b.snapshot(), mergeResult{New: 42})
	taken := map[netip.AddrPort]bool{}
	for _, f := range flows {
		taken[f.Source] = true
	}
	for port := 3000; port < 3020; port++ {
		again.send(port, "S", "A")
	}
	for _, f := range again.changed() {
		if f.Client.Port() >= 3000 && (taken[f.Source] || f.Source.Addr() != first) {
			t.Errorf("%s was given out, of a flow that goes on", f.Source)
		}
	}
}
