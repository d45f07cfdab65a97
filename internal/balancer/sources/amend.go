// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// Difference is a request to change a source, given by the difference from its present state.
type Difference struct {
	Source string
	// Text has the new and changed services under `services`, and the names of removed ones under `remove`.
	Text []byte
	// If decides from the present source whether the change may happen; nil: always.
	If func(Part) error
	By string
	// Dry: return the result, and change nothing.
	Dry bool
}

// Amend changes a source by a difference, as Change does; its cost grows with the difference, and not with the source.
// Lines and fields of problems are those of the difference. Errors: those of Change and of If.
func (s *Sources) Amend(ctx context.Context, r Difference) (Change, error) {
	if r.Source == config.FileOwner {
		return Change{}, fmt.Errorf("%w: change it there, in %s, and reload", ErrOwned, s.path)
	}
	if err := config.CheckFragmentName(r.Source); err != nil {
		return Change{}, fmt.Errorf("%w: source %w", ErrMalformed, err)
	}
	if err := s.lock(ctx); err != nil {
		return Change{}, err
	}
	defer s.unlock()
	now := s.now.Load()
	before := now.headOf(r.Source)
	if r.If != nil {
		there := Part{Source: r.Source, Value: stringNode(r.Source), Tag: TagOf(before.Generation)}
		if err := r.If(there); err != nil {
			return Change{}, err
		}
	}
	a, err := now.amended(before, r)
	if err != nil {
		return Change{}, err
	}
	done := Change{Source: r.Source, Generation: a.made.Generation,
		Changed:    len(a.put)+len(a.removed) > 0 || before.Generation == 0,
		Difference: string(diff.Diff(r.Source, a.was, r.Source, join(a.put)))}
	if !done.Changed {
		done.Generation = before.Generation
	}
	if r.Dry || !done.Changed {
		return done, nil
	}
	err = s.commit(context.WithoutCancel(ctx), now, a.next, a.made,
		func() (pendingFile, error) { return s.store.record(a) })
	return done, a.inDifference(err)
}

// inDifference gives problems of the merged configuration the fields of the difference: a service's index is its index
// in the whole source there. A problem of a service that is not in the difference names it, and has no field.
func (a *amended) inDifference(err error) error {
	var problems yamlfile.Problems
	if !errors.As(err, &problems) {
		return err
	}
	services := a.next.blocks[a.made.Name]
	problems = slices.Clone(problems)
	for n := range problems {
		problem := &problems[n]
		i, rest, ok := yamlfile.ElementOf(problem.Field, "services")
		if problem.File != a.made.Name || !ok || i >= len(services) {
			continue
		}
		name := services[i].name
		if at := slices.Index(a.given, name); at >= 0 {
			problem.Field = yamlfile.Element("services", at) + rest
		} else {
			problem.Field, problem.Message = "", "service "+name+": "+problem.Message
		}
	}
	return problems
}

// amended returns the revision in which a source is changed by a difference. The configuration put in force is the one
// that the next start reads from disk.
func (p *revision) amended(before Fragment, r Difference) (a amended, err error) {
	cfg, difference, err := p.cfg.Amend(config.Source{Name: r.Source, Data: r.Text})
	if err != nil {
		return a, err
	}
	fresh, err := config.WriteServices(cfg, difference.Put)
	if err != nil {
		return a, err
	}
	text, err := config.WriteAmendment(fresh, difference.Removed)
	if err != nil {
		return a, err
	}
	if len(text) > 0 && !bytes.Equal(text, r.Text) {
		if cfg, difference, err = p.cfg.Amend(config.Source{Name: r.Source, Data: text}); err != nil {
			return a, err
		}
	}
	blocks, known := p.blocks[r.Source]
	if !known {
		if blocks, err = blocksOf(p.fragment(r.Source).Text); err != nil {
			return a, err
		}
	}
	after := a.place(blocks, difference, fresh)
	a.made = Fragment{Name: r.Source, Generation: before.Generation + 1, By: r.By,
		At: time.Now().UTC().Truncate(time.Second)}
	if len(p.fragments) >= maxFragments && before.Generation == 0 {
		return a, tooMany()
	}
	a.next = &revision{file: p.file, cfg: cfg, fragments: with(p.fragments, a.made), blocks: maps.Clone(p.blocks)}
	if a.next.blocks == nil {
		a.next.blocks = map[string][]block{}
	}
	a.next.blocks[r.Source] = after
	return a, nil
}

// place returns the texts of a source's services in their order, which is that of config.Amend, and notes which have
// changed. fresh are those of the difference.
func (a *amended) place(before []block, difference config.Amendment, text [][]byte) []block {
	put, was := make(map[string]block, len(text)), make(map[string][]byte, len(text))
	gone := make(map[string]bool, len(difference.Removed))
	for i := range difference.Put {
		name := difference.Put[i].Name
		put[name] = block{name, text[i]}
		a.given = append(a.given, name)
	}
	for _, name := range difference.Removed {
		gone[name] = true
	}
	for _, b := range before {
		if _, replaced := put[b.name]; replaced || gone[b.name] {
			was[b.name] = b.text
		}
	}
	for i := range difference.Put {
		name := difference.Put[i].Name
		if old := was[name]; !bytes.Equal(old, text[i]) {
			a.was, a.put = append(a.was, old...), append(a.put, put[name])
		}
	}
	for _, name := range difference.Removed {
		a.was, a.removed = append(a.was, was[name]...), append(a.removed, name)
	}
	return config.ReplaceByName(before, func(b *block) string { return b.name }, put, gone)
}
