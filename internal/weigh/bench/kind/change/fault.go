// SPDX-License-Identifier: Apache-2.0

package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// tail, unless it is 0, ends a fault so long after the subject has noticed it, and not when the suite says: a test
// waits for that event, and not for the longest time that it may take. It is kept of a run.
type tail time.Duration

// faultTail is the name that a run's tail is kept under.
const faultTail = "fault tail"

// EndFaults has a run's faults end so long after they were noticed.
func EndFaults(r *bench.Runner, after time.Duration) {
	*bench.KeptOfRun[tail](r, faultTail) = tail(after)
}

// on reports whether there are checks.
func (c ChangeCheck) on() bool { return c != ChangeCheck{} }

// checkValues checks the values, where an event needs them or any is given.
func (c ChangeCheck) checkValues(at bench.Path, fail bench.FailFunc) {
	for _, v := range []struct {
		name  string
		value time.Duration
	}{{"interval", c.Interval}, {"timeout", c.Timeout}} {
		if v.value < leastTime || v.value > mostTime {
			fail(at.To(v.name), "%v is not possible; use %v to %v", v.value, leastTime, mostTime)
		}
	}
	if c.Timeout > c.Interval {
		fail(at.To("timeout"), "%v is longer than the interval, %v", c.Timeout, c.Interval)
	}
	for _, v := range []struct {
		name  string
		value int
	}{{"fall", c.Fall}, {"rise", c.Rise}} {
		if v.value < 1 || v.value > maxInARow {
			fail(at.To(v.name), "%d is not possible; use 1 to %d", v.value, maxInARow)
		}
	}
}

// maxInARow bounds rise and fall.
const maxInARow = 100

// subject is the check as subjects get it; nil where there is none.
func (c ChangeCheck) subject() *subject.Check {
	if !c.on() {
		return nil
	}
	return &subject.Check{Port: checkPort, Interval: c.Interval, Timeout: c.Timeout, Fall: c.Fall, Rise: c.Rise}
}

// settleChecks waits until the checks know the servers well: jeoul makes none by the VIP before the kernel
// has verified a program for their answers, which takes a minute in a machine that is emulated; HAProxy takes
// a server that it has just begun to check for down at its first failed check, and has to see it pass fall times
// before that takes fall failed ones.
func settleChecks(ctx context.Context, c *changeTrial) error {
	if shows, ok := c.changing.(subject.ShowingChecks); ok {
		for _, server := range []int{serverDying, serverHanging} {
			if _, err := c.waitFor(ctx, shows.Passes, c.backends()[server], true); err != nil {
				return err
			}
		}
	}
	check := own(c.trial.By).Check
	return clock.Sleep(ctx, time.Duration(check.Fall+check.Rise+1)*check.Interval)
}

// die kills the server of a backend, and starts another one when the fault has lasted.
func die(ctx context.Context, c *changeTrial) error {
	host := c.backends()[serverDying]
	return c.fail(ctx, host,
		func() error { return Live(c.runner).Of(host).Kill(ctx) },
		func() error { return Live(c.runner).Start(context.WithoutCancel(ctx), host) })
}

// hang stops the server of a backend by SIGSTOP: its kernel accepts connections, and none is
// answered. It goes on when the fault has lasted.
func hang(ctx context.Context, c *changeTrial) error {
	host := c.backends()[serverHanging]
	signal := func(s syscall.Signal) func() error {
		return func() error { return Live(c.runner).Of(host).Signal(s) }
	}
	return c.fail(ctx, host, signal(syscall.SIGSTOP), signal(syscall.SIGCONT))
}

// fail has a backend's service fail for the time of the suite, and waits until a subject that has
// noticed knows that it is back.
func (c *changeTrial) fail(ctx context.Context, host *lab.Host, inject, repair func() error) error {
	f := &fault{began: time.Now()}
	c.fault = f
	if err := inject(); err != nil {
		return err
	}
	lasted := c.lasts(ctx, host)
	// Also when the run is ended: later events must find the server.
	if err := errors.Join(lasted, repair()); err != nil {
		return err
	}
	if err := awaitLive(ctx, c.runner, host); err != nil {
		return err
	}
	f.over = time.Now()
	if f.noticed.IsZero() {
		return nil
	}
	checking := c.changing.(subject.Checking)
	back, err := c.waitFor(ctx, checking.Serves, host, true)
	f.back = back
	return err
}

