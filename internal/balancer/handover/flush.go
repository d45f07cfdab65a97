// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"time"
)

const (
	// earlyScanTime is the time after a Flush in which each scan covers all flows instead of a part: the caller is
	// about to redirect packets, and flows begin until then.
	earlyScanTime = 2 * time.Second
	// flushPoll is the interval between two checks of whether peers have caught up.
	flushPoll = 2 * time.Millisecond
)

// Flush sends peers at once all flows that they have not acknowledged, and returns when the connected peers have, or
// with the context's error. For a while after it, later flows are sent at once, too.
func (e *Exchange) Flush(ctx context.Context) error {
	sent := make(chan struct{})
	select {
	case e.flushWaiters <- sent:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-sent:
	case <-ctx.Done():
		return ctx.Err()
	}
	ticker := time.NewTicker(flushPoll)
	defer ticker.Stop()
	for !e.caughtUp() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}

// caughtUp reports whether no peer that is connected is behind.
func (e *Exchange) caughtUp() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.senders {
		if s.isBehind() {
			return false
		}
	}
	return true
}

// sendAllFlows scans all flows: the rest of the present walk, and then from the beginning.
func (e *Exchange) sendAllFlows(now time.Time) error {
	if err := e.sendBases(now, 0); err != nil {
		return err
	}
	for range 2 {
		if err := e.sendFlows(e.options.DataPlane.FlowPlaces() + 1); err != nil {
			return err
		}
	}
	return nil
}
