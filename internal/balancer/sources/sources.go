// SPDX-License-Identifier: Apache-2.0

// Package sources holds the sources of a balancer's configuration (its file, the API's changes, and fragments of other
// programs), merges them, and stores those beside the file. It depends neither on HTTP nor on how a configuration is
// applied.
package sources

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/jeoul/jeoul/internal/balancer/config"
)

// API is the name of the source that the API changes where none is named.
const API = "api"

// maxFragments bounds the sources beside the file, including those that no longer have services.
const maxFragments = 64

// revision is the configuration in force, with its sources. It is never changed.
type revision struct {
	file      config.Source
	cfg       *config.Config
	fragments []Fragment // by name
	// blocks are the texts of the services of fragments that were amended, by the name of the fragment. Such a fragment
	// may have no text in fragments: see fragment.
	blocks map[string][]block
}

// Apply applies a configuration completely or not at all, and returns when it is in force.
type Apply func(ctx context.Context, load func() (*config.Config, error)) error

// Sources are the file and the fragments.
type Sources struct {
	path            string
	store           store
	reload, replace Apply
	// turn is held by the one change under way.
	turn  chan struct{}
	now   atomic.Pointer[revision]
	feeds feeds
}

// Open reads the file at path and the fragments that are kept in a directory, which need not be there. Config returns
// the configuration merged from them, and Use has to be called before a change. The error is a yamlfile.Problems where
// the contents are at fault.
func Open(path, dir string) (*Sources, error) {
	s := &Sources{path: path, store: store{dir: dir}, turn: make(chan struct{}, 1)}
	fragments, err := s.store.load()
	if err != nil {
		return nil, err
	}
	file, err := readFile(path)
	if err != nil {
		return nil, err
	}
	next, err := s.merge(file, fragments, "")
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, s.store.hint(fragments))
	}
	s.now.Store(next)
	return s, nil
}

// Use sets how configurations are applied: by reload after a change of the file, by replace after one of another
// source.
func (s *Sources) Use(reload, replace Apply) { s.reload, s.replace = reload, replace }

// Config returns the configuration in force.
func (s *Sources) Config() *config.Config { return s.now.Load().cfg }

// Path returns the path of the file.
func (s *Sources) Path() string { return s.path }

// Fragments returns the sources beside the file, by name.
func (s *Sources) Fragments() []Fragment { return s.now.Load().whole() }

// Heads is like Fragments, but may leave out the texts, which are long.
func (s *Sources) Heads() []Fragment { return slices.Clone(s.now.Load().fragments) }

// merge checks sources together. Lines of problems are those of the stored files, but of the new
// fragment those of its text.
func (s *Sources) merge(file config.Source, fragments []Fragment, fresh string) (*revision, error) {
	texts := make([]config.Source, len(fragments))
	for i, f := range fragments {
		if texts[i] = (config.Source{Name: f.Name, Data: f.Text}); f.Name != fresh {
			texts[i].Data = f.content()
		}
	}
	cfg, err := config.Merge(file, texts...)
	if err != nil {
		return nil, err
	}
	return &revision{file: file, cfg: cfg, fragments: fragments}, nil
}

// lock waits for its turn to change something.
func (s *Sources) lock(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Sources) unlock() { <-s.turn }

// Reload reads the file again and puts the configuration merged from all sources in force. An error leaves everything
// as it was. Errors: yamlfile.Problems, those of Apply.
func (s *Sources) Reload(ctx context.Context) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	var next *revision
	err := s.reload(ctx, func() (*config.Config, error) {
		file, err := readFile(s.path)
		if err != nil {
			return nil, err
		}
		if next, err = s.merge(file, s.now.Load().whole(), ""); err != nil {
			return nil, err
		}
		return next.cfg, nil
	})
	if err == nil {
		s.now.Store(next)
	}
	return err
}

// Edit makes another text of a source; before is its present text, with generation 0 where there is no such source yet.
// Composed says that the caller did not write the text, so that its line numbers would mean nothing to them.
type Edit func(before Fragment) (text []byte, composed bool, err error)

// Change is a change of a source that was made, or would be.
type Change struct {
	Source     string
	Generation uint64
	// Changed is false if the source had that already.
	Changed bool
	// Difference is the difference of the sources' services as a unified diff; empty where there is none.
	Difference string
}

