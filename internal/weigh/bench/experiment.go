// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/bench/load/transact"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// experiment is a kind of load that the run conducts itself, step by step, where
// a load.Kind is a program that is started and read. A trial of it may have
// several results, one a step, told apart by a parameter.
type experiment interface {
	// Name is the kind's name in a suite.
	Name() string
	// check reports what is wrong with a load of this kind, at its path.
	check(l Load, form Form, at path, fail failFunc)
	// obstacle says what keeps the machine from carrying the point, be it what the
	// subject needs; empty if nothing.
	obstacle(p Point, limits probe.Limits) string
	// params says what was measured, for the results; the subject's own are added.
	params(p Point) map[string]any
	// programs are those that its hosts must have.
	programs() programs
	// onMachines says why it cannot run on the machines of an inventory; empty if it can.
	onMachines() string
	// notes are facts about the measuring that every figure of the form depends on.
	notes(f Form) []string
	// prepare starts what its servers run, once a laboratory; it goes with that.
	prepare(ctx context.Context, r *runner) error
	// services are what the subject is to balance.
	services(l *lab.Lab, p Point) []subject.Service
	// conduct runs one trial with its subject up, from results that have the
	// point's names filled in. What goes wrong with the point makes results
	// invalid; an error means that the trial as a whole is not valid.
	conduct(ctx context.Context, r *runner, t Trial, running subject.Running, blank results.Trial) ([]results.Trial,
		error)
	// line sums a trial's results up in a few words, for the live view.
	line(got []results.Trial) string
}

// programs are those that clients and servers must have.
type programs struct{ clients, servers []askedProgram }

// askedProgram is a program, and the flag by which it tells its version.
type askedProgram struct{ Name, Flag string }

// webServer is what web servers run.
var webServer = askedProgram{"nginx", "-v"}

// version asks this machine for the program's.
func (p askedProgram) version(ctx context.Context) (string, error) {
	return probe.Version(ctx, p.Name, p.Flag)
}

// conducted says why an experiment is of the namespaces only.
func conducted(e experiment) string {
	return e.Name() +
		" needs the laboratory of namespaces: it is conducted step by step in all hosts at once, on one clock and one set of cores"
}

// failFunc reports what is wrong with a field of a suite.
type failFunc = func(at path, format string, args ...any)

// experiments lists them in the order in which a person should see them.
func experiments() []experiment {
	return []experiment{transactions{transact.CRR}, transactions{transact.RR}, arrivals{}, changeExperiment{},
		synFlood{}, wireLoad{}, dnsExperiment{}}
}

// findExperiment returns the experiment with the name, and false if there is none.
func findExperiment(name string) (experiment, bool) {
	all := experiments()
	i := slices.IndexFunc(all, func(e experiment) bool { return e.Name() == name })
	if i < 0 {
		return nil, false
	}
	return all[i], true
}

// experiments returns those that the form's loads are.
func (f Form) experiments() []experiment {
	var all []experiment
	for _, l := range f.Loads {
		if e, ok := findExperiment(l.Kind); ok && !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	return all
}
