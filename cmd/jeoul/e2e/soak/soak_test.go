// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// TestScheduleIsReplayable: a seed determines one sequence of faults, and another seed another one.
func TestScheduleIsReplayable(t *testing.T) {
	among := Among{Balancers: 3, Backends: 6}
	one, again, other := Schedule(7, time.Hour, among), Schedule(7, time.Hour, among), Schedule(8, time.Hour, among)
	if !reflect.DeepEqual(one, again) {
		t.Error("one seed has two schedules")
	}
	if reflect.DeepEqual(one, other) {
		t.Error("two seeds have one schedule")
	}
	kinds := map[Kind]int{}
	for i, f := range one {
		kinds[f.Kind]++
		if f.Number != i+1 || f.After < minGap || f.After > maxGap {
			t.Errorf("fault %d is %+v", i+1, f)
		}
		if slices.ContainsFunc(f.Balancers, func(n int) bool { return n < 0 || n >= among.Balancers }) ||
			f.Backend < 0 || f.Backend >= among.Backends {
			t.Errorf("%s has no such target", f)
		}
		if f.Kind.OfBalancer() && len(f.Balancers) != map[bool]int{false: 1, true: 2}[f.Kind == Part] {
			t.Errorf("%s has another number of targets", f)
		}
	}
	for _, kind := range slices.Concat(ofBalancers, ofBackends, []Kind{UnknownSender}) {
		if kinds[kind] == 0 {
			t.Errorf("an hour has no %s", kind)
		}
	}
	t.Logf("%d faults: %v", len(one), kinds)
}

// TestScheduleOfSomeKinds: only these kinds are drawn.
func TestScheduleOfSomeKinds(t *testing.T) {
	for _, of := range [][]Kind{{KillAll, BackendDies, Reweigh}, {Lose}, {BackendLeaves, UnknownSender}} {
		kinds := map[Kind]bool{}
		for i, f := range Schedule(7, time.Hour, Among{Balancers: 3, Backends: 6, Kinds: of}) {
			if kinds[f.Kind] = true; !slices.Contains(of, f.Kind) || f.Number != i+1 || f.After < minGap {
				t.Errorf("of %v, fault %d is %s after %v", of, i+1, f, f.After)
			}
		}
		if len(kinds) != len(of) {
			t.Errorf("of %v, only %v were drawn", of, kinds)
		}
	}
}

// TestScheduleLeavesSome: at any planned time, at most two faults of balancers go on, and four of six backends have
// none.
func TestScheduleLeavesSome(t *testing.T) {
	type going struct {
		fault Fault
		until time.Duration
	}
	for seed := range uint64(50) {
		var now time.Duration
		var on []going
		for _, f := range Schedule(seed, 10*time.Minute, Among{Balancers: 3, Backends: 6}) {
			now += f.After
			on = slices.DeleteFunc(on, func(g going) bool { return g.until < now })
			on = append(on, going{f, now + f.For})
			balancers, backends := 0, 0
			for _, g := range on {
				switch {
				case g.fault.Kind.OfBalancer():
					balancers++
				case g.fault.Kind != UnknownSender:
					backends++
				}
			}
			if balancers > 2 || backends > 2 {
				t.Fatalf("seed %d, %s: faults of balancers %d, of backends %d", seed, f, balancers, backends)
			}
		}
	}
}

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// at returns the time a number of seconds after noon.
func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

func of(kind Kind, from, restored, to float64, balancers ...int) *Happened {
	return &Happened{Fault: Fault{Kind: kind, Balancers: balancers, Backend: 2}, Span: Span{at(from), at(to)},
		Restored: at(restored)}
}

