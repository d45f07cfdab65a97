// SPDX-License-Identifier: Apache-2.0

package handover

import "time"

// A balancer that begins to announce VIPs gets packets of connections that others have begun just before. Those that it
// does not know break, and peers report new flows only within half a second, because a walk over all flows takes that
// long. So it asks them to walk over all flows at once, and then every few milliseconds for a while, until routers have
// changed their routes.

const (
	// earlyTime is for how long peers send new flows early once they were asked to: routers take some seconds to follow
	// an announcement.
	earlyTime = 10 * time.Second
	// earlyScanInterval is from one look at all flows to the next one meanwhile, or after a Flush; earlyScanMaxShare
	// bounds it by how often that has the time that a look takes.
	earlyScanInterval = 20 * time.Millisecond
	earlyScanMaxShare = 4
)

// RequestEarly has peers that are connected send flows as soon as they are proven, for a while: packets of theirs are
// about to come here. It does not wait for that.
func (e *Exchange) RequestEarly() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for r := range e.receivers {
		signal(r.requestEarly)
	}
}

// scanPause is from the beginning of one look at flows to the next one's, the last of which took so long.
func (e *Exchange) scanPause(early bool, took time.Duration) time.Duration {
	if !early {
		return e.options.ScanInterval
	}
	return min(e.options.ScanInterval, max(earlyScanInterval, earlyScanMaxShare*took))
}
