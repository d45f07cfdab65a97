// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/results"
)

// Options say how long to measure.
type Options struct {
	// Rounds is how often each figure is measured; the cases of a round follow
	// each other, so that a slow moment of the machine hits all alike.
	Rounds int
	// Packets is how many packets make one figure.
	Packets uint32
	// Hooks are XDP, TC or both.
	Hooks []lb.Hook
	// Progress is called after each round, if set.
	Progress func(round, rounds int)
	// flowCounts are powers of two, ascending; nil means defaultFlowCounts.
	flowCounts []uint32
}

// load is the name of what drives these trials.
const load = "packets"

// Measure runs every case of every hook, on one CPU and in a network namespace
// of its own. Where it fails, or ctx ends, the trials of the rounds that were
// finished are returned too.
func Measure(ctx context.Context, options Options) (trials []results.Trial, err error) {
	if options.flowCounts == nil {
		options.flowCounts = defaultFlowCounts
	}
	router, err := newRouter()
	if err != nil {
		return nil, err
	}
	defer router.Close()
	// Its thread is used for nothing else afterwards, so neither the namespace
	// nor the affinity is inherited.
	err = router.Do(func() error {
		if err := pin(); err != nil {
			return err
		}
		var err error
		trials, err = measureAll(ctx, options)
		return err
	})
	return trials, err
}

func measureAll(ctx context.Context, options Options) ([]results.Trial, error) {
	var rigs []*rig
	defer func() {
		for _, r := range rigs {
			r.close()
		}
	}()
	for _, hook := range options.Hooks {
		most := options.flowCounts[len(options.flowCounts)-1]
		r, err := newRig(hook, most, options.Packets)
		if err != nil {
			return nil, err
		}
		rigs = append(rigs, r)
		if err := r.ready(cases(hook, options.flowCounts)); err != nil {
			return nil, err
		}
	}
	var trials []results.Trial
	for round := 1; round <= options.Rounds; round++ {
		for i, hook := range options.Hooks {
			made, err := measureRound(ctx, rigs[i], cases(hook, options.flowCounts), round)
			if err != nil {
				return trials, err
			}
			trials = append(trials, made...)
		}
		if options.Progress != nil {
			options.Progress(round, options.Rounds)
		}
	}
	return trials, nil
}

// measureRound measures each case of a hook once.
func measureRound(ctx context.Context, r *rig, list []measured, round int) ([]results.Trial, error) {
	if err := r.lay(); err != nil {
		return nil, err
	}
	var trials []results.Trial
	for id, m := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		trial := results.Trial{
			Subject: m.subject, Load: load, Params: m.params(), Repeat: round,
			Valid: true, Saturated: results.SaturatedNone, Notes: []string{},
		}
		var err error
		trial.Metrics, err = r.figures(id, m)
		switch {
		case errors.Is(err, errOutcome):
			trial.Valid, trial.Notes = false, []string{err.Error()}
		case err != nil:
			return nil, fmt.Errorf("%v: %w", m, err)
		}
		trials = append(trials, trial)
	}
	return trials, nil
}

// figures measures a case, and right before it the empty program under the same
// packets: on a shared machine, what is measured a moment later is measured on
// another machine.
func (r *rig) figures(id int, m measured) (map[string]float64, error) {
	empty, err := uninterrupted(func() (float64, error) { return r.measureEmpty(m, r.packets) })
	if err != nil {
		return nil, err
	}
	ns := empty
	if m.subject != subjectEmpty {
		if ns, err = uninterrupted(func() (float64, error) { return r.measure(id, m, r.packets) }); err != nil {
			return nil, err
		}
	}
	return map[string]float64{
		results.NsPerPacket:  ns,
		results.NsNetOfEmpty: ns - empty,
		results.RatioToEmpty: ns / empty,
	}, nil
}

// pin keeps the calling thread on one CPU, so that caches stay
// warm and per-CPU maps are those of one CPU.
func pin() error {
	var allowed, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("asking which CPUs may be used: %w", err)
	}
	// The last one: interrupts tend to go to the first.
	cpu := 0
	for i := range len(allowed) * 64 {
		if allowed.IsSet(i) {
			cpu = i
		}
	}
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning the measurement to CPU %d: %w", cpu, err)
	}
	return nil
}
