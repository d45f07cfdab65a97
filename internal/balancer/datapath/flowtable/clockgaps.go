// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"slices"
	"time"
)

// The data plane's clock stands still while there is no process, and while one is held up: flows are not counted as
// silent for a time when nothing was there to see their packets. Another balancer's clock has gone on meanwhile, and
// its flows' times are compared with ours: so the gaps are kept.

// ClockGap is a time that the clock showed, and for how long it stood still there.
type ClockGap struct {
	at uint32
	by time.Duration
}

// ClockGaps are the last ones, the newest last. They are not changed.
type ClockGaps []ClockGap

// MaxClockGaps bounds them.
const MaxClockGaps = 64

// with returns them and one more.
func (p ClockGaps) with(at uint32, by time.Duration) ClockGaps {
	return append(slices.Clone(p[max(len(p)+1-MaxClockGaps, 0):]), ClockGap{at, by})
}

// Since returns for how long the clock has stood still since it showed a time, or when it did.
func (p ClockGaps) Since(seen uint32) (by time.Duration) {
	for _, one := range p {
		if int32(one.at-seen) >= 0 {
			by += one.by
		}
	}
	return by
}

// Ago returns the clock's time so long ago. Of moments while it stood still it returns times between that of the gap
// and that of its next step, in the order of the moments.
func (p ClockGaps) Ago(clock uint32, silent time.Duration) uint32 {
	for _, one := range slices.Backward(p) {
		since := time.Duration(clock-one.at) * time.Millisecond
		switch {
		case silent < since:
			// The clock wraps around.
			return one.at + max(clock-Milliseconds(silent)-one.at, uint32(StepEvery.Milliseconds()))
		case silent < since+one.by:
			return one.at + 1 +
				uint32((since+one.by-silent).Seconds()/one.by.Seconds()*float64(StepEvery.Milliseconds()-2))
		}
		silent -= one.by
	}
	return clock - Milliseconds(silent)
}

// ClockGaps returns when the clock stood still.
func (j *Janitor) ClockGaps() ClockGaps {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.noteStall(j.Monotonic())
	return j.clockGaps
}

// noteStall notes at a time of the monotonic clock that the process was held up, if it was: flows that were seen last
// before that may have gone on elsewhere, and ended. The gap counts at once, because other balancers may be notified of
// flows before the next step.
func (j *Janitor) noteStall(now time.Duration) {
	passed := now - j.stepped
	if !j.Stepping || passed <= maxStep {
		return
	}
	j.clockGaps, j.began = j.clockGaps.with(j.clock(), passed-maxStep), j.time
	j.time, j.stepped = j.time+maxStep, now
}

// Resume starts the clock at the time at which it has stood since another process ended.
func (j *Janitor) Resume(clock uint32, gap time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.time = max(j.time, time.Duration(clock)*time.Millisecond)
	j.began, j.clockGaps = j.time, j.clockGaps.with(j.clock(), max(gap, 0))
}

// inheritedFor is how long a flow of which there was no packet since a process ended, or was held up, is taken for that
// process's and not for this one's: much longer than others take to send all their flows.
const inheritedFor = time.Hour

// Inherited returns the time of the clock up to which flows were last seen by the process before, or before this one
// was held up; false: there are no such flows.
func (j *Janitor) Inherited() (until uint32, is bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.noteStall(j.Monotonic())
	return uint32(j.began.Milliseconds()), j.began > 0 && j.time-j.began < inheritedFor
}
