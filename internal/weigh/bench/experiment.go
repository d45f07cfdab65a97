// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
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

// registered are all experiments, in the order in which a person should see them. kinds.go has the list; what conducts
// a run knows none of them.
var registered []experiment

// What an experiment may have besides.
type (
	// anyLoads experiments check what a load of any kind has of their own settings.
	anyLoads interface {
		checkAny(l Load, form Form, at path, fail failFunc)
	}
	// ofHTTP experiments speak HTTP.
	ofHTTP interface{ speaksHTTP() }
	// expanding experiments make several points of a load, each with its settings and its number of connections.
	expanding interface{ expand(l Load) []Point }
	// completing experiments fill in what a load of any kind leaves out of their settings.
	completing interface{ complete(l *Load) }
	// demanding experiments need more of the laboratory than others.
	demanding interface {
		demand(f Form, spec *lab.Spec)
	}
	// framing experiments have notes on frames in place of the usual ones.
	framing interface{ frameNotes() []string }
	// besideContainers experiments can be conducted where servers are containers of the balancer's host.
	besideContainers interface{ besideContainers() }
	// besideOthers experiments can be conducted with several balancers, as far as the load goes with those.
	besideOthers interface{ besideOthers(l Load) bool }
	// tying experiments may have all work of a point done on one core.
	tying interface{ alone(p Point) bool }
	// remembering experiments say how many flows a subject must have room for.
	remembering interface{ flows(f Form) int }
	// stepping experiments have several results of a trial, of which whole ones may be kept of a trial that was ended
	// early; dropPartial takes out of a run what must be measured anew.
	stepping interface {
		whole(got []results.Trial) []results.Trial
		dropPartial(r *runner, trials []Trial)
	}
)

// having returns those of all experiments that have an ability.
func having[T any](all []experiment) []T {
	var able []T
	for _, e := range all {
		if one, ok := e.(T); ok {
			able = append(able, one)
		}
	}
	return able
}

// findExperiment returns the experiment with the name, and false if there is none.
func findExperiment(name string) (experiment, bool) {
	i := slices.IndexFunc(registered, func(e experiment) bool { return e.Name() == name })
	if i < 0 {
		return nil, false
	}
	return registered[i], true
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

// byNetperf says whether a load of the form has netperf for its generator.
func (f Form) byNetperf() bool {
	return slices.ContainsFunc(f.Loads, func(l Load) bool { return l.Generator == transact.NetperfProgram })
}

// netperfPrograms are its client and its server, which both tell a version.
var netperfPrograms = programs{
	clients: []askedProgram{{transact.NetperfProgram, transact.Netperf{}.VersionFlag()}},
	servers: []askedProgram{{transact.NetserverProgram, transact.Netperf{}.VersionFlag()}},
}

// netperfMissing is why there is no netperf.
func netperfMissing(program string) string {
	return program + " is not installed (Debian has it in non-free); leave out generator for this program's own"
}

// netperfHere returns netperf's version on this machine, or why there is none.
func netperfHere(ctx context.Context) (version, missing string, err error) {
	for _, program := range slices.Concat(netperfPrograms.servers, netperfPrograms.clients) {
		version, err = program.version(ctx)
		if errors.Is(err, probe.ErrNotInstalled) {
			return "", netperfMissing(program.Name), nil
		}
		if err != nil {
			return "", "", err
		}
	}
	return version, "", nil
}
