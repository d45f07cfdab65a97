// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"container/heap"
	"context"
	"math/rand/v2"
	"time"
)

// Run makes the wanted checks until the context ends, and returns when the last check has.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	e.ctx, e.beats = ctx, false
	e.bucket.filled, e.bucket.tokens = e.now(), minBurst
	for _, t := range e.queue { // whatever was due before
		t.due = t.start(e.now(), max(t.due, e.now()))
		t.next = t.due
	}
	heap.Init(&e.queue)
	e.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			e.mu.Lock()
			e.ctx = nil
			e.mu.Unlock()
			e.wait.Wait()
			return ctx.Err()
		case <-timer.C:
		case <-e.wake:
		}
		e.mu.Lock()
		now := e.now()
		pause := e.dispatch(now)
		e.asleep = now + pause
		starting := e.starting
		e.starting = nil
		e.mu.Unlock()
		timer.Reset(pause)
		e.launch(ctx, starting)
	}
}

// pendingCheck is a check that is made.
type pendingCheck struct {
	target   *target
	endpoint Endpoint
	began    time.Duration
	within   time.Duration // the time that it may take
	late     time.Duration // of the pulse, when it began
	offline  string        // the reason for being offline, when it began
}

// startCheck begins a check of the target. e.mu is held.
func (e *Engine) startCheck(t *target) {
	e.running++
	if ctx := e.ctx; !e.beats {
		// An engine without checks needs no pulse, which wakes the process fifty times a second.
		e.beats = true
		e.stallMonitor.reset()
		e.wait.Go(func() { e.stallMonitor.run(ctx) })
	}
	a := pendingCheck{t, t.endpoint(), e.now(), t.key.spec.check.Timeout + t.extra, e.stallMonitor.lateness(),
		e.offline}
	if e.starter != nil {
		e.starting = append(e.starting, a) // not while e.mu is held: it is the kernel's time
		return
	}
	e.askConcurrently(e.ctx, a)
}

// launch hands checks to the starter, or makes those itself that are none for it.
func (e *Engine) launch(ctx context.Context, starting []pendingCheck) {
	for _, a := range starting {
		e.wait.Add(1)
		begun := e.starter.Start(ctx, a.endpoint, &a.target.key.spec.check, a.within, func(answer Answer) {
			defer e.wait.Done()
			e.endCheck(ctx, a, answer)
		})
		if !begun {
			e.askConcurrently(ctx, a)
			e.wait.Done()
		}
	}
}

// askConcurrently makes a check in a goroutine of its own.
func (e *Engine) askConcurrently(run context.Context, a pendingCheck) {
	e.wait.Go(func() {
		check := &a.target.key.spec.check
		ctx, cancel := context.WithTimeout(run, contextBound(check, a.within))
		answer := e.checker.Check(ctx, a.endpoint, check, nil)
		cancel()
		e.endCheck(run, a, answer)
	})
}

// settleTime is the time after the return of a link in which a switch may not forward yet, and an ARP request or
// a neighbour solicitation that was lost for that reason is repeated: the kernel sends 3, a second apart.
const settleTime = 5 * time.Second

// SetOffline says why this host reaches no backend, or with "" that it does. A check that fails is no
// evidence if it began or ended before that, nor, within settleTime after that, if nothing came from its endpoint.
func (e *Engine) SetOffline(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.offline != "" && why == "" {
		e.lastOffline, e.settled = e.offline, e.now()+settleTime
	}
	e.offline = why
}

// offlineReason returns why a failure of a check is no evidence against its endpoint, or "". e.mu is held.
func (e *Engine) offlineReason(a pendingCheck, answer Answer) string {
	if why := cmp.Or(e.offline, a.offline); why != "" {
		return why
	}
	if (answer.Silent || answer.Unreachable) && a.began < e.settled {
		return e.lastOffline
	}
	return ""
}

// endCheck takes the answer of a check, unless it is no evidence.
func (e *Engine) endCheck(run context.Context, a pendingCheck, answer Answer) {
	t := a.target
	late := e.stallMonitor.lateness() - a.late
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running--; e.running == e.limit-1 {
		e.wakeRun()
	}
	if t.gone || run.Err() != nil {
		return
	}
	if answer.Outcome == Failed && answer.Silent {
		answer = t.evaluateSilence(answer, a.within, late)
	}
	if answer.Outcome == Failed {
		if why := e.offlineReason(a, answer); why != "" {
			answer = Trouble(why, why)
		}
	}
	e.recordAnswer(t, answer, a.began)
	e.reschedule(t, a.began)
}

// recordAnswer takes an answer into the target's state and its watches' verdicts. e.mu is held.
func (e *Engine) recordAnswer(t *target, answer Answer, began time.Duration) {
	t.last = time.Now()
	t.took = e.now() - began
	t.text = answer.Text
	if answer.Outcome == NoEvidence {
		if !answer.Passing {
			e.troubles.logAnswer(e.log, answer, t)
		}
		if t.state == Unknown {
			t.reason = answer.Reason
		}
		return
	}
	passed := answer.Outcome == Passed
	if passed || !answer.Silent {
		t.extra = 0
	}
	other := t.machine.count(passed, answer.Final, t.rise(), t.fall())
	if other {
		t.since = t.last
	}
	if !passed || t.state != Failing {
		t.reason = answer.Reason
	}
	if answer.Weighs && t.weight != answer.Weight {
		t.weight, other = answer.Weight, true
	}
	if answer.Reports && t.reported != answer.Reported {
		t.reported, other = answer.Reported, true
	}
	if answer.Drains && t.drain != answer.Drain {
		t.drain, other = answer.Drain, true
	}
	other = t.setFinishing(answer) || other
	other = t.markConfirmed() || other
	if other {
		for _, w := range t.watches {
			e.updateVerdict(w)
		}
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
			e.troubles.logSaturation(e.log, e.limit, len(e.targets))
			return time.Hour // until a check ends
		}
		if !e.bucket.take(now) {
			return max(granule, e.bucket.wait())
		}
		heap.Pop(&e.queue)
		e.startCheck(t)
	}
	return time.Hour
}

// reschedule puts a target into the queue whose check has ended; it began at that time. e.mu is held.
func (e *Engine) reschedule(t *target, began time.Duration) {
	now := e.now()
	e.bucket.setRate(t, true)
	check := &t.key.spec.check
	if t.needsConfirmation() {
		// The bucket is not weighed for it: where thousands hurry, they do so at the rate that all have together.
		t.confirmChecksLeft--
		t.due = max(now, began+min(t.pace(), confirmInterval))
	} else if pace := t.pace(); pace < check.Interval {
		t.due = max(now, began+pace)
	} else {
		// The next of its own times: by that, a check that was late once is not late for ever. One within half an
		// interval of a fast check would make two of one.
		t.due = t.slot(max(now, t.due+check.Interval/2))
	}
	t.next = t.due
	if check.Jitter > 0 && !t.needsConfirmation() {
		t.next += time.Duration(rand.Float64() * float64(check.Jitter) / 100 * float64(t.pace()))
	}
	heap.Push(&e.queue, t)
	if t.next < e.asleep {
		e.asleep = t.next
		e.wakeRun()
	}
}

// wakeRun makes Run look at the queue.
func (e *Engine) wakeRun() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}