// Change replaces a source, whole or not at all, and returns when its new text is in force and stored; with dry, it
// only returns the result that a change would have. Once it has begun, it goes on when the caller's context ends.
// Errors: those of edit, ErrNotStored, yamlfile.Problems, those of Apply.
func (s *Sources) Change(ctx context.Context, name, by string, dry bool, edit Edit) (Change, error) {
	if err := config.CheckFragmentName(name); err != nil {
		return Change{}, fmt.Errorf("%w: source %w", ErrMalformed, err)
	}
	if err := s.lock(ctx); err != nil {
		return Change{}, err
	}
	defer s.unlock()
	now := s.now.Load()
	before := now.fragment(name)
	text, composed, err := edit(before)
	if err != nil {
		return Change{}, err
	}
	next, made, err := s.next(now, before, text, by)
	if err != nil {
		return Change{}, where(err, composed, name)
	}
	done := Change{Source: name, Generation: made.Generation, Changed: !bytes.Equal(before.Text, made.Text) ||
		before.Generation == 0,
		Difference: string(diff.Diff(name, before.Text, name, made.Text))}
	if !done.Changed {
		done.Generation = before.Generation
	}
	if dry || !done.Changed {
		return done, nil
	}
	return done, s.commit(context.WithoutCancel(ctx), now, next, made,
		func() (pendingFile, error) { return s.store.write(made) })
}

// fragment returns the fragment of a name, with its text; generation 0 if there is none.
func (p *revision) fragment(name string) Fragment {
	f := p.headOf(name)
	if blocks, amended := p.blocks[name]; amended && f.Text == nil {
		f.Text = textOf(blocks)
	}
	return f
}

// headOf is like fragment, but may leave out the text, which is long.
func (p *revision) headOf(name string) Fragment {
	if i, found := p.find(name); found {
		return p.fragments[i]
	}
	return Fragment{Name: name}
}

// whole returns all fragments with their texts.
func (p *revision) whole() []Fragment {
	all := slices.Clone(p.fragments)
	for i := range all {
		all[i] = p.fragment(all[i].Name)
	}
	return all
}

func (p *revision) find(name string) (int, bool) { return find(p.fragments, name) }

func find(fragments []Fragment, name string) (int, bool) {
	return slices.BinarySearchFunc(fragments, name, func(f Fragment, name string) int {
		return cmp.Compare(f.Name, name)
	})
}

// next returns the revision in which a fragment has another text, and the fragment, with its text as it will be stored:
// the configuration put in force is the one that the next start reads.
func (s *Sources) next(now *revision, before Fragment, text []byte, by string) (*revision, Fragment, error) {
	made := Fragment{Name: before.Name, Generation: before.Generation + 1, Text: text, By: by,
		At: time.Now().UTC().Truncate(time.Second)}
	read, err := s.merge(now.file, with(now.whole(), made), made.Name)
	if err != nil {
		return nil, made, err
	}
	if made.Text, err = config.WriteFragment(read.cfg, made.Name); err != nil {
		return nil, made, err
	}
	if len(now.fragments) >= maxFragments && before.Generation == 0 {
		return nil, made, tooMany()
	}
	next, err := s.merge(now.file, with(now.whole(), made), "")
	if err != nil {
		return nil, made, err
	}
	next.blocks = maps.Clone(now.blocks)
	delete(next.blocks, made.Name)
	return next, made, nil
}

func tooMany() error {
	return fmt.Errorf("%w: there are %d sources already, and no more can be; reuse the name of one", ErrMalformed,
		maxFragments)
}

// with returns fragments with another one of a name.
func with(fragments []Fragment, made Fragment) []Fragment {
	all := slices.Clone(fragments)
	i, found := find(fragments, made.Name)
	if !found {
		all = slices.Insert(all, i, made)
	}
	all[i] = made
	return all
}

// commit stores a fragment and puts the revision that has it in force. The file is written before anything is changed,
// and renamed into place afterwards: neither a full disk nor a refusal leaves something half done.
func (s *Sources) commit(ctx context.Context, now, next *revision, made Fragment,
	write func() (pendingFile, error)) error {
	pending, err := write()
	if err != nil {
		return fmt.Errorf("%w: %w; nothing was changed%s", ErrNotStored, err, remedyOf(err))
	}
	if err := s.apply(ctx, next); err != nil {
		pending.discard()
		return err
	}
	if err := pending.commit(); err != nil {
		s.store.restore(now.fragment(made.Name))
		back := s.apply(ctx, now)
		return errors.Join(fmt.Errorf("%w: %w; the previous configuration is in force again", ErrNotStored, err), back)
	}
	s.now.Store(next)
	return nil
}

func (s *Sources) apply(ctx context.Context, p *revision) error {
	return s.replace(ctx, func() (*config.Config, error) { return p.cfg, nil })
}
