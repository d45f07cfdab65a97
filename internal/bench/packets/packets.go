// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"fmt"
	"runtime"

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

// Measure runs every case of every hook, on one CPU. Where it fails, or ctx
// ends, the trials of the rounds that were finished are returned too.
func Measure(ctx context.Context, options Options) (trials []results.Trial, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Not unlocked: the thread ends with the goroutine, and with it the
		// affinity, which nothing else may inherit.
		runtime.LockOSThread()
		if err = pin(); err == nil {
			trials, err = measureAll(ctx, options)
		}
	}()
	<-done
	return trials, err
}

func measureAll(ctx context.Context, options Options) ([]results.Trial, error) {
	if options.flowCounts == nil {
		options.flowCounts = defaultFlowCounts
	}
	var rigs []*rig
	defer func() {
		for _, r := range rigs {
			r.close()
		}
	}()
	for _, hook := range options.Hooks {
		r, err := newRig(hook)
		if err != nil {
			return nil, err
		}
		rigs = append(rigs, r)
		for _, m := range cases(hook, options.flowCounts) {
			if err := r.prime(m); err != nil {
				return nil, fmt.Errorf("%v: %w", m, err)
			}
		}
	}
	var trials []results.Trial
	for round := 1; round <= options.Rounds; round++ {
		for i, hook := range options.Hooks {
			made, err := measureRound(ctx, rigs[i], cases(hook, options.flowCounts), round, options.Packets)
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

// measureRound measures each case of a hook once, and right before it the empty
// program under the same packets: on a shared machine, what is measured a
// moment later is measured on another machine.
func measureRound(ctx context.Context, r *rig, list []measured, round int, packets uint32) ([]results.Trial, error) {
	// Where the tables happen to lie in memory is worth some nanoseconds. Laid
	// out anew for each round, no luck, good or bad, lasts for a whole run.
	if err := r.balancer.Apply(state()); err != nil {
		return nil, err
	}
	var trials []results.Trial
	for id, m := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		empty, err := uninterrupted(func() (float64, error) { return r.measureEmpty(m, packets) })
		if err != nil {
			return nil, err
		}
		ns := empty
		if m.subject != subjectEmpty {
			if ns, err = uninterrupted(func() (float64, error) { return r.measure(id, m, packets) }); err != nil {
				return nil, err
			}
		}
		trials = append(trials, results.Trial{
			Subject: m.subject, Load: load, Params: m.params(), Repeat: round,
			Valid: true, Saturated: results.SaturatedNone, Notes: []string{},
			Metrics: map[string]float64{
				results.NsPerPacket:  ns,
				results.NsNetOfEmpty: ns - empty,
				results.RatioToEmpty: ns / empty,
			},
		})
	}
	return trials, nil
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
