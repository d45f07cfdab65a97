// SPDX-License-Identifier: Apache-2.0

// Package scale measures the cost of a configuration's size: how long it takes to load one with a hundred thousand
// backends, and until one backend's change is in the data plane, and the cost of a packet there. Packets are sent
// through BPF_PROG_TEST_RUN; neighbours, interfaces and their addresses are not part of it.
package scale

import (
	"context"
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Options say how much and how long to measure.
type Options struct {
	Hook lb.Hook
	// Rounds is how often a configuration is loaded and a packet's cost is measured.
	Rounds int
	// Changes of each kind are made, half of them back again.
	Changes int
	// Packets make one figure.
	Packets uint32
	// Progress is called with the name of the current step, if set.
	Progress func(what string)
	// shapes are nil for the usual ones.
	shapes []shape
	// flows is how many there are in a stream, a power of two; 0 means many.
	flows uint32
}

// load is the load's name in the results of these trials.
const load = "scale"

// shape is the size of a configuration.
type shape struct{ services, backends int }

// base is the shape that the others are held against.
var base = shape{1, 10}

var defaultShapes = []shape{{10_000, 10}, {10, 10_000}}

// defaultFlows are more than the caches near a core hold.
const defaultFlows = 1 << 18

// bench is one run of the measurement.
type bench struct {
	Options
	harness *harness.Harness
	trials  []results.Trial
}

// Measure runs all of it on one CPU. Where it fails, or ctx ends, the trials until then
// are returned too. Errors: datapath.ErrNoRights, the context's.
func Measure(ctx context.Context, options Options) ([]results.Trial, error) {
	if options.shapes == nil {
		options.shapes = defaultShapes
	}
	if options.flows == 0 {
		options.flows = defaultFlows
	}
	if options.Progress == nil {
		options.Progress = func(string) {}
	}
	b := &bench{Options: options}
	err := harness.Pinned(func() error {
		var err error
		// The flows of four streams and of two short ones, or those recorded in between.
		if b.harness, err = harness.New(options.Hook, 6*options.flows); err != nil {
			return err
		}
		defer b.harness.Close()
		for _, s := range append([]shape{base}, options.shapes...) {
			if err := b.loads(ctx, s); err != nil {
				return fmt.Errorf("%v: %w", s, err)
			}
		}
		for _, s := range options.shapes {
			if err := b.shape(ctx, s); err != nil {
				return fmt.Errorf("%v: %w", s, err)
			}
		}
		return nil
	})
	return b.trials, err
}

// shape makes changes in a configuration of a shape, and measures its packets.
func (b *bench) shape(ctx context.Context, s shape) error {
	if err := b.changes(ctx, s); err != nil {
		return err
	}
	return b.packets(ctx, s)
}

func (s shape) String() string {
	return fmt.Sprintf("services: %d, backends of each: %d", s.services, s.backends)
}

// add adds a trial of a shape. Where wrong is not empty it is not valid.
func (b *bench) add(s shape, of string, repeat int, metrics map[string]float64, wrong ...string) *results.Trial {
	b.trials = append(b.trials, results.Trial{
		Subject: fmt.Sprintf("jeoul-l2dsr-%s", b.Hook), Load: load, Repeat: repeat,
		Params: map[string]any{"services": s.services, "backends": s.backends, "of": of},
		Valid:  len(wrong) == 0, Saturated: results.SaturatedNone, Notes: append([]string{}, wrong...),
		Metrics: metrics,
	})
	return &b.trials[len(b.trials)-1]
}
