// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

// Generator is a program that a load asks for in place of its kind's own. The points that ask for it are not valid
// where a program of it is missing, and the others do without.
type Generator struct {
	Name string
	Programs
	// Missing says why a program of it is not there, and names the remedy.
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
