// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"errors"
	"fmt"
	"time"
)

// Source is an input that changes by itself. It can be read completely at any time, and signals that its state may have
// changed. When reading fails, the state read last stays in force: losing a source removes nothing.
type Source struct {
	// name names the state, as in "the paths".
	name string
	// read reads the state.
	read  func() error
	stale bool
	// readAt is the time of the last read.
	readAt time.Time
}

// AddSource adds a source. Each signal on changes marks it as stale and calls schedule; Refresh calls read if it is
// stale.
func (l *Loop) AddSource(name string, changes <-chan struct{}, read func() error, schedule func()) *Source {
	s := &Source{name: name, read: read}
	l.sources = append(l.sources, s)
	l.OnSignal(changes, func() {
		s.stale = true
		schedule()
	})
	return s
}

// MarkStale makes the next Refresh read the source.
func (s *Source) MarkStale() { s.stale = true }

// Refresh reads the source if it is stale.
func (s *Source) Refresh() error {
	if !s.stale {
		return nil
	}
	if err := s.read(); err != nil {
		if s.readAt.IsZero() {
			return err
		}
		return fmt.Errorf("%w; until it can be read, the state of %s at %s counts", err, s.name,
			s.readAt.Format(time.DateTime))
	}
	s.stale, s.readAt = false, time.Now()
	return nil
}

// Refresh reads the sources that are stale. One that fails stays stale, and does not keep the others from being read.
func (l *Loop) Refresh() (err error) {
	for _, s := range l.sources {
		err = errors.Join(err, s.Refresh())
	}
	return err
}

// MarkStale makes the next Refresh read all sources.
func (l *Loop) MarkStale() {
	for _, s := range l.sources {
		s.stale = true
	}
}
