// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/procfs"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// wireWatch is the interval between two readings of the state that a subject stores.
const wireWatch = 500 * time.Millisecond

// watch reads how much state the subject of a load that holds connections stores, until stop is called.
func (w *wireTrial) watch(ctx context.Context) (stop func() error, err error) {
	if settingsOf(w.trial.By).Load != wire.Capacity {
		return func() error { return nil }, nil
	}
	if w.stored.before, err = available(); err != nil {
		return nil, err
	}
	w.stored.least = w.stored.before
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(wireWatch)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-ticker.C:
			}
			if err := w.sample(ctx); err != nil && ctx.Err() == nil {
				ended <- err
				return
			}
		}
	}()
	return func() error {
		cancel()
		return <-ended
	}, nil
}

// sample takes one reading.
func (w *wireTrial) sample(ctx context.Context) error {
	now, err := available()
	if err != nil {
		return err
	}
	w.stored.least = min(w.stored.least, now)
	remembering, ok := w.running.(subject.Remembering)
	if !ok {
		return nil
	}
	kept, err := remembering.Remembered(ctx)
	if err != nil {
		return err
	}
	kept.Flows = max(kept.Flows, w.stored.remembered.Flows)
	w.stored.remembered = kept
	return nil
}

// write adds the readings to a result. It must not run concurrently with sample.
func (k storedState) write(got *results.Trial) {
	got.Metrics[results.MachineBytes] = float64(k.before - k.least)
	of := k.remembered
	if of.What == "" {
		return
	}
	got.Metrics[results.RememberedMax] = float64(of.Flows)
	if of.Limit > 0 {
		got.Metrics[results.RememberedLimit] = float64(of.Limit)
	}
	if of.Bytes > 0 {
		got.Metrics[results.RememberedBytes] = float64(of.Bytes)
	}
	got.Notes = append(got.Notes, fmt.Sprintf("what it kept: %s", of.What))
}

// fullReason returns why the subject could hold no more of the connections that a step set up; empty if it could.
func (w *wireTrial) fullReason(ctx context.Context, step wire.Step) (string, error) {
	if step.Kind != wire.Setup && step.Kind != wire.Session {
		return "", nil
	}
	of := wireResult{wireTrial: w, step: step}
	if reason := w.reachedLimit([]wire.Step{step}); reason != "" {
		return reason, nil
	}
	remembering, ok := w.running.(subject.Remembering)
	if !ok || float64(step.Begun-min(of.done(), step.Begun)) <= wireLoss*float64(step.Begun) {
		return "", nil
	}
	kept, err := remembering.Remembered(ctx)
	if err != nil || kept.Limit == 0 || float64(kept.Flows) < nearlyAll*float64(kept.Limit) {
		return "", err
	}
	return fmt.Sprintf("%d of at most %d %s", kept.Flows, kept.Limit, kept.What), nil
}

// fullSetup begins the note on connections that filled the subject.
const fullSetup = "it was full, so this is how many it holds, and not how fast it sets them up: "

// reachedLimit returns the known limit of the subject that the connections of a Setup step reached; empty if no step
// reached one.
func (w *wireTrial) reachedLimit(steps []wire.Step) string {
	for _, step := range steps {
		if step.Kind != wire.Setup {
			continue
		}
		done := wireResult{wireTrial: w, step: step}.done()
		if reason := w.trial.Subject.SkipReason(w.trial.Params, int(done)+1, w.runner.Limits); reason != "" {
			return reason
		}
	}
	return ""
}

// nearlyAll is the share of a subject's capacity from which on it counts as full.
const nearlyAll = 0.98

// available returns the memory that the machine has available, in bytes.
func available() (bytes uint64, err error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, fmt.Errorf("reading the machine's memory: %w", err)
	}
	memory, err := proc.Meminfo()
	if err == nil && memory.MemAvailableBytes == nil {
		err = errors.New("the kernel tells no MemAvailable")
	}
	if err != nil {
		return 0, fmt.Errorf("reading the machine's memory: %w", err)
	}
	return *memory.MemAvailableBytes, nil
}
