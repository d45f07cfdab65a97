// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/results"
)

// bursts puts the load on several times. The trial's result is the fastest burst, and
// names the others. It has none if it is ended early: fewer bursts find less.
func (w *wireTrial) bursts(ctx context.Context) error {
	for range w.trial.By.Wire.Bursts {
		if err := w.once(ctx); err != nil {
			w.got = nil
			return err
		}
	}
	w.got = []results.Trial{fastest(w.got)}
	return nil
}

// fastest is the burst with the highest rate. One that is not valid goes before: that of
// a balancer that was full would otherwise make room for a slower one that is valid.
func fastest(bursts []results.Trial) results.Trial {
	var rates []string
	for _, b := range bursts {
		rates = append(rates, fmt.Sprintf("%.0f", b.Metrics[wireRate(b)]))
	}
	best := slices.MaxFunc(bursts, func(a, b results.Trial) int {
		switch {
		case a.Valid != b.Valid && a.Valid:
			return -1
		case a.Valid != b.Valid:
			return 1
		}
		return int(a.Metrics[wireRate(a)] - b.Metrics[wireRate(b)])
	})
	best.Notes = append(slices.Clone(best.Notes), fmt.Sprintf("the fastest of %d bursts: %s a second", len(bursts), strings.Join(rates, ", ")))
	return best
}
