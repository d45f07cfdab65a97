// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"sync/atomic"
	"time"
)

// beat is how often the process feels its own pulse, and slack by how much a beat may be late
// without a word: timers are.
const (
	beat  = 20 * time.Millisecond
	slack = 5 * time.Millisecond
)

// stallMonitor measures by how much this process comes too late: because it was suspended, the machine was, or others
// have the CPU. A check that waited without success meanwhile shows nothing.
type stallMonitor struct {
	start time.Time
	late  atomic.Int64 // nanoseconds, ever
	last  atomic.Int64 // nanoseconds after start
}

// reset has the beats counted from now on, and run makes them until the context ends.
func (p *stallMonitor) reset() { p.last.Store(int64(time.Since(p.start))) }

func (p *stallMonitor) run(ctx context.Context) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.sample(time.Since(p.start))
		}
	}
}

// sample records a beat at that time.
func (p *stallMonitor) sample(now time.Duration) {
	last := p.last.Swap(int64(now))
	if late := int64(now) - last - int64(beat+slack); late > 0 {
		p.late.Add(late)
	}
}

// lateness returns by how much this process was ever late, a beat that is late at this moment included.
func (p *stallMonitor) lateness() time.Duration {
	overdue := int64(time.Since(p.start)) - p.last.Load() - int64(beat+slack)
	return time.Duration(p.late.Load() + max(0, overdue))
}
