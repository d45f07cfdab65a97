// SPDX-License-Identifier: Apache-2.0

package health

import (
	"time"
)

// granule is the schedule's shortest wait: of thousands of checks a second, those due within it start together, because
// a wake-up costs as much as a check.
const granule = 4 * time.Millisecond

// queue has the targets that wait, the next one first (container/heap).
type queue []*target

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].next < q[j].next }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].queueIndex, q[j].queueIndex = i, j
}
func (q *queue) Push(x any) {
	t := x.(*target)
	t.queueIndex = len(*q)
	*q = append(*q, t)
}
func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	t.queueIndex = -1
	return t
}

// bucket bounds how fast checks start, however many were kept waiting: in 100 ms, at less than twice the mean rate,
// those included that depth lets start at once.
type bucket struct {
	rate   float64 // the mean, in checks a second
	tokens float64
	filled time.Duration
}

// catchUp is how much faster than at the mean rate checks start that were kept waiting.
const catchUp = 1.5

// depth is how many checks may start at once: those of 40 ms, and always a few.
func (b *bucket) depth() float64 { return max(minBurst, b.rate/25) }

// minBurst is how many checks may always start at once: of a slow schedule, too, none is to wait for others.
const minBurst = 16

// take reports whether a check may start now.
func (b *bucket) take(now time.Duration) bool {
	b.tokens = min(b.depth(), b.tokens+catchUp*b.rate*(now-b.filled).Seconds())
	b.filled = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// wait is how long it takes until a check may start.
func (b *bucket) wait() time.Duration {
	if b.rate <= 0 {
		return granule
	}
	return time.Duration((1 - b.tokens) / (catchUp * b.rate) * float64(time.Second))
}

// setRate takes a target's share of the mean rate out of the bucket, and with present the share it
// has now back in.
func (b *bucket) setRate(t *target, present bool) {
	if t.ratedInterval > 0 {
		b.rate -= 1 / t.ratedInterval.Seconds()
	}
	t.ratedInterval = 0
	if present {
		t.ratedInterval = t.pace()
		b.rate += 1 / t.ratedInterval.Seconds()
	}
}
