// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// wireTester is a tester that stays on its ports from trial to trial while their arrangement stays the same: loading a
// program for each port takes longer than a short trial.
type wireTester struct {
	tester *wire.Tester
	// key identifies the arrangement of the tester.
	key string
	// atEnd means that the end of the laboratory closes the tester.
	atEnd bool
}

// testerFor returns a tester for the arrangement: the present one, or a new one that replaces it.
func (w *wireTester) testerFor(ctx context.Context, spec wire.Spec) (*wire.Tester, error) {
	key := specKey(spec)
	if w.tester != nil && w.key == key {
		return w.tester, nil
	}
	if err := w.close(); err != nil {
		return nil, err
	}
	tester, err := wire.New(ctx, spec)
	if err != nil {
		return nil, err
	}
	w.tester, w.key = tester, key
	return tester, nil
}

// specKey returns a text with everything that differs between the testers of a run. In one laboratory, the name of
// a port identifies it.
func specKey(spec wire.Spec) string {
	for _, ports := range []*[]wire.Port{&spec.Clients, &spec.Servers} {
		named := make([]wire.Port, len(*ports))
		for i, p := range *ports {
			p.Do = nil
			named[i] = p
		}
		*ports = named
	}
	return fmt.Sprintf("%+v", spec)
}

// close removes the programs from the ports.
func (w *wireTester) close() error {
	if w.tester == nil {
		return nil
	}
	err := w.tester.Close()
	w.tester = nil
	return err
}

// testerOf returns the tester of the laboratory's last packet-level load, for the next load with the same arrangement.
func testerOf(r *bench.Runner) *wireTester {
	w := bench.LabState[wireTester](r, kind{}.Name())
	if !w.atEnd {
		w.atEnd = true
		r.AtEnd = append(r.AtEnd, w.close)
	}
	return w
}

// wireTrial is a trial while its subject runs.
type wireTrial struct {
	runner  *bench.Runner
	trial   bench.Trial
	running subject.Running
	tester  *wire.Tester
	// last is the reading before the step that runs.
	last   wireReading
	stored storedState
	got    []results.Trial
	// blank has the trial's names filled in.
	blank results.Trial
}

// wireReading is a reading of the laboratory at one moment.
type wireReading struct {
	cpu   time.Duration // the balancer's
	drops map[string]uint64
}

// storedState is the maximum state that a subject stored for flows, and the machine's memory for it.
type storedState struct {
	remembered subject.Remembered
	before     uint64 // available memory
	least      uint64
}

// wireResult is a step, and the readings before and after it.
type wireResult struct {
	*wireTrial
	step     wire.Step
	from, to wireReading
}
