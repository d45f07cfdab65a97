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

// faultDuration, unless it is 0, ends a fault that long after the subject has noticed it, and not when the suite says.
// So a test waits for the notice, and not for the longest time that it may take. A run keeps it.
type faultDuration time.Duration

// faultTail is the name under which a run keeps its tail.
const faultTail = "fault tail"

// EndFaults ends a run's faults the given time after the subject has noticed them.
func EndFaults(r *bench.Runner, after time.Duration) {
	*bench.RunState[faultDuration](r, faultTail) = faultDuration(after)
}

// on reports whether there are health checks.
func (c ChangeCheck) on() bool { return c != ChangeCheck{} }

// checkValues checks the values if an event needs them or any of them is set.
func (c ChangeCheck) checkValues(at bench.Path, fail bench.FailFunc) {
	for _, v := range []struct {
		name  string
		value time.Duration
	}{{"interval", c.Interval}, {"timeout", c.Timeout}} {
		if v.value < minTime || v.value > maxTime {
			fail(at.To(v.name), "%v is not possible; use %v to %v", v.value, minTime, maxTime)
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

// maxInARow is the upper bound of rise and fall.
const maxInARow = 100

// subject returns the check as subjects get it; nil if there is none.
func (c ChangeCheck) subject() *subject.Check {
	if !c.on() {
		return nil
	}
	return &subject.Check{Port: checkPort, Interval: c.Interval, Timeout: c.Timeout, Fall: c.Fall, Rise: c.Rise}
}

// settleChecks waits until the checks have a stable result for the servers. jeoul makes no checks by the VIP before the
// kernel has verified a program for their answers, which takes a minute in an emulated machine. HAProxy marks a server
// that it has just begun to check as down at its first failed check. Only after fall passed checks does it need fall
// failed ones.
func settleChecks(ctx context.Context, c *changeTrial) error {
	if shows, ok := c.changing.(subject.ShowingChecks); ok {
		for _, server := range []int{serverDying, serverHanging} {
			if _, err := c.waitFor(ctx, shows.Passes, c.backends()[server], true); err != nil {
				return err
			}
		}
	}
	check := settingsOf(c.trial.By).Check
	return clock.Sleep(ctx, time.Duration(check.Fall+check.Rise+1)*check.Interval)
}

// killServer kills the server of a backend, and starts another server at the end of the fault.
func killServer(ctx context.Context, c *changeTrial) error {
	host := c.backends()[serverDying]
	return c.fail(ctx, host,
		func() error { return Live(c.runner).Of(host).Kill(ctx) },
		func() error { return Live(c.runner).Start(context.WithoutCancel(ctx), host) })
}

// suspendServer stops the server of a backend by SIGSTOP: its kernel accepts connections, but nothing answers. At the
// end of the fault the server continues.
func suspendServer(ctx context.Context, c *changeTrial) error {
	host := c.backends()[serverHanging]
	signal := func(s syscall.Signal) func() error {
		return func() error { return Live(c.runner).Of(host).Signal(s) }
	}
	return c.fail(ctx, host, signal(syscall.SIGSTOP), signal(syscall.SIGCONT))
}

// fail injects a fault into a backend's service for the duration that the suite says. If the subject noticed the fault,
// fail waits until the subject also notices its end.
func (c *changeTrial) fail(ctx context.Context, host *lab.Host, inject, repair func() error) error {
	f := &fault{began: time.Now()}
	c.fault = f
	if err := inject(); err != nil {
		return err
	}
	lasted := c.awaitFaultEnd(ctx, host)
	// Also when the run is cancelled: later events need the server.
	if err := errors.Join(lasted, repair()); err != nil {
		return err
	}
	if err := awaitLive(ctx, c.runner, host); err != nil {
		return err
	}
	f.repairedAt = time.Now()
	if f.noticed.IsZero() {
		return nil
	}
	checking := c.changing.(subject.Checking)
	back, err := c.waitFor(ctx, checking.Serves, host, true)
	f.recoveredAt = back
	return err
}

// awaitFaultEnd returns when the fault has lasted as long as the suite says. It records when the subject was seen to
// have noticed.
func (c *changeTrial) awaitFaultEnd(ctx context.Context, host *lab.Host) error {
	ends := c.fault.began.Add(settingsOf(c.trial.By).Fault)
	if checking, ok := c.changing.(subject.Checking); ok {
		looking, cancel := context.WithDeadline(ctx, ends)
		defer cancel()
		// If the subject does not notice in time, noticed stays zero, and the result says so.
		c.fault.noticed, _ = c.waitFor(looking, checking.Serves, host, false)
		tail := time.Duration(*bench.RunState[faultDuration](c.runner, faultTail))
		if tail > 0 && !c.fault.noticed.IsZero() {
			ends = c.fault.noticed.Add(tail)
			looking, cancel = context.WithDeadline(looking, ends)
			defer cancel()
		}
		c.fault.watch(looking, checking, host)
	}
	return clock.Sleep(ctx, time.Until(ends))
}

// pollInterval is the interval at which a subject that has noticed a fault is asked again. It is so long that the
// requests do not show in the subject's CPU use.
const pollInterval = 200 * time.Millisecond

// watch records when a subject that has noticed the fault lets the backend serve nevertheless.
func (f *fault) watch(ctx context.Context, checking subject.Checking, host *lab.Host) {
	served := false
	for !f.noticed.IsZero() && clock.Sleep(ctx, pollInterval) == nil {
		if serves, err := checking.Serves(ctx, host); err == nil && serves != served {
			served = serves
			f.transitions = append(f.transitions, time.Now())
		}
	}
}

// notes describe when a subject let the backend serve during the fault.
func (f *fault) notes() (notes []string) {
	for turn := range slices.Chunk(f.transitions, 2) {
		until := "to the end of the fault"
		if len(turn) > 1 {
			until = fmt.Sprintf("to %.1f s", turn[1].Sub(f.began).Seconds())
		}
		notes = append(notes, fmt.Sprintf("from %.1f s after the fault began %s, the backend was shown to serve",
			turn[0].Sub(f.began).Seconds(), until))
	}
	return notes
}

// write counts the failures before and after the fault was noticed.
func (f *fault) write(counts live.Counts, udp bool, m map[string]float64) {
	m[results.FaultSeconds] = f.repairedAt.Sub(f.began).Seconds()
	until := f.repairedAt.Add(noticeTimeout) // beyond the event
	if !f.noticed.IsZero() {
		until = f.noticed
		m[results.NoticedSeconds] = f.noticed.Sub(f.began).Seconds()
		m[results.BackSeconds] = f.recoveredAt.Sub(f.repairedAt).Seconds()
	}
	failed := slices.Concat(counts.LostNew, counts.ReusedLostAt)
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
