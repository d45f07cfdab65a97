// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"slices"
	"time"
)

// The data plane's clock stops while there is no process, and while the process stalls: flows do not count as idle for
// a time in which no process updated the clock. Another balancer's clock goes on meanwhile, and its flows' times are
// compared with ours: so the gaps are recorded.

// ClockGap is the time of the clock when it stopped, and for how long it did.
type ClockGap struct {
	at       uint32
	duration time.Duration
	// time is the janitor's time then, which does not wrap around.
	time time.Duration
}

// ClockGaps are the last gaps, the newest last. They are immutable.
type ClockGaps []ClockGap

// MaxClockGaps bounds the number of recorded gaps.
const MaxClockGaps = 64

// with returns the gaps and one more.
func (p ClockGaps) with(gap ClockGap) ClockGaps {
	return append(slices.Clone(p[max(len(p)+1-MaxClockGaps, 0):]), gap)
}

// recent returns the gaps that a flow may have been seen before: no timeout is longer. As the clock wraps around, older
// gaps would seem to be later than a flow that was just seen.
func (p ClockGaps) recent(now time.Duration) ClockGaps {
	for len(p) > 0 && now-p[0].time > MaxTimeout {
		p = p[1:]
	}
	return p
}

// Since returns for how long the clock was stopped since it showed a time, gaps at that time included.
func (p ClockGaps) Since(seen uint32) (total time.Duration) {
	for _, one := range p {
		if int32(one.at-seen) >= 0 {
			total += one.duration
		}
	}
	return total
}

// Ago returns the time of the clock that long ago. Moments in a gap map to times between that of the gap and that of
// the next step, in the same order.
func (p ClockGaps) Ago(clock uint32, silent time.Duration) uint32 {
	for _, one := range slices.Backward(p) {
		since := time.Duration(clock-one.at) * time.Millisecond
		switch {
		case silent < since:
			// The clock wraps around.
			return one.at + max(clock-Milliseconds(silent)-one.at, uint32(StepEvery.Milliseconds()))
		case silent < since+one.duration:
			return one.at + 1 +
				uint32((since+one.duration-silent).Seconds()/one.duration.Seconds()*float64(StepEvery.Milliseconds()-2))
		}
		silent -= one.duration
	}
	return clock - Milliseconds(silent)
}

// ClockGaps returns the gaps of the clock that present flows may have been seen before.
func (j *Janitor) ClockGaps() ClockGaps {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.noteStall(j.Monotonic())
	j.clockGaps = j.clockGaps.recent(j.time)
	return j.clockGaps
}

// noteStall records a gap if the process stalled before a time of the monotonic clock: flows that were last seen before
// the gap may have continued on other balancers, and ended. The gap applies at once, because other balancers may be
// notified of flows before the next step.
func (j *Janitor) noteStall(now time.Duration) {
	passed := now - j.stepped
	if !j.Stepping || passed <= maxStep {
		return
	}
	j.clockGaps, j.began = j.clockGaps.with(ClockGap{j.clock(), passed - maxStep, j.time}), j.time
	j.time, j.stepped = j.time+maxStep, now
}

// Resume starts the clock at the time at which it stopped when an earlier process ended, gap ago.
func (j *Janitor) Resume(clock uint32, gap time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.time = max(j.time, time.Duration(clock)*time.Millisecond)
	j.began, j.clockGaps = j.time, j.clockGaps.with(ClockGap{j.clock(), max(gap, 0), j.time})
}

// inheritedFor is for how long after a gap a flow without a packet since that gap counts as inherited: much longer than
// other balancers take to send all their flows.
const inheritedFor = time.Hour

// Inherited returns the time of the clock up to which flows count as inherited: last seen by the previous process, or
// before this one stalled; false: there are no such flows.
func (j *Janitor) Inherited() (until uint32, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.noteStall(j.Monotonic())
	return uint32(j.began.Milliseconds()), j.began > 0 && j.time-j.began < inheritedFor
}
