// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
	"github.com/jeoul/jeoul/internal/host/clock"
)

const (
	// heldPause is how long is waited before a worker that is to end is asked again whether it has work.
	heldPause = 100 * time.Millisecond
	// idleLooks is how many looks in a row must find a worker without work before it may end. One of its threads may
	// have taken a connection from the kernel and not counted it as work yet, and a busy host may keep that thread
	// waiting.
	idleLooks = 5
	// lastMoments are the time before a worker's hard stop in which each look may be the last.
	lastMoments = time.Second
)

// hold keeps one of the workers, the one that answers at their socket, from ending: counts from after the last reading
// would be lost with it. It returns nil if the worker cannot be held, which costs those counts alone.
func (e *engine) hold(ctx context.Context, workers []int) *master.Session {
	s, err := master.Open(ctx, e.host.socket())
	if err != nil || !slices.Contains(workers, s.PID) {
		e.log.Debug("no worker of HAProxy's is held until its last count", "because", err)
		if err == nil {
			s.Close()
		}
		return nil
	}
	e.gathering.Lock()
	defer e.gathering.Unlock()
	if before := e.holds[s.PID]; before != nil {
		before.Close()
	}
	e.holds[s.PID] = s
	return s
}

// letGo closes the session by which hold keeps a worker, which may then end.
func (e *engine) letGo(s *master.Session) {
	if s == nil {
		return
	}
	e.gathering.Lock()
	defer e.gathering.Unlock()
	e.release(s)
}

// release is letGo, where the caller holds gathering.
func (e *engine) release(s *master.Session) {
	s.Close()
	if e.holds[s.PID] == s {
		delete(e.holds, s.PID)
	}
}

// lookLast reads the counts of a held worker once it has no work left, and lets it end.
func (e *engine) lookLast(s *master.Session, hardStop time.Duration) {
	if s == nil {
		return
	}
	end := time.Now().Add(hardStop - lastMoments)
	e.watching.Go(func() {
		defer e.letGo(s)
		for looks := 0; looks < idleLooks && clock.Sleep(e.watch, heldPause) == nil; {
			idle, err := s.Idle(e.watch)
			if err != nil {
				return // it has been ended
			}
			if looks++; !idle {
				looks = 0
			}
			if looks == idleLooks || !time.Now().Before(end) {
				e.noteLast(s)
			}
		}
	})
}

// noteLast notes the counters of a held worker.
func (e *engine) noteLast(s *master.Session) {
	e.gathering.Lock()
	defer e.gathering.Unlock()
	counted, err := s.Statistics(e.watch)
	if err != nil {
		return
	}
	e.counts.note(s.PID, counted)
	e.keepCounts()
}
