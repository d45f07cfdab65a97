// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// bursts puts the load on several times. The trial's result is the fastest burst, and
// samples has the others too. It has none if it is ended early: fewer bursts find less.
func (w *wireTrial) bursts(ctx context.Context) error {
	for i := range w.trial.By.Wire.Bursts {
		if err := w.burst(ctx, i); err != nil {
			w.got = nil
			return err
		}
	}
	w.got = []results.Trial{fastest(w.got)}
	return nil
}

// burst is the burst of this number, after the pause between two. What the
// balancer did in the pause is not counted.
func (w *wireTrial) burst(ctx context.Context, number int) (err error) {
	if number > 0 && w.trial.By.Wire.Pause > 0 {
		if err := clock.Sleep(ctx, w.trial.By.Wire.Pause); err != nil {
			return err
		}
		if w.last, err = w.read(); err != nil {
			return err
		}
	}
	return w.once(ctx)
}

// fastest is the burst with the highest rate. One in which the balancer was full goes
// before: it is not valid, and would otherwise make room for a slower one that is. One in
// which nothing came to anything is slow and no more: the tester's core may have stood still.
func fastest(bursts []results.Trial) results.Trial {
	var rates []float64
	for _, b := range bursts {
		rates = append(rates, b.Metrics[wireRate(b)])
	}
	best := slices.MaxFunc(bursts, func(a, b results.Trial) int {
		switch full := wasFull(a); {
		case full != wasFull(b) && full:
			return 1
		case full != wasFull(b):
			return -1
		}
		return int(a.Metrics[wireRate(a)] - b.Metrics[wireRate(b)])
	})
	best.Samples = map[string][]float64{wireRate(best): rates}
	return best
}

// wasFull says whether a result is not valid because the balancer was full.
func wasFull(t results.Trial) bool {
	return len(t.Notes) > 0 && strings.HasPrefix(t.Notes[0], fullSetup)
}