// TestExplain: each reason, and a similar case that it does not explain. A connection was answered last at 100 s, and
// its break was seen at 101 s.
func TestExplain(t *testing.T) {
	moved := []RouteChange{{Before: at(100.1), Seen: at(100.2)}}
	lost := of(Lose, 50, 60, 70, 1)
	lost.Lost = at(52)
	for name, tc := range map[string]struct {
		timeline Timeline
		opened   float64
		computes bool
		backend  int
		want     Reason
	}{
		"nothing happened": {Timeline{}, 10, false, 2, Unexplained},
		"its backend died": {Timeline{Faults: []*Happened{of(BackendDies, 100.5, 103, 105)}}, 10,
			false, 2, OwnBackend},
		"another backend died": {Timeline{Faults: []*Happened{of(BackendDies, 100.5, 103, 105)}}, 10,
			false, 3, Unexplained},
		"its backend died later": {Timeline{Faults: []*Happened{of(BackendDies, 101.5, 103, 105)}}, 10,
			false, 2, Unexplained},
		"it began when that was back": {Timeline{Faults: []*Happened{of(BackendDies, 90, 99, 105)}}, 99.5, false,
			2, Unexplained},
		"its backend was drained": {Timeline{Faults: []*Happened{of(BackendDrain, 90, 103, 105)}}, 10, false,
			2, Unexplained},
		"another weight": {Timeline{Faults: []*Happened{of(Reweigh, 90, 103, 105)}}, 10, true, 2,
			Unexplained},
		"next hops changed":               {Timeline{NextHops: moved}, 10, false, 2, Unexplained},
		"next hops changed, young":        {Timeline{NextHops: moved}, 99.5, false, 2, TooYoung},
		"next hops changed, a second old": {Timeline{NextHops: moved}, 99, false, 2, Unexplained},
		"next hops changed before the answer": {Timeline{NextHops: []RouteChange{{Before: at(99.1), Seen: at(99.2)}}},
			98.5, false, 2,
			Unexplained},
		"a fault alone": {Timeline{NextHops: moved, Faults: []*Happened{of(KillAll, 90, 110, 120, 1)}},
			95, false, 2, Unexplained},
		"two at once": {Timeline{NextHops: moved, Faults: []*Happened{of(KillAll, 90, 110, 120, 1),
			of(Part, 80, 101, 102, 0, 2)}}, 95, false, 2, Overlapped},
		"two at once, handed over before": {Timeline{NextHops: moved, Faults: []*Happened{of(KillAll, 90, 110, 120, 1),
			of(Part, 80, 101, 102, 0, 2)}}, 78, false, 2, Unexplained},
		"handed over, and forgotten": {Timeline{NextHops: moved,
			Faults: []*Happened{lost, of(Part, 51, 99, 102, 0, 1)}}, 10, false, 2, Overlapped},
		"handed over again since": {Timeline{NextHops: moved,
			Faults: []*Happened{lost, of(Part, 51, 60, 65, 0, 1)}}, 10, false, 2, Unexplained},
		"tables differed": {Timeline{NextHops: moved,
			Differed: map[string][]Span{"web": {{at(40), at(50)}}}}, 45, true, 2, Disagreed},
		"tables differed, and were equal": {Timeline{NextHops: moved,
			Differed: map[string][]Span{"web": {{at(40), at(50)}}}}, 51, true, 2, Unexplained},
		"tables differed, it is remembered": {Timeline{NextHops: moved,
			Differed: map[string][]Span{"web": {{at(40), at(50)}}}}, 45, false, 2, Unexplained},
	} {
		tc.timeline.Balancers = 3
		got := tc.timeline.Explain(Connection{Service: "web", Computes: tc.computes, Backend: tc.backend,
			Opened: at(tc.opened), Proven: at(tc.opened), Answered: at(100), Broke: at(101)})
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestExplainLongOpening: a connection whose first SYN was sent to a removed backend is opened seconds later, by a
// retransmitted SYN; its hand-over to other balancers begins then. Its last answer came at 100 s, and its break was
// seen at 101 s.
func TestExplainLongOpening(t *testing.T) {
	moved := []RouteChange{{Before: at(100.1), Seen: at(100.2)}}
	// As in a soak: while the daemon of one balancer hung, another one's speaker was killed.
	hung, killed := of(HangDaemon, 97.5, 112, 113, 2), of(KillSpeaker, 100, 100, 107, 1)
	for name, tc := range map[string]struct {
		timeline       Timeline
		opened, proven float64
		computes       bool
		want           Reason
	}{
		"proven in two faults": {Timeline{NextHops: moved, Faults: []*Happened{hung, killed}}, 96, 99, true,
			Overlapped},
		"proven a second before both": {Timeline{NextHops: moved, Faults: []*Happened{hung, killed}}, 93, 96.5, true,
			Unexplained},
		"proven within a second of the one": {Timeline{NextHops: moved, Faults: []*Happened{hung, killed}}, 93, 96.6,
			true,
			Overlapped},
		"proven in one fault": {Timeline{NextHops: moved, Faults: []*Happened{hung}}, 96, 99, true,
			Unexplained},
		"just proven": {Timeline{NextHops: moved}, 96, 99.2, true, TooYoung},
		"tables differed at the first SYN": {Timeline{NextHops: moved,
			Differed: map[string][]Span{"web": {{at(40), at(41)}}}}, 40.5, 43, true, Disagreed},
		"tables differed at a later SYN": {Timeline{NextHops: moved,
			Differed: map[string][]Span{"web": {{at(40), at(41)}}}}, 38, 40.5, true, Disagreed},
		"tables differed afterwards": {Timeline{NextHops: moved,
			Differed: map[string][]Span{"web": {{at(40), at(41)}}}}, 36, 39, true, Unexplained},
	} {
		tc.timeline.Balancers = 3
		got := tc.timeline.Explain(Connection{Service: "web", Computes: tc.computes, Backend: 3, Opened: at(tc.opened),
			Proven: at(tc.proven), Answered: at(100), Broke: at(101)})
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestExplainRefused: a new connection may fail during a fault that takes something, and while routes change.
func TestExplainRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		timeline Timeline
		want     bool
	}{
		"peace":             {Timeline{}, false},
		"a fault":           {Timeline{Faults: []*Happened{of(BackendDies, 90, 103, 105)}}, true},
		"a drain":           {Timeline{Faults: []*Happened{of(BackendDrain, 90, 103, 105)}}, false},
		"a fault before":    {Timeline{Faults: []*Happened{of(Stop, 90, 93, 95, 1)}}, false},
		"next hops changed": {Timeline{NextHops: []RouteChange{{Before: at(100.4), Seen: at(100.5)}}}, true},
	} {
		if got := tc.timeline.ExplainRefused(Span{at(100), at(101)}); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestLeaks: a daemon holds more than it may.
func TestLeaks(t *testing.T) {
	first := Held{Balancer: "lb02", Descriptors: 100, BPF: 50, Pins: 20, RSSKiB: 70000}
	fine, bad := first, first
	fine.Descriptors, fine.RSSKiB = 116, 137000
	bad.Descriptors, bad.BPF, bad.Pins, bad.RSSKiB = 117, 51, 21, 140000
	if lines := fine.Leaks(first); len(lines) > 0 {
		t.Errorf("%q", lines)
	}
	if lines := bad.Leaks(first); len(lines) != 4 {
		t.Errorf("%q", lines)
	}
}
