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
	// idlePoll is the interval between two checks of whether a worker that is to end has work.
	idlePoll = 100 * time.Millisecond
	// idleChecks is the number of checks in a row that must find a worker idle before it may end: one of its threads
	// may have accepted a connection that it does not count yet, and may wait long for a CPU.
	idleChecks = 5
	// hardStopMargin is the time before a worker's hard stop in which each check may be the last.
	hardStopMargin = time.Second
)

// holdWorker prevents the worker that answers at the workers' socket from ending before its last counts are read. It
// returns nil if it cannot, in which case only those counts are lost.
func (e *engine) holdWorker(ctx context.Context, workers []int) *master.Session {
	s, err := master.Open(ctx, e.host.socket())
	if err != nil || !slices.Contains(workers, s.PID) {
		e.log.Debug("no worker of HAProxy's is held until its last count", "because", err)
		if err == nil {
			s.Close()
		}
		return nil
	}
	e.countsMu.Lock()
	defer e.countsMu.Unlock()
	if before := e.heldWorkers[s.PID]; before != nil {
		before.Close()
	}
	e.heldWorkers[s.PID] = s
	return s
}

// releaseWorker closes the session by which holdWorker keeps a worker, which may then end.
func (e *engine) releaseWorker(s *master.Session) {
	if s == nil {
		return
	}
	e.countsMu.Lock()
	defer e.countsMu.Unlock()
	e.releaseWorkerLocked(s)
}

// releaseWorkerLocked is releaseWorker, where the caller holds countsMu.
func (e *engine) releaseWorkerLocked(s *master.Session) {
	s.Close()
	if e.heldWorkers[s.PID] == s {
		delete(e.heldWorkers, s.PID)
	}
}

// readFinalCounts reads the counts of a held worker once it has no work left, and lets it end.
func (e *engine) readFinalCounts(s *master.Session, hardStop time.Duration) {
	if s == nil {
		return
	}
	end := time.Now().Add(hardStop - hardStopMargin)
	e.watching.Go(func() {
		defer e.releaseWorker(s)
		for looks := 0; looks < idleChecks && clock.Sleep(e.watch, idlePoll) == nil; {
			idle, err := s.Idle(e.watch)
			if err != nil {
				return // it was killed
			}
			if looks++; !idle {
				looks = 0
			}
			if looks == idleChecks || !time.Now().Before(end) {
				e.storeFinalCounts(s)
			}
		}
	})
}

// storeFinalCounts stores the counters of a held worker.
func (e *engine) storeFinalCounts(s *master.Session) {
	e.countsMu.Lock()
	defer e.countsMu.Unlock()
	counted, err := s.Statistics(e.watch)
	if err != nil {
		return
	}
	e.counts.setWorker(s.PID, counted)
	e.saveCounts()
}
