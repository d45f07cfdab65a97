// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// stateOf is the state of an engine's backends and targets, without the times of single checks.
func stateOf(e *Engine) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var lines []string
	nameOf := func(t *target) string {
		by := ""
		if t.key.by != nil {
			by = fmt.Sprint(*t.key.by)
		}
		return fmt.Sprint(write(t.key.spec.check), t.key.backend, t.key.port, by)
	}
	for key, w := range e.watches {
		line := fmt.Sprint("backend ", key, w.any, w.state, w.since, w.weight, w.drain, w.unconfirmed, w.previous)
		for _, t := range w.targets {
			line += " " + nameOf(t)
		}
		lines = append(lines, line)
	}
	for _, t := range e.targets {
		lines = append(lines, fmt.Sprint("target ", nameOf(t), t.id, t.state, t.reason, len(t.watches), t.since,
			t.uncheckedFor, t.gone))
	}
	for id, m := range e.previous {
		lines = append(lines, fmt.Sprint("previous ", id, m.State, m.Reason))
	}
	for id, m := range e.dropped {
		lines = append(lines, fmt.Sprint("dropped ", id, m.State, m.Reason))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// differenceOf returns the arguments of Amend from one set of checks to another, in any order, with some that stay.
func differenceOf(before, after []Wanted, random *rand.Rand) (put []Wanted, removed []lb.BackendKey) {
	was, gone := map[lb.BackendKey]Wanted{}, map[lb.BackendKey]bool{}
	for _, one := range before {
		was[one.Backend], gone[one.Backend] = one, true
	}
	for _, one := range after {
		delete(gone, one.Backend)
		old, there := was[one.Backend]
		same := there && old.Any == one.Any && old.Mode == one.Mode && slices.Equal(old.Checks, one.Checks)
		if !same || random.IntN(10) == 0 {
			put = append(put, one)
		}
	}
	for key := range gone {
		removed = append(removed, key)
		if random.IntN(10) == 0 {
			removed = append(removed, key)
		}
	}
	if len(put) > 0 && random.IntN(4) == 0 { // one that is named in both is wanted
		removed = append(removed, put[random.IntN(len(put))].Backend)
	}
	random.Shuffle(len(put), func(i, k int) { put[i], put[k] = put[k], put[i] })
	return put, removed
}

// changedOf returns the backends whose verdicts an engine reports as changed, and of which state.
func changedOf(e *Engine) string {
	var lines []string
	for key, v := range e.Changed() {
		lines = append(lines, fmt.Sprint(key, v.State, v.Reason))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestAmendIsWatch gives one engine random checks as a whole, and another one the differences: both know the same
// afterwards, and report the same changes.
func TestAmendIsWatch(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) { amendAndWatch(t, rand.New(rand.NewPCG(seed, 46))) })
	}
}

func amendAndWatch(t *testing.T, random *rand.Rand) {
	f, g := newFake(), newFake()
	whole, amended := run(t, f), run(t, g)
	for _, n := range []int{3, 7, 11} {
		f.says(backend(n), refused)
		g.says(backend(n), refused)
	}
	// Services share endpoints at port 81. Which of several former checks of one endpoint, with other times, a fresh
	// one goes on with is not said: so the others are of one service each.
	elsewhere, byVIP := everySecond(), everySecond()
	elsewhere.Port, byVIP.Via = 81, lb.ViaVIP
	checksOf := func(service uint16) []lb.Check {
		own, slower := everySecond(), everySecond()
		own.Port, slower.Port, slower.Interval = service, service, 3*time.Second
		lists := [][]lb.Check{{own}, {slower}, {elsewhere}, {own, elsewhere}, {elsewhere, elsewhere}, {byVIP},
			{byVIP, slower}}
		return lists[random.IntN(len(lists))]
	}
	wanted := map[lb.BackendKey]Wanted{}
	before := []Wanted(nil)
	for round := range 60 {
		for range 1 + random.IntN(40) {
			key := backendOf(uint16(90+random.IntN(4)), random.IntN(20)).Backend
			switch one, there := wanted[key]; {
			case random.IntN(3) == 0:
				delete(wanted, key)
			case there && random.IntN(2) == 0:
				one.Any = !one.Any
				wanted[key] = one
			default:
				wanted[key] = Wanted{Backend: key, Checks: checksOf(key.Service.Port)}
			}
		}
		if random.IntN(20) == 0 {
			clear(wanted)
		}
		after := slices.Collect(maps.Values(wanted))
		put, removed := differenceOf(before, after, random)
		whole.SetTargets(after)
		amended.UpdateTargets(put, removed)
		before = after
		if a, b := stateOf(whole), stateOf(amended); a != b {
			t.Fatalf("round %d: as a whole, and by the difference:\n%s", round,
				cmp.Diff(strings.Split(a, "\n"), strings.Split(b, "\n")))
		}
		if all := wrongs(amended, after); len(all) > 0 {
			t.Fatalf("round %d: %v", round, all)
		}
		time.Sleep(time.Duration(random.IntN(5000))*time.Millisecond + time.Millisecond)
		synctest.Wait()
		if a, b := changedOf(whole), changedOf(amended); a != b {
			t.Fatalf("round %d: changes as a whole:\n%s\nby the difference:\n%s", round, a, b)
		}
	}
}

// TestAmendForgets amends with ever other checks: what no backend is asked any more is not kept.
func TestAmendForgets(t *testing.T) {
	e := New(Options{Checker: newFake()})
	for i := range 5 * mostIdle {
		check := everySecond()
		check.Timeout = time.Duration(i + 1)
		e.UpdateTargets([]Wanted{{Backend: backendOf(80, 1).Backend, Checks: []lb.Check{check}}}, nil)
	}
	if n := len(e.interner.all); n > 2*mostIdle {
		t.Errorf("%d checks are known, of which one is made", n)
	}
	if len(e.targets) != 1 || len(e.watches) != 1 {
		t.Errorf("%d targets and %d backends are left of 1", len(e.targets), len(e.watches))
	}
}
