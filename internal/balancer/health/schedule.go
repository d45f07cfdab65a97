// SPDX-License-Identifier: Apache-2.0

package health

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// granule is the schedule's shortest wait: of thousands of checks a second, those due within it start together, for a
// wake-up costs as much as a check.
const granule = 4 * time.Millisecond

// queue has the targets that wait, the next one first (container/heap).
type queue []*target

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].next < q[j].next }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}
func (q *queue) Push(x any) {
	t := x.(*target)
	t.place = len(*q)
	*q = append(*q, t)
}
func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	t.place = -1
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
func (b *bucket) depth() float64 { return max(few, b.rate/25) }

// few is how many checks may always start at once: of a slow schedule, too, none is to wait for others.
const few = 16

// take says whether a check may start now.
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

// weigh takes a target's share of the mean rate out of the bucket, and with present the share it
// has now back in.
func (b *bucket) weigh(t *target, present bool) {
	if t.spacing > 0 {
		b.rate -= 1 / t.spacing.Seconds()
	}
	t.spacing = 0
	if present {
		t.spacing = t.pace()
		b.rate += 1 / t.spacing.Seconds()
	}
}

// dispatch starts the checks that are due, and returns the time until the next one. e.mu is held.
func (e *Engine) dispatch(now time.Duration) time.Duration {
	for len(e.queue) > 0 {
		t := e.queue[0]
		if t.next > now {
			return max(granule, t.next-now)
		}
		if now-t.next >= t.key.spec.check.Interval && t.next > e.full {
			// The process was suspended, or all was late: overdue checks must not start at once. Where it waited for
			// others to end it keeps its turn, or the same ones would be left out again and again.
			t.due = t.slot(now)
			t.next = t.due
			heap.Fix(&e.queue, 0)
			continue
		}
		if e.running >= e.limit {
			e.full = now
			e.troubles.crowd(e.log, e.limit, len(e.targets))
			return time.Hour // until a check ends
		}
		if !e.bucket.take(now) {
			return max(granule, e.bucket.wait())
		}
		heap.Pop(&e.queue)
		e.start(t)
	}
	return time.Hour
}

// await puts a target into the queue whose check has ended; it began at that time. e.mu is held.
func (e *Engine) await(t *target, began time.Duration) {
	now := e.now()
	e.bucket.weigh(t, true)
	check := &t.key.spec.check
	if t.hurries() {
		// The bucket is not weighed for it: where thousands hurry, they do so at the rate that all have together.
		t.hurried--
		t.due = max(now, began+min(t.pace(), hurry))
	} else if pace := t.pace(); pace < check.Interval {
		t.due = max(now, began+pace)
	} else {
		// The next of its own times: by that, a check that was late once is not late for ever. One within half an
		// interval of a fast check would make two of one.
		t.due = t.slot(max(now, t.due+check.Interval/2))
	}
	t.next = t.due
	if check.Jitter > 0 && !t.hurries() {
		t.next += time.Duration(rand.Float64() * float64(check.Jitter) / 100 * float64(t.pace()))
	}
	heap.Push(&e.queue, t)
	if t.next < e.asleep {
		e.asleep = t.next
		e.rouse()
	}
}

// rouse makes Run look at the queue.
func (e *Engine) rouse() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}
