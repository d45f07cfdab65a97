// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/metrics"
)

// denialsEvery is the least time from one line of the log about refused clients to the next: who guesses tokens
// must not fill the log.
const denialsEvery = 10 * time.Second

// denials counts requests of clients that the API over TCP does not let in, and logs some of them.
type denials struct {
	metrics *metrics.Metrics
	log     *slog.Logger

	mu sync.Mutex
	// logged is when the last line was written, and more are those since that have none.
	logged     time.Time
	suppressed int
}

// note takes one: from where it came, and why it was refused.
func (d *denials) note(from string, why error) {
	d.metrics.Denied(why)
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if !d.logged.IsZero() && now.Sub(d.logged) < denialsEvery {
		d.suppressed++
		return
	}
	text := fmt.Sprintf("refused a request to the API over TCP from %s: %v", from, why)
	if d.suppressed > 0 {
		text += fmt.Sprintf(" (and %d others since %s)", d.suppressed, d.logged.Local().Format(time.TimeOnly))
	}
	d.log.Warn(text)
	d.logged, d.suppressed = now, 0
}
