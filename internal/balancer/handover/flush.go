// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"time"
)

const (
	// earlyScanTime is the time after a Flush in which all flows are looked at each time, and not a part of them: its
	// caller is about to have packets go elsewhere, and flows begin until they do.
	earlyScanTime = 2 * time.Second
	// flushPoll is the interval between two checks of whether peers have caught up.
	flushPoll = 2 * time.Millisecond
)

// Flush sends peers at once all flows that they are not known to know, and returns when those that are connected have
// taken them, or with the context's error. For a while after it peers are sent later ones at once, too.
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

// sendAllFlows looks at all flows: those that the walk under way has before it, and then from the beginning.
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
