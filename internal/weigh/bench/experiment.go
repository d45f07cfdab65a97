// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Experiment is a kind of load: a folder below bench/kind each, which package kind registers and which nothing else of
// the run knows. A trial of it may have several results, one a step, told apart by a parameter.
type Experiment interface {
	// Name is the kind's name in a suite.
	Name() string
	// Check reports the mistakes of a load of this kind, at its path.
	Check(l Load, form Form, at Path, fail FailFunc)
	// Obstacle names the limit that keeps the machine from carrying the point, be it by the subject's needs; empty if
	// there is none.
	Obstacle(p Point, limits probe.Limits) string
	// Params are the point's parameters in the results; the subject's own are added.
	Params(p Point) map[string]any
	// Programs are the programs that its hosts must have.
	Programs() Programs
	// OnMachines says why it cannot run on the machines of an inventory; empty if it can.
	OnMachines() string
	// Notes are facts about the measuring that every figure of the form depends on.
	Notes(f Form) []string
	// Prepare starts the servers' programs, once a laboratory; it goes with that.
	Prepare(ctx context.Context, r *Runner) error
	// Services are the services of the subject.
	Services(l *lab.Lab, p Point) []subject.Service
	// Conduct runs one trial with its subject up, from results that have the
	// point's names filled in. A fault of the point makes results
	// invalid; an error means that the trial as a whole is not valid.
	Conduct(ctx context.Context, r *Runner, t Trial, running subject.Running, blank results.Trial) ([]results.Trial,
		error)
	// Line sums a trial's results up in a few words, for the live view.
	Line(got []results.Trial) string
}

// Programs are the programs that clients and servers must have.
type Programs struct{ Clients, Servers []Program }

// Program is a program, and the flag by which it tells its version. Needed says that a run cannot do without it;
// without another, the trials of its kind are not valid.
type Program struct {
	Name, Flag string
	Needed     bool
}

// Version asks this machine for the program's version.
func (p Program) Version(ctx context.Context) (string, error) {
	return probe.Version(ctx, p.Name, p.Flag)
}

// Conducted says why an experiment is of the namespaces only.
func Conducted(e Experiment) string {
	return e.Name() +
		" needs the laboratory of namespaces: it is conducted step by step in all hosts at once, on one clock and one set of cores"
}

// FailFunc reports the fault of a field of a suite.
type FailFunc = func(at Path, format string, args ...any)

// registered are all experiments, in the order in which a person should see them.
var registered []Experiment

// Register makes kinds of loads known, in the order in which a person should see them. It is called from a package's
// init, and panics if a name is taken.
func Register(kinds ...Experiment) {
	for _, e := range kinds {
		if _, taken := findExperiment(e.Name()); taken {
			panic("two kinds of loads are called " + e.Name())
		}
		registered = append(registered, e)
	}
}

// Interfaces that an experiment may have besides.
type (
	// setting experiments have keys of a load to themselves. Settings reads them, into a struct with yaml tags, and
	// returns that by value; SettingsOf has it then.
	setting interface{ Settings(read func(into any)) any }
	// servingFiles experiments ask web servers for a file, whose size the suite must say.
	servingFiles interface{ ServesFile() }
	// describing experiments say in words how large their laboratory is.
	describing interface{ Size(f Form) string }
	// speakingHTTP experiments speak HTTP.
	speakingHTTP interface{ SpeaksHTTP() }
	// expanding experiments make several points of a load, each with its settings and its number of connections.
	expanding interface{ Expand(l Load) []Point }
	// completing experiments fill in the settings that a load of their kind leaves out.
	completing interface{ Complete(l *Load) }
	// demanding experiments need more of the laboratory than others.
	demanding interface {
		Demand(f Form, spec *lab.Spec)
	}
	// framing experiments have notes on frames in place of the usual ones.
	framing interface{ FrameNotes() []string }
	// besideContainers experiments can be conducted where servers are containers of the balancer's host.
	besideContainers interface{ BesideContainers() }
	// besideOthers experiments can be conducted with several balancers, as far as the load goes with those.
	besideOthers interface{ BesideOthers(l Load) bool }
	// tying experiments may have all work of a point done on one core.
	tying interface{ Alone(p Point) bool }
	// equipping experiments change how a subject is set up for them.
	equipping interface {
		Equip(r *Runner, p Point, setup *subject.Setup)
	}
	// choosing experiments may have a load put on by another program than their own; nil: this one is not.
	choosing interface{ Generator(l Load) *Generator }
	// naming experiments have another noun for the concurrency.
	naming interface{ Noun() string }
	// stepping experiments have several results of a trial, of which whole ones may be kept of a trial that was ended
	// early; DropPartial takes the results out of a run that must be measured anew.
	stepping interface {
		Whole(got []results.Trial) []results.Trial
		DropPartial(r *Runner, trials []Trial)
	}
)

// having returns the experiments that have an ability.
func having[T any](all []Experiment) []T {
	var able []T
	for _, e := range all {
		if one, ok := e.(T); ok {
			able = append(able, one)
		}
	}
	return able
}

// findExperiment returns the experiment with the name, and false if there is none.
func findExperiment(name string) (Experiment, bool) {
	i := slices.IndexFunc(registered, func(e Experiment) bool { return e.Name() == name })
	if i < 0 {
		return nil, false
	}
	return registered[i], true
}

// experiments returns the experiments of the form's loads.
func (f Form) experiments() []Experiment {
	var all []Experiment
	for _, l := range f.Loads {
		if e, ok := findExperiment(l.Kind); ok && !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	return all
}

// LineOf sums a trial of one result up: that it is not valid, and why, or the text of say about its metrics.
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
