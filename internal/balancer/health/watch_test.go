// SPDX-License-Identifier: Apache-2.0

package health

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// wrongs returns the contradictions between an engine's state and the checks that it was given last.
func wrongs(e *Engine, wanted []Wanted) (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	say := func(ok bool, text string) {
		if !ok && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	say(len(e.watches) == len(wanted), "other backends are watched than are wanted")
	for _, one := range wanted {
		w := e.watches[one.Backend]
		if w == nil {
			say(false, "a backend is not watched")
			continue
		}
		say(len(w.targets) == len(one.Checks), "a backend has other checks")
		for i, t := range w.targets {
			say(e.targets[t.key] == t && !t.gone, "a backend has a target that is gone")
			say(t.key.spec.check == one.Checks[i], "a target asks something else")
			say(slices.Contains(t.watches, w), "a target does not know its backend")
		}
	}
	rate, waiting := 0.0, 0
	for _, t := range e.targets {
		say(len(t.watches) > 0, "nothing wants a target")
		for i, w := range t.watches {
			say(e.watches[w.backend] == w && slices.Contains(w.targets, t), "a target has a backend that is gone")
			say(!slices.Contains(t.watches[:i], w), "a target has a backend twice")
		}
		rate += 1 / t.ratedInterval.Seconds()
		if t.queueIndex >= 0 {
			waiting++
			say(e.queue[t.queueIndex] == t, "a target is not at its place in the queue")
		}
	}
	say(waiting == len(e.queue), "the queue has others than the targets")
	say(e.bucket.rate-rate < 1e-6 && rate-e.bucket.rate < 1e-6, "the mean rate is not that of the targets")
	return all
}

// TestWatchChanges gives a running engine one random configuration after the other, larger than a batch, with backends
// that services share.
func TestWatchChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		e := run(t, f)
		f.says(backend(7), refused)
		slower, elsewhere := everySecond(), everySecond()
		slower.Interval, elsewhere.Port = 3*time.Second, 81
		lists := [][]lb.Check{{everySecond()}, {slower}, {elsewhere}, {everySecond(), elsewhere},
			{elsewhere, elsewhere}}
		random := rand.New(rand.NewPCG(26, 1))
		for round := range 30 {
			var wanted []Wanted
			services, kinds := random.IntN(4), 1+random.IntN(len(lists))
			for s := range services {
				for i := range 3 * batch {
					if random.IntN(8) == 0 {
						continue
					}
					key := backendOf(uint16(80+s), 0).Backend
					key.Address = netip.AddrFrom4([4]byte{192, 0, byte(2 + i>>8), byte(i)})
					wanted = append(wanted, Wanted{Backend: key, Checks: lists[random.IntN(kinds)],
						Any: random.IntN(20) == 0})
				}
			}
			random.Shuffle(len(wanted), func(i, k int) { wanted[i], wanted[k] = wanted[k], wanted[i] })
			e.SetTargets(wanted)
			if all := wrongs(e, wanted); len(all) > 0 {
				t.Fatalf("round %d: %v", round, all)
			}
			time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond)
			if all := wrongs(e, wanted); len(all) > 0 {
				t.Fatalf("round %d, later: %v", round, all)
			}
		}
	})
}
