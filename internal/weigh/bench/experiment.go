// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Experiment is a kind of load. Each has a folder below bench/kind and is registered by package kind; the rest of the
// run does not depend on it. A trial may have several results, one per step, which a parameter distinguishes.
type Experiment interface {
	// Name is the kind's name in a suite.
	Name() string
	// Check reports the mistakes of a load of this kind, which is at a path.
	Check(l Load, form Form, at Path, fail FailFunc)
	// SkipReason names the limit that keeps the machine from carrying the point, including the needs of the subject;
	// empty if there is none.
	SkipReason(p Point, limits probe.Limits) string
	// Params returns the point's parameters in the results, without those of the subject.
	Params(p Point) map[string]any
	// Programs returns the programs that the experiment's hosts must have.
	Programs() Programs
	// OnMachines returns the reason why the experiment cannot run on the machines of an inventory; empty if it can.
	OnMachines() string
	// Notes returns facts about the measurement that every figure of the form depends on.
	Notes(f Form) []string
	// Prepare starts the servers' programs, once per laboratory. They are stopped with the laboratory.
	Prepare(ctx context.Context, r *Runner) error
	// Services returns the services that the subject balances.
	Services(l *lab.Lab, p Point) []subject.Service
	// Conduct runs one trial while its subject runs. blank is a result that has the point's names filled in. A fault of
	// the point makes results invalid; an error means that the trial as a whole is not valid.
	Conduct(ctx context.Context, r *Runner, t Trial, running subject.Running, blank results.Trial) ([]results.Trial,
		error)
	// Line summarises a trial's results in a few words, for the live view.
	Line(got []results.Trial) string
}

// Programs are the programs that clients and servers must have.
type Programs struct{ Clients, Servers []Program }

// Program is a program, and the flag that prints its version. Needed means that a run cannot do without the program;
// without any other program, only the trials of its kind are not valid.
type Program struct {
	Name, Flag string
	Needed     bool
}

// Version asks this machine for the program's version.
func (p Program) Version(ctx context.Context) (string, error) {
	return probe.Version(ctx, p.Name, p.Flag)
}

// NamespacesOnly returns the reason why an experiment runs in network namespaces only.
func NamespacesOnly(e Experiment) string {
	return e.Name() +
		" needs the laboratory of namespaces: it is conducted step by step in all hosts at once, on one clock and one set of cores"
}

// LineOf summarises a trial with one result: why the trial is not valid, or the text of say about its metrics.
func LineOf(got []results.Trial, say func(m map[string]float64) string) string {
	if t := got[0]; !t.Valid {
		return "not valid: " + t.Notes[0]
	}
	if m := got[0].Metrics; m[results.InstructionsPerRequest] > 0 {
		return fmt.Sprintf("%.0f instructions/request, %.0f failed", m[results.InstructionsPerRequest],
			m[results.Failed])
	}
	return say(got[0].Metrics)
}
