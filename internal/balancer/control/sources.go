// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// source is an input of the desired state that changes by itself: the interfaces, the paths,
// the role. (The configuration and the operations are handed in, and answered.) It has a whole
// picture at any time, and signals that there may be another. When it fails, the picture that
// was taken last stays in force: a source that is lost empties no service.
type source struct {
	// name is what the picture is of, as in "the paths".
	name string
	// take reads the picture.
	take func() error
	// stale: it is to be read.
	stale bool
	// taken is when it was read last, and err why it is not newer.
	taken time.Time
	err   error
}

// refresh reads the picture if there may be another.
func (s *source) refresh() error {
	if !s.stale {
		return nil
	}
	if err := s.take(); err != nil {
		s.err = err
		if s.taken.IsZero() {
			return err
		}
		return fmt.Errorf("%w; until it can be read, what was known of %s at %s counts", err, s.name, s.taken.Format(time.DateTime))
	}
	s.stale, s.err, s.taken = false, nil, time.Now()
	return nil
}

// event is a signal from outside, and what the loop does when it was given.
type event struct {
	from  <-chan struct{}
	do    func()
	given atomic.Bool
}

// on has the loop call do after a signal. Several signals may make one call.
func (c *Controller) on(from <-chan struct{}, do func()) {
	c.events = append(c.events, &event{from: from, do: do})
}

// addSource has the desired state follow a source; arm is soon or promptly.
func (c *Controller) addSource(name string, changes <-chan struct{}, take func() error, arm func()) *source {
	s := &source{name: name, take: take}
	c.sources = append(c.sources, s)
	c.on(changes, func() {
		s.stale = true
		arm()
	})
	return s
}

// hear passes signals on to the loop, which waits for one channel however many there are,
// until the context ends.
func (c *Controller) hear(ctx context.Context, hearing *sync.WaitGroup) {
	for _, e := range c.events {
		hearing.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-e.from:
					e.given.Store(true)
					select {
					case c.heard <- struct{}{}:
					default: // the loop is about to look
					}
				}
			}
		})
	}
}

// answerEvents does what the signals since the last call ask for.
func (c *Controller) answerEvents() {
	for _, e := range c.events {
		if e.given.Swap(false) {
			e.do()
		}
	}
}

// refresh reads the sources whose picture may be another. One that fails is read again later,
// and does not keep the others from being read.
func (c *Controller) refresh() (err error) {
	for _, s := range c.sources {
		err = errors.Join(err, s.refresh())
	}
	return err
}

// distrust has all sources read again.
func (c *Controller) distrust() {
	for _, s := range c.sources {
		s.stale = true
	}
	c.soon()
}
