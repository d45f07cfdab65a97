// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

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
	// setupChanger experiments change how a subject is set up for them.
	setupChanger interface {
		ChangeSetup(r *Runner, p Point, setup *subject.Setup)
	}
	// choosing experiments may have a load put on by another program than their own; nil: this one is not.
	choosing interface{ Generator(l Load) *Generator }
	// naming experiments have another noun for the concurrency.
	naming interface{ Noun() string }
	// stepping experiments have several results of a trial, of which whole ones may be kept of a trial that was ended
	// early; DropPartial takes the results out of a run that must be measured again.
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

// Generator is a program that a load asks for in place of its kind's own. The points that ask for it are not valid
// where a program of it is missing, and the others do without.
type Generator struct {
	Name string
	Programs
	// Missing is the reason why a program of it is not there, and names the remedy.
	Missing func(program string) string
}

// generator returns the one that a load asks for; nil if it asks for none.
func (l Load) generator() *Generator {
	e, _ := findExperiment(l.Kind)
	if c, ok := e.(choosing); ok {
		return c.Generator(l)
	}
	return nil
}

// generators returns the generators that the form's loads ask for.
func (f Form) generators() []*Generator {
	var all []*Generator
	for _, l := range f.Loads {
		g := l.generator()
		if g != nil && !slices.ContainsFunc(all, func(o *Generator) bool { return o.Name == g.Name }) {
			all = append(all, g)
		}
	}
	return all
}

// here returns its version on this machine, or why it is not there.
func (g *Generator) here(ctx context.Context) (version, missing string, err error) {
	for _, program := range slices.Concat(g.Servers, g.Clients) {
		version, err = program.Version(ctx)
		if errors.Is(err, probe.ErrNotInstalled) {
			return "", g.Missing(program.Name), nil
		}
		if err != nil {
			return "", "", err
		}
	}
	return version, "", nil
}
