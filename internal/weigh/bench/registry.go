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

// registered are all experiments, in the order of their presentation.
var registered []Experiment

// Register registers kinds of loads, in the order of their presentation. A package's init calls it. It panics if a name
// is taken.
func Register(kinds ...Experiment) {
	for _, e := range kinds {
		if _, taken := findExperiment(e.Name()); taken {
			panic("two kinds of loads are called " + e.Name())
		}
		registered = append(registered, e)
	}
}

// Optional interfaces of experiments.
type (
	// setting experiments have keys of a load that no other kind has. Settings reads them into a struct with yaml tags,
	// and returns the struct by value. SettingsOf returns it.
	setting interface{ Settings(read func(into any)) any }
	// servingFiles experiments request a file from web servers. The suite must set its size.
	servingFiles interface{ ServesFile() }
	// describing experiments describe the size of their laboratory in words.
	describing interface{ Size(f Form) string }
	// speakingHTTP experiments speak HTTP.
	speakingHTTP interface{ SpeaksHTTP() }
	// expanding experiments make several points of a load, each with its own settings and number of connections.
	expanding interface{ Expand(l Load) []Point }
	// completing experiments set the settings that a load of their kind omits.
	completing interface{ Complete(l *Load) }
	// demanding experiments need more of the laboratory than others.
	demanding interface {
		Demand(f Form, spec *lab.Spec)
	}
	// framing experiments have notes on frames that replace the usual ones.
	framing interface{ FrameNotes() []string }
	// besideContainers experiments can run with servers that are containers of the balancer's host.
	besideContainers interface{ BesideContainers() }
	// besideOthers experiments can run with several balancers, if the load permits that.
	besideOthers interface{ BesideOthers(l Load) bool }
	// tying experiments may do all work of a point on one core.
	tying interface{ Alone(p Point) bool }
	// setupChanger experiments change the setup of a subject.
	setupChanger interface {
		ChangeSetup(r *Runner, p Point, setup *subject.Setup)
	}
	// choosing experiments may use another generator for a load than their own; nil if the load does not request one.
	choosing interface{ Generator(l Load) *Generator }
	// naming experiments have another noun for the concurrency.
	naming interface{ Noun() string }
	// stepping experiments have several results of a trial. Whole returns the complete ones of a cancelled trial, which
	// may be kept. DropPartial removes from a run the results that must be measured again.
	stepping interface {
		CompleteSteps(got []results.Trial) []results.Trial
		DropPartial(r *Runner, trials []Trial)
	}
)

// implementing returns the experiments with the interface T.
func implementing[T any](all []Experiment) []T {
	var able []T
	for _, e := range all {
		if one, ok := e.(T); ok {
			able = append(able, one)
		}
	}
	return able
}

// findExperiment returns the experiment with the given name, and false if there is none.
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

// Generator is a program that a load requests instead of its kind's own generator. If a program of it is missing, the
// points that request it are not valid; other points do not need it.
type Generator struct {
	Name string
	Programs
	// Missing returns the reason why a program of the generator is missing, with the remedy.
	Missing func(program string) string
}

// generator returns the generator that a load requests; nil if it requests none.
func (l Load) generator() *Generator {
	e, _ := findExperiment(l.Kind)
	if c, ok := e.(choosing); ok {
		return c.Generator(l)
	}
	return nil
}

// generators returns the generators that the form's loads request.
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

// localVersion returns the generator's version on this machine, or why it is missing.
func (g *Generator) localVersion(ctx context.Context) (version, missing string, err error) {
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
