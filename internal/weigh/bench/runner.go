// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"io"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/remote"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// ResultsFile is the name of a run's results in its directory.
const ResultsFile = "results.json"

// Options set how a suite runs.
type Options struct {
	Suite *Suite
	// Quick selects the suite's short form.
	Quick bool
	// Only and Loads select the subjects and the loads; empty means all.
	Only, Loads []string
	// Repeats is how often every point is measured; 0 means the suite's number.
	Repeats int
	// Enough, if it is not nil, is called after every complete repeat. If it returns a reason, the run ends early,
	// without an error.
	Enough func(*results.Run) string
	// Dir is the directory for the results. It is created if it is missing.
	Dir string
	// Inventory, if it is not nil, has the machines that replace the namespaces.
	Inventory *remote.Inventory
	// Resume continues the run whose results are in Dir.
	Resume bool
	// Command is the command line, for the results.
	Command string
	// Version and Commit are those of jeoul, Executable the path of its binary.
	Version, Commit, Executable string
	// Other is the path of another build of jeoul, for upgrades of subjects; it may be empty.
	Other string
	// Virtual is the virtual machine of this process; nil if there is none.
	Virtual *results.Virtual
	// Progress gets the progress of the run. Live means that it is a terminal, with Columns columns.
	Progress io.Writer
	Live     bool
	Columns  func() int
}

// Counts reports whether the run is in a machine whose clock counts instructions.
func (o Options) Counts() bool { return o.Virtual != nil && o.Virtual.Instructions }

// Slowdown returns the factor by which all times are longer than normal. A machine that is emulated with the host's
// clock is some ten times slower. A machine that counts instructions has its own clock.
func (o Options) Slowdown() time.Duration {
	if o.Virtual != nil && o.Virtual.Accelerator == emulated {
		return 10
	}
	return 1
}

// emulated is the accelerator of an emulated machine (see package vm).
const emulated = "tcg"

// Runner is a running run of a suite.
type Runner struct {
	Options Options
	Form    Form
	Absent  Absent
	// Grace is how long a generator may run beyond the time of its load.
	Grace    time.Duration
	progress *progress
	Results  *results.Run
	Limits   probe.Limits
	Lab      *lab.Lab
	// tuned is the present tuning of the hosts.
	tuned tuning
	// labState are the values that experiments keep for this laboratory, runState those that they keep for the run.
	labState, runState map[string]any
	// Hooks of experiments. Alive are called after each trial and check that the servers of all subjects still run.
	// AfterTrial clean up after each trial. Retuned are called when hosts have been tuned again. AtEnd undo, before the
	// laboratory ends, the changes that do not end with it.
	Alive, AfterTrial, AtEnd []func() error
	Retuned                  []func(context.Context) error
	// unsaved means that saving has failed, and would fail again.
	unsaved bool
	// settled are notes on the remains of the previous trial, for the next one.
	settled []string
	// limitsBefore are the limits of the run that is resumed.
	limitsBefore map[string]string
	// history are events of the run that readers of its figures must know.
	history []string
}

// tuning is the present tuning of the laboratory's hosts.
type tuning struct {
	by, mode string
	changed  int
	notes    []string
}

// LabState returns the value that the laboratory keeps under a name. The first call creates it.
func LabState[T any](r *Runner, name string) *T { return stateIn[T](&r.labState, name) }

// RunState returns the value that the run keeps under a name. The first call creates it.
func RunState[T any](r *Runner, name string) *T { return stateIn[T](&r.runState, name) }

func stateIn[T any](kept *map[string]any, name string) *T {
	if *kept == nil {
		*kept = map[string]any{}
	}
	if (*kept)[name] == nil {
		(*kept)[name] = new(T)
	}
	return (*kept)[name].(*T)
}
