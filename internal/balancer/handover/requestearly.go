// SPDX-License-Identifier: Apache-2.0

package handover

import "time"

// A balancer that begins to announce VIPs gets packets of flows that began at others just before. Unknown flows break,
// and peers send new flows only within half a second, the time of a walk over all flows. So it asks them to walk over
// all flows at once, and then every few milliseconds until routers have changed their routes.

const (
	// earlyTime is how long peers send new flows early after a request: routers take some seconds to follow an
	// announcement.
	earlyTime = 10 * time.Second
	// earlyScanInterval is the interval of scans of all flows during that time or after a Flush; earlyScanMaxShare
	// bounds the share of time that they take.
	earlyScanInterval = 20 * time.Millisecond
	earlyScanMaxShare = 4
)

// RequestEarly asks the connected peers to send flows as soon as they are proven, for a while, because their packets
// are about to come here. It does not wait.
func (e *Exchange) RequestEarly() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for r := range e.receivers {
		signal(r.requestEarly)
	}
}

// scanPause returns the time from the beginning of a scan to that of the next; took is the duration of the last one.
func (e *Exchange) scanPause(early bool, took time.Duration) time.Duration {
	if !early {
		return e.options.ScanInterval
	}
	return min(e.options.ScanInterval, max(earlyScanInterval, earlyScanMaxShare*took))
}
