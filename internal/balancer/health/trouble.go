// SPDX-License-Identifier: Apache-2.0

package health

import (
	"log/slog"
	"time"
)

// troubles are this host's own, by the answers' texts, with when each was last met. One is logged
// when it is met first, not for each of thousands of checks.
type troubles map[string]time.Time

const (
	// relogAfter is how long a trouble is not met until it is logged again.
	relogAfter = 10 * time.Minute
	// maxKinds is how many are kept apart.
	maxKinds = 64
)

// shouldLog notes that a trouble was met, and reports whether it is to be logged.
func (n troubles) shouldLog(kind string, now time.Time) bool {
	last, known := n[kind]
	if !known && len(n) >= maxKinds {
		return false
	}
	n[kind] = now
	return !known || now.Sub(last) > relogAfter
}

func (n troubles) logAnswer(log *slog.Logger, answer Answer, t *target) {
	if n.shouldLog(answer.Text, t.last) {
		log.Warn("a health check could not be made, which is left out of the count, as are those that follow",
			"endpoint", t.endpoint().String(), "why", answer.Reason)
	}
}

// logSaturation notes that a check has to wait for others to end.
func (n troubles) logSaturation(log *slog.Logger, limit, endpoints int) {
	if n.shouldLog("crowded", time.Now()) {
		log.Warn("health checks are made less often than configured, for as many run as may at a time, and the others wait: "+
			"raise the interval, lower the timeout, or let the process open more files, half of which are for checks (16,384 at most)",
			"running", limit, "endpoints", endpoints)
	}
}
