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
	// quiet is how long a trouble is not met until it is logged anew.
	quiet = 10 * time.Minute
	// kinds is how many are kept apart.
	kinds = 64
)

func (n troubles) note(log *slog.Logger, answer Answer, t *target) {
	last, known := n[answer.Text]
	if !known && len(n) >= kinds {
		return
	}
	n[answer.Text] = t.last
	if !known || t.last.Sub(last) > quiet {
		log.Warn("a health check could not be made, which is left out of the count, as are those that follow",
			"endpoint", t.endpoint().String(), "why", answer.Reason)
	}
}
