// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"errors"
	"fmt"
	"time"
)

// Source is an input that changes by itself. It has a whole picture at any time, and signals that there may be another.
// When it fails, the picture that was taken last stays in force: a source that is lost empties nothing.
type Source struct {
	// name names the subject of the picture, as in "the paths".
	name string
	// take reads the picture.
	take  func() error
	stale bool
	// taken is when it was read last.
	taken time.Time
}

// Follow has take called by Refresh after a signal of a source; schedule is called with each signal.
func (l *Loop) Follow(name string, changes <-chan struct{}, take func() error, schedule func()) *Source {
	s := &Source{name: name, take: take}
	l.sources = append(l.sources, s)
	l.On(changes, func() {
		s.stale = true
		schedule()
	})
	return s
}

// MarkStale has the picture read by the next Refresh.
func (s *Source) MarkStale() { s.stale = true }

// Refresh reads the picture if there may be another.
func (s *Source) Refresh() error {
	if !s.stale {
		return nil
	}
	if err := s.take(); err != nil {
		if s.taken.IsZero() {
			return err
		}
		return fmt.Errorf("%w; until it can be read, the state of %s at %s counts", err, s.name,
			s.taken.Format(time.DateTime))
	}
	s.stale, s.taken = false, time.Now()
	return nil
}

// Refresh reads the sources whose picture may be another. One that fails is read again by the next Refresh, and does
// not keep the others from being read.
func (l *Loop) Refresh() (err error) {
	for _, s := range l.sources {
		err = errors.Join(err, s.Refresh())
	}
	return err
}

// MarkStale has all sources read by the next Refresh.
func (l *Loop) MarkStale() {
	for _, s := range l.sources {
		s.stale = true
	}
}
