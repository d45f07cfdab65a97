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

// Options say how a suite is to be run.
type Options struct {
	Suite *Suite
	// Quick takes the suite's short form.
	Quick bool
	// Only leaves out all subjects but these, Loads all loads but these; none means
	// all.
	Only, Loads []string
	// Repeats is how often every point is measured; 0 means as the suite says.
	Repeats int
	// Enough, if it is not nil, is asked after every whole repeat; the run ends early, and well, for a reason that it
	// returns.
	Enough func(*results.Run) string
	// Dir is where the results go; it is made if it is missing.
	Dir string
	// Inventory, if it is not nil, are the machines that take the namespaces' place.
	Inventory *remote.Inventory
	// Resume goes on with the run that Dir has the results of.
	Resume bool
	// Command is the command line, for the results.
	Command string
	// Version and Commit are those of jeoul, Executable the path of its binary.
	Version, Commit, Executable string
	// Other is the path of another build of jeoul, for subjects that are upgraded to it; it may be empty.
	Other string
	// Virtual is the virtual machine that this process is in; nil if it is in none.
	Virtual *results.Virtual
	// Progress is told how far the run is; Live says that it is a terminal, of so
	// many columns.
	Progress io.Writer
	Live     bool
	Columns  func() int
}

// Counts reports whether the run is in a machine whose clock counts instructions.
func (o Options) Counts() bool { return o.Virtual != nil && o.Virtual.Instructions }

// Slowdown is how many times longer than elsewhere things may take: a machine that is
// emulated by the host's clock is some ten times slower. One that counts has a clock of
// its own.
func (o Options) Slowdown() time.Duration {
	if o.Virtual != nil && o.Virtual.Accelerator == emulated {
		return 10
	}
	return 1
}

// emulated is the accelerator of a machine that is translated (see package vm).
const emulated = "tcg"

// Runner is a run on its way.
type Runner struct {
	Options Options
	Form    Form
	Absent  Absent
	// Grace is how long a generator may take beyond the time of its load.
	Grace    time.Duration
	progress *progress
	Results  *results.Run
	Limits   probe.Limits
	Lab      *lab.Lab
	// tuned is how the hosts are tuned now.
	tuned tuning
	// kept are the values that experiments keep for this laboratory, keptAll those for the run.
	kept, keptAll map[string]any
	// Hooks of experiments: Alive are called after each trial to check that the servers of all subjects still run,
	// AfterTrial tidies up behind each, Retuned is called when hosts were tuned again, and AtEnd takes things back
	// before the laboratory goes that do not go with it.
	Alive, AfterTrial, AtEnd []func() error
	Retuned                  []func(context.Context) error
	// unsaved: saving has failed, and so would again.
	unsaved bool
	// settled are notes on the remains of the last trial, for the next.
	settled []string
	// limitsBefore are the limits of the run that is gone on with.
	limitsBefore map[string]string
	// history are events of the run that a reader of its figures must know of.
	history []string
}

// tuning is how the laboratory's hosts are tuned now.
type tuning struct {
	by, mode string
	changed  int
	notes    []string
}

// KeptOf returns the value that is kept of the laboratory under a name, made at first.
func KeptOf[T any](r *Runner, name string) *T { return keptIn[T](&r.kept, name) }

// KeptOfRun returns the value that is kept of the whole run under a name, made at first.
func KeptOfRun[T any](r *Runner, name string) *T { return keptIn[T](&r.keptAll, name) }

func keptIn[T any](kept *map[string]any, name string) *T {
	if *kept == nil {
		*kept = map[string]any{}
	}
	if (*kept)[name] == nil {
		(*kept)[name] = new(T)
	}
	return (*kept)[name].(*T)
}
