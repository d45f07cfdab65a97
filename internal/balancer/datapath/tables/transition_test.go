// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// A transition is right if every flow keeps its backend as promised. The reference has a list of tables and nothing
// else: the backends of each hash, before and now.
type referenceTransition struct {
	// owners[i] is whom slot i leads to; tables of all sizes are looked at by hash.
	now, before []netip.AddrPort
	last        []netip.AddrPort
	// touched are the hashes whose flows may be remembered.
	touched [probeHashes]bool
	until   time.Time
	quiet   int
	any     bool
}

// probeHashes is how many hashes are compared: more than there are slots in a table
// of the test, and spread over all of them.
const probeHashes = 4096

func ownerOf(owners []netip.AddrPort, probe int) netip.AddrPort {
	if len(owners) == 0 {
		return netip.AddrPort{}
	}
	return owners[probe*len(owners)/probeHashes]
}

// change notes a change to a table, which may be the same again.
func (r *referenceTransition) change(next []netip.AddrPort, same bool, now time.Time, window time.Duration,
	lookUp bool) {
	if !r.any {
		r.now, r.any = next, true
		return
	}
	was := r.now
	if len(was) == 0 {
		was = r.last
	} else {
		r.last = was
	}
	resized := len(was) != len(next) && len(next) > 0
	had := r.before != nil
	base := r.before
	if base == nil {
		base = was
	}
	r.now = next
	if len(was) > 0 && !same {
		differs := false
		for probe := range probeHashes {
			if len(next) > 0 && (len(base) != len(next) || ownerOf(base, probe) != ownerOf(next, probe)) {
				r.touched[probe], differs = true, true
			}
		}
		if resized && r.anyTouched() {
			r.touchAll()
		}
		if differs || had || len(next) == 0 {
			r.before, r.until, r.quiet = base, now.Add(window), 0
		}
	}
	if lookUp && len(next) > 0 {
		r.touchAll()
		r.quiet = 0
	}
}

func (r *referenceTransition) anyTouched() bool {
	for _, touched := range r.touched {
		if touched {
			return true
		}
	}
	return false
}

func (r *referenceTransition) touchAll() {
	for probe := range r.touched {
		r.touched[probe] = true
	}
}

func (r *referenceTransition) settle(now time.Time, tracked bool, flows uint64) {
	switch {
	case r.before != nil && now.After(r.until):
		r.before, r.quiet = nil, 0
		if tracked {
			r.touched = [probeHashes]bool{}
		}
	case r.before != nil || !r.anyTouched():
	case tracked:
		r.touched = [probeHashes]bool{}
	case flows > 0:
		r.quiet = 0
	default:
		if r.quiet++; r.quiet >= quietRounds {
			r.touched = [probeHashes]bool{}
		}
	}
}

// owners are whom the slots of a table lead to.
func (t *Table) ownerList() []netip.AddrPort {
	if t == nil {
		return nil
	}
	list := make([]netip.AddrPort, len(t.Slots))
	for slot, member := range t.Slots {
		list[slot] = t.Owners[member]
	}
	return list
}

// expectSame compares a view with the reference, hash by hash.
func (r *referenceTransition) expectSame(t *testing.T, step int, v View) {
	t.Helper()
	now, base := v.Table.ownerList(), v.Base.ownerList()
	for probe := range probeHashes {
		if got, want := ownerOf(now, probe), ownerOf(r.now, probe); got != want {
			t.Fatalf("step %d: hash %d leads to %v, want %v", step, probe, got, want)
		}
		if got, want := ownerOf(base, probe), ownerOf(r.before, probe); got != want {
			t.Fatalf("step %d: hash %d led to %v before, want %v", step, probe, got, want)
		}
		if len(now) == 0 {
			continue
		}
		slot := probe * len(now) / probeHashes
		if got, want := v.Moved.Has(slot), r.touched[probe]; got != want {
			t.Fatalf("step %d: hash %d (slot %d of %d): moved %t, want %t", step, probe, slot, len(now), got, want)
		}
	}
	if (v.Base != nil) != (r.before != nil) || v.Base != nil && !v.Until.Equal(r.until) {
		t.Fatalf("step %d: a base %t until %v, want %t until %v", step, v.Base != nil, v.Until,
			r.before != nil, r.until)
	}
	if !v.Moved.Empty() {
		count := 0
		for slot := range int(v.Moved.Size) {
			if v.Moved.Has(slot) {
				count++
			}
		}
		if count != v.Moved.Count {
			t.Fatalf("step %d: %d slots have moved, and it says %d", step, count, v.Moved.Count)
		}
	}
}

// expectFigures checks the figures of a transition in the status.
func expectFigures(t *testing.T, step int, v View, now time.Time) {
	t.Helper()
	told := v.Transition()
	if told == nil {
		return
	}
	if told.Since.IsZero() || told.Since.After(now) {
		t.Fatalf("step %d: it began at %v, and it is %v", step, told.Since, now)
	}
	if told.Slots == 0 || told.MovedSlots > told.Slots {
		t.Fatalf("step %d: %d of %d slots moved", step, told.MovedSlots, told.Slots)
	}
	if len(v.Table.Slots) == 0 && told.MovedSlots != told.Slots {
		t.Fatalf("step %d: without a backend %d of %d slots moved, want all", step, told.MovedSlots, told.Slots)
	}
}