// lasts returns when the fault has lasted as long as the suite says, and notes when the subject
// was seen to know.
func (c *changeTrial) lasts(ctx context.Context, host *lab.Host) error {
	ends := c.fault.began.Add(own(c.trial.By).Fault)
	if checking, ok := c.changing.(subject.Checking); ok {
		looking, cancel := context.WithDeadline(ctx, ends)
		defer cancel()
		// One that does not notice in time has not noticed, which the result says.
		c.fault.noticed, _ = c.waitFor(looking, checking.Serves, host, false)
		if tail := time.Duration(*bench.KeptOfRun[tail](c.runner, faultTail)); tail > 0 && !c.fault.noticed.IsZero() {
			ends = c.fault.noticed.Add(tail)
			looking, cancel = context.WithDeadline(looking, ends)
			defer cancel()
		}
		c.fault.watch(looking, checking, host)
	}
	return clock.Sleep(ctx, time.Until(ends))
}

// pollInterval is how often a subject that has noticed a fault is asked again: seldom enough that the questions do not
// show in its CPU use.
const pollInterval = 200 * time.Millisecond

// watch notes when a subject that has noticed the fault is seen to have the backend serve all the same.
func (f *fault) watch(ctx context.Context, checking subject.Checking, host *lab.Host) {
	served := false
	for !f.noticed.IsZero() && clock.Sleep(ctx, pollInterval) == nil {
		if serves, err := checking.Serves(ctx, host); err == nil && serves != served {
			served = serves
			f.turns = append(f.turns, time.Now())
		}
	}
}

// notes say when a subject had the backend serve during the fault.
func (f *fault) notes() (notes []string) {
	for turn := range slices.Chunk(f.turns, 2) {
		until := "to the end of the fault"
		if len(turn) > 1 {
			until = fmt.Sprintf("to %.1f s", turn[1].Sub(f.began).Seconds())
		}
		notes = append(notes, fmt.Sprintf("from %.1f s after the fault began %s, the backend was shown to serve",
			turn[0].Sub(f.began).Seconds(), until))
	}
	return notes
}

// write counts the failures before the fault was noticed, and those after.
func (f *fault) write(counts live.Counts, udp bool, m map[string]float64) {
	m[results.FaultSeconds] = f.over.Sub(f.began).Seconds()
	until := f.over.Add(noticeBound) // beyond the event
	if !f.noticed.IsZero() {
		until = f.noticed
		m[results.NoticedSeconds] = f.noticed.Sub(f.began).Seconds()
		m[results.BackSeconds] = f.back.Sub(f.over).Seconds()
	}
	failed := slices.Concat(counts.LostNew, counts.LostLaps)
	inFlight, before := failed.Before(f.began), failed.Before(until)
	m[results.InFlight] = float64(inFlight)
	m[results.NewFailedBefore], m[results.NewFailedAfter] = float64(before-inFlight), float64(len(failed)-before)
	if last, ok := failed.Last(); ok {
		m[results.LastFailedSeconds] = max(last.Sub(f.began).Seconds(), 0)
	}
	if udp {
		n := counts.LostQueries.Before(until)
		m[results.UDPUnansweredBefore], m[results.UDPUnansweredAfter] = float64(n), float64(len(counts.LostQueries)-n)
	}
}

// notes describe the health checks.
func (c ChangeCheck) notes() []string {
	if !c.on() {
		return nil
	}
	return []string{
		fmt.Sprintf("subjects with health checks ask each server GET / at a port of the same process every %v, within %v; it is down after %d failed checks in a row, and up after %d passed ones",
			c.Interval, c.Timeout, c.Fall, c.Rise),
		"a service that dies is killed by SIGKILL, one that hangs is stopped by SIGSTOP: its kernel goes on accepting connections; the host answers throughout",
	}
}
