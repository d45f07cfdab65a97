// SPDX-License-Identifier: Apache-2.0

// Package scale measures the cost of the size of a configuration: the time to load a configuration with a hundred
// thousand backends, the time until a change of one backend is in effect in the data plane, and the cost of a packet
// there. It sends packets through BPF_PROG_TEST_RUN, and excludes neighbours, interfaces and their addresses.
package scale

import (
	"context"
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Options set how much is measured.
type Options struct {
	Hook lb.Hook
	// Rounds is the number of times that a configuration is loaded and the cost of a packet is measured.
	Rounds int
	// Changes is the number of changes of each kind; half of them undo the others.
	Changes int
	// Packets is the number of packets for each figure.
	Packets uint32
	// Progress is called with the name of the current step, if set.
	Progress func(what string)
	// shapes is nil for the default shapes.
	shapes []shape
	// flows is the number of flows of a stream, a power of two; 0 means defaultFlows.
	flows uint32
}

// load is the name of the load in the results.
const load = "scale"

// shape is the size of a configuration.
type shape struct{ services, backends int }

// base is the shape that the others are compared with.
var base = shape{1, 10}

var defaultShapes = []shape{{10_000, 10}, {10, 10_000}}

// defaultFlows is more flows than the caches close to a core hold.
const defaultFlows = 1 << 18

// bench is a run of the measurement.
type bench struct {
	Options
	harness *harness.Harness
	trials  []results.Trial
}

// Measure runs the complete measurement on one CPU. If it fails or ctx ends, it also returns the trials until then.
// Errors: datapath.ErrNoRights, the error of ctx.
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
		// The flows of four streams and of two short ones, or the flows recorded to select them.
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

// add adds a trial of a shape. If wrong is not empty, the trial is not valid.
func (b *bench) add(s shape, of string, repeat int, metrics map[string]float64, wrong ...string) *results.Trial {
	b.trials = append(b.trials, results.Trial{
		Subject: fmt.Sprintf("jeoul-l2dsr-%s", b.Hook), Load: load, Repeat: repeat,
		Params: map[string]any{"services": s.services, "backends": s.backends, "of": of},
		Valid:  len(wrong) == 0, Saturated: results.SaturatedNone, Notes: append([]string{}, wrong...),
		Metrics: metrics,
	})
	return &b.trials[len(b.trials)-1]
}
