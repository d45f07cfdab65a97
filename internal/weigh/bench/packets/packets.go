// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
	"github.com/jeoul/jeoul/internal/weigh/bench/packets/object"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// load is the name of the load in the results.
const load = "packets"

// Measure runs every case of every hook, on one CPU and in a network namespace of its own. If it fails or ctx ends, it
// also returns the trials of the completed rounds.
func Measure(ctx context.Context, options Options) (trials []results.Trial, err error) {
	if options.flowCounts == nil {
		options.flowCounts = defaultFlowCounts
	}
	options.Hooks = options.hooks()
	router, err := newRouter()
	if err != nil {
		return nil, err
	}
	defer router.Close()
	// Its thread is used for nothing else afterwards, so no other thread inherits the namespace or the affinity.
	err = router.Do(func() error {
		if err := harness.Pin(); err != nil {
			return err
		}
		var err error
		trials, err = measureAll(ctx, options)
		return err
	})
	return trials, err
}

func measureAll(ctx context.Context, options Options) ([]results.Trial, error) {
	lists := make([][]benchCase, len(options.Hooks))
	chosen := 0
	for i, hook := range options.Hooks {
		lists[i] = slices.DeleteFunc(options.cases(hook), func(m benchCase) bool {
			always := m.object != nil || m.subject == harness.Empty
			return !always && options.Only != nil && !options.Only.MatchString(m.String())
		})
		for _, m := range lists[i] {
			if m.subject != harness.Empty {
				chosen++
			}
		}
	}
	if chosen == 0 {
		return nil, ErrNothing
	}
	var trials []results.Trial
	for repeat := 1; repeat <= options.Repeats; repeat++ {
		var rounds [][]results.Trial
		for range options.Rounds {
			var round []results.Trial
			for i, hook := range options.Hooks {
				made, err := measureRound(ctx, hook, lists[i], options, repeat)
				if err != nil {
					return trials, err
				}
				round = append(round, made...)
			}
			rounds = append(rounds, round)
			if options.Progress != nil {
				options.Progress((repeat-1)*options.Rounds+len(rounds), options.Repeats*options.Rounds)
			}
		}
		trials = append(trials, fastest(rounds)...)
	}
	return trials, nil
}

// ErrNothing means that Options.Only leaves nothing to measure.
var ErrNothing = errors.New("no figure is left to be measured")

// Cases returns the cases of which Options.Only selects some, as a line each.
func Cases(hook lb.Hook) []string {
	var list []string
	for _, m := range cases(hook, defaultFlowCounts) {
		list = append(list, m.String())
	}
	return list
}

// fastest combines the trials of each case to one: its fastest packet, less the fastest of the empty program. One
// invalid trial makes the combined trial invalid, because its cause is not known.
func fastest(rounds [][]results.Trial) []results.Trial {
	trials := rounds[0]
	if len(rounds) == 1 {
		return trials
	}
	for i := range trials {
		var whole, empty []float64
		for _, round := range rounds {
			t := round[i]
			if !t.Valid {
				trials[i] = t
				break
			}
			whole = append(whole, t.Metrics[results.NsPerPacket])
			empty = append(empty, t.Metrics[results.NsPerPacket]-t.Metrics[results.NsNetOfEmpty])
		}
		if !trials[i].Valid {
			continue
		}
		trials[i].Metrics = metricsOf(slices.Min(whole), slices.Min(empty))
		trials[i].Samples = map[string][]float64{results.NsPerPacket: whole, results.NsEmpty: empty}
	}
	return trials
}

// metricsOf returns the metrics of a packet, from its nanoseconds and those of the empty program.
func metricsOf(whole, empty float64) map[string]float64 {
	return map[string]float64{
		results.NsPerPacket:  whole,
		results.NsNetOfEmpty: whole - empty,
		results.RatioToEmpty: whole / empty,
	}
}

// measureRound measures each case of a hook once.
func measureRound(ctx context.Context, hook lb.Hook, list []benchCase, options Options,
	repeat int) ([]results.Trial, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r, err := newRig(hook, list, slices.Max(options.flowCounts), options.Packets)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.load(options.Object); err != nil {
		return nil, err
	}
	var trials []results.Trial
	for id, m := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		trial := results.Trial{
			Subject: m.subject, Load: load, Params: m.params(), Repeat: repeat,
			Valid: true, Saturated: results.SaturatedNone, Notes: []string{},
		}
		trial.Metrics, err = r.figures(id, m)
		switch {
		case errors.Is(err, errOutcome), errors.Is(err, object.ErrOutcome):
			trial.Valid, trial.Notes = false, []string{err.Error()}
		case err != nil:
			return nil, fmt.Errorf("%v: %w", m, err)
		}
		trials = append(trials, trial)
	}
	return trials, nil
}

// figures measures a case, and right before it the empty program with the same packets: the speed of a shared machine
// changes within moments.
func (r *rig) figures(id int, m benchCase) (map[string]float64, error) {
	empty, err := harness.Uninterrupted(func() (float64, error) { return r.measureEmpty(m, r.packets) })
	if err != nil {
		return nil, err
	}
	ns := empty
	if m.subject != harness.Empty {
		if ns, err = harness.Uninterrupted(func() (float64, error) { return r.measure(id, m, r.packets) }); err != nil {
			return nil, err
		}
	}
	return metricsOf(ns, empty), nil
}