// randomService has some of eight backends, some of them not usable.
func randomService(rng *rand.Rand) lb.RoutedService {
	s := routedService(80, []lb.Scheduler{lb.Maglev, lb.Maglev, lb.Maglev, lb.Failover}[rng.IntN(4)], 8)
	s.TableSize = []uint32{251, 251, 251, 127}[rng.IntN(4)]
	for i := range s.Backends {
		switch rng.IntN(6) {
		case 0:
			s.Paths[i].MAC = nil
		case 1:
			s.Backends[i].Weight = 0
		case 2:
			s.Backends[i].Draining = true
		case 3:
			s.Backends[i].Weight = uint16(1 + rng.IntN(3))
		}
	}
	if rng.IntN(12) == 0 {
		s.Backends, s.Paths = nil, nil
	}
	keep := rng.IntN(len(s.Backends) + 1)
	from := rng.IntN(len(s.Backends) - keep + 1)
	s.Backends, s.Paths = s.Backends[from:from+keep], s.Paths[from:from+keep]
	return s
}

// TestTransitions goes through random sequences of changes, of time and of rounds of
// the janitor, and compares the view with the reference after each.
func TestTransitions(t *testing.T) {
	const window = 10 * time.Second
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		now, tracked := time.Unix(1000, 0), false
		v, want := View{}, &referenceTransition{}
		for step := range 120 {
			now = now.Add(time.Duration(rng.IntN(int(window / 2))))
			switch {
			case step == 0 || rng.IntN(3) == 0:
				s := randomService(rng)
				r := RecipeOf(&s, 0)
				next := v.Find(&r)
				if next == nil {
					var err error
					if next, err = r.Build(); err != nil {
						t.Fatal(err)
					}
				}
				was := tracked
				if step > 0 && rng.IntN(10) == 0 {
					tracked = !tracked
				}
				same := v.Table == next
				v = v.With(next, now, window, TableChange{LookUp: was && !tracked})
				want.change(next.ownerList(), same, now, window, was && !tracked)
			default:
				flows := uint64(rng.IntN(2))
				v, _ = v.AfterRound(now, tracked, flows)
				want.settle(now, tracked, flows)
			}
			want.expectSame(t, step, v)
			expectFigures(t, step, v, now)
		}
	}
}

// TestFlaps loses a backend from sight and finds it again 100 times. All the while the
// base is as it was before the first time, and in the end everything is.
func TestFlaps(t *testing.T) {
	s := routedService(80, lb.Maglev, 5)
	all, err := RecipeOf(&s, 1021).Build()
	if err != nil {
		t.Fatal(err)
	}
	s.Paths[2].MAC = nil
	fewer, err := RecipeOf(&s, 1021).Build()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	v := View{}.With(all, now, time.Minute, TableChange{})
	for range 100 {
		for _, next := range []*Table{fewer, all} {
			now = now.Add(time.Second)
			v = v.With(next, now, time.Minute, TableChange{})
			if v.Base != all || !v.Until.Equal(now.Add(time.Minute)) {
				t.Fatal("the base is not the table of before the first change, or the window not the last one's")
			}
		}
	}
	if lost := Differing(all, fewer).Count; v.Moved.Count != lost {
		t.Errorf("%d slots have moved, want the %d that differ meanwhile", v.Moved.Count, lost)
	}
	for range 1 + quietRounds {
		now = now.Add(2 * time.Minute)
		v, _ = v.AfterRound(now, false, 0)
	}
	if v.InTransition() || v.Table != all {
		t.Errorf("in the end: %+v", v)
	}
}

// TestTransitionFigures: the figures of a transition make sense for every scheduler, with any number of backends left.
func TestTransitionFigures(t *testing.T) {
	for _, scheduler := range lb.Schedulers {
		s := routedService(80, scheduler, 2)
		v, slots, now := View{}, 251, time.Unix(1000, 0)
		change := func(what string, do func()) lb.TransitionProgress {
			t.Helper()
			do()
			r := RecipeOf(&s, 251)
			next, err := r.Build()
			if err != nil {
				t.Fatal(err)
			}
			v = v.With(next, now, time.Minute, TableChange{})
			told := v.Transition()
			if told == nil {
				t.Fatalf("%s: %s: no transition", scheduler, what)
			}
			if told.Slots != slots || told.MovedSlots > slots || !told.Base || !told.Since.Equal(now) {
				t.Errorf("%s: %s: %+v, and the table has %d slots", scheduler, what, told, slots)
			}
			return *told
		}
		if scheduler == lb.Failover {
			slots = 1
		}
		first, err := RecipeOf(&s, 251).Build()
		if err != nil {
			t.Fatal(err)
		}
		v = v.With(first, now, time.Minute, TableChange{})
		some := change("one backend drained", func() { s.Backends[0].Draining = true }).MovedSlots
		if some == 0 || slots > 1 && some == slots {
			t.Errorf("%s: with one backend of two drained, %d of %d slots moved", scheduler, some, slots)
		}
		if all := change("both drained", func() { s.Backends[1].Draining = true }).MovedSlots; all != slots {
			t.Errorf("%s: without a backend, %d of %d slots moved", scheduler, all, slots)
		}
		if back := change("one back", func() { s.Backends[1].Draining = false }).MovedSlots; back != some {
			t.Errorf("%s: with one back %d slots moved, want the %d as before", scheduler, back, some)
		}
		change("without a way to any", func() { s.Paths[0].MAC, s.Paths[1].MAC = nil, nil })
	}
}
