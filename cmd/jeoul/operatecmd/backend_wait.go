// SPDX-License-Identifier: Apache-2.0

package operatecmd

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// Intervals of waiting for a drain.
const (
	// pollInterval is the interval at which the daemon is asked for the flows left.
	pollInterval = time.Second
	// quietTracked and quietUntracked are the time without a packet after which a backend has no flows left. Without
	// tracking it is longer: a flow is remembered from its next packet on, and counted some seconds later.
	quietTracked   = 3 * time.Second
	quietUntracked = 15 * time.Second
	// reportInterval is the interval of printing the flows left if the output is no terminal.
	reportInterval = 10 * time.Second
)

// ExitLeft is the exit status if flows were left at the deadline.
const ExitLeft = 3

// leftError holds the number of flows that were left at a drain's deadline.
type leftError struct{ text string }

// Error returns the text with the flows left.
func (e leftError) Error() string { return e.text }
func (leftError) ExitCode() int   { return ExitLeft }

// drainWait waits for the drain of one backend.
type drainWait struct {
	target    ops.Target
	overlay   *ops.Overlay // its last known state
	updatedAt time.Time
	rate      float64   // packets a second since then
	quiet     time.Time // no packet since
	// deadline is the drain's deadline by this process's clock, or a little earlier; zero: none.
	deadline time.Time
}

// awaitDrain reports the flows left on backends that were drained after began, until none is left, or until their
// deadline has passed, which is a leftError if some were left.
func awaitDrain(ctx context.Context, w io.Writer, ask func(context.Context) (*ops.Operations, error),
	drain *ops.Operation, began time.Time, interactive bool) error {
	waits := make([]*drainWait, len(drain.Targets))
	for i, t := range drain.Targets {
		waits[i] = &drainWait{target: t, quiet: began, updatedAt: began}
	}
	report := reporter{w: w, interactive: interactive}
	defer report.close()
	for ticks := time.NewTicker(pollInterval); ; {
		operations, err := ask(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted; %s stays drained", namesOf(drain.Targets))
		default:
		}
		now, over := time.Now(), true
		for _, wait := range waits {
			if err := wait.update(operations, now); err != nil {
				return err
			}
			over = over && wait.isDone(now)
		}
		if over {
			report.close()
			return reportEnd(w, waits, now.Sub(began))
		}
		report.show(leftLine(waits, untilFrom(drain.At, drain.Deadline, began), now), now)
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
}

// update reads the drain of the backend from the operations in force.
func (d *drainWait) update(operations *ops.Operations, now time.Time) error {
	var found *ops.Overlay
	for i, o := range operations.InForce {
		if o.Service == d.target.Service && o.Backend == d.target.Backend && o.Drain != nil && o.Drain.On {
			found = &operations.InForce[i]
		}
	}
	switch {
	case found == nil:
		return fmt.Errorf("%s is not drained any more: an operation has enabled it, or the configuration has changed",
			d.target)
	case !found.Absent.IsZero():
		return fmt.Errorf(
			"%s, at %s, is not found any more: the flows left there cannot be counted; it stays drained if it is found again", d.target, d.address())
	case found.Address != d.target.Address || found.Port != d.target.Port:
		return fmt.Errorf(
			"%s is at %s now and stays drained; flows that were left at %s are not among those of %s any more: wait for these by another `jeoul backend drain`, or look for the others by `jeoul get flows`",
			d.target, netip.AddrPortFrom(found.Address, found.Port), d.address(), d.target)
	}
	if d.overlay == nil || !found.Drain.At.Equal(d.overlay.Drain.At) {
		d.deadline = untilFrom(found.Drain.At, found.Drain.Deadline, d.updatedAt)
	}
	if d.overlay != nil && !found.Drain.Out {
		packets := found.Left.Packets - min(found.Left.Packets, d.overlay.Left.Packets)
		d.rate = float64(packets) / now.Sub(d.updatedAt).Seconds()
		if packets > 0 {
			d.quiet = now
		}
	}
	d.overlay, d.updatedAt = found, now
	return nil
}

// address returns the address of the backend when it was drained.
func (d *drainWait) address() netip.AddrPort {
	return netip.AddrPortFrom(d.target.Address, d.target.Port)
}

// untilFrom returns a deadline of the daemon, which the daemon set at the time at, as if it had been set at began. The
// daemon's times are those of the wall clock, which may be changed in the meantime; its deadline stays.
func untilFrom(at, deadline, began time.Time) time.Time {
	if deadline.IsZero() {
		return deadline
	}
	return began.Add(deadline.Sub(at))
}

// isDone reports whether the wait is over.
func (d *drainWait) isDone(now time.Time) bool {
	left := d.overlay.Left
	switch quiet := now.Sub(d.quiet); {
	case d.overlay.Drain.Out:
		return true
	case !d.deadline.IsZero() && !now.Before(d.deadline):
		// It is being removed, which ends its flows. The daemon reports the flows left afterwards.
		return false
	case left.Tracked:
		return left.Active == 0 && quiet >= quietTracked
	default:
		return left.Flows == 0 && quiet >= quietUntracked
	}
}

// leftLine returns the number of flows left on all backends, in a line.
func leftLine(waits []*drainWait, deadline, now time.Time) string {
	var all ops.Left
	var rate float64
	for _, d := range waits {
		left := d.overlay.Left
		all.Active, all.Flows, all.Tracked, rate = all.Active+left.Active, all.Flows+left.Flows, all.Tracked ||
			left.Tracked, rate+d.rate
	}
	who := waits[0].target.String()
	if len(waits) > 1 {
		who = fmt.Sprintf("%d backends", len(waits))
	}
	line := fmt.Sprintf("%s: %s, %s packets/s", who, cmdkit.FlowsText(all), cmdkit.Count(uint64(math.Round(rate))))
	if !deadline.IsZero() {
		line += fmt.Sprintf("; %s to the deadline", max(deadline.Sub(now), 0).Round(time.Second))
	}
	return line
}

// reportEnd prints how the drain ended.
func reportEnd(w io.Writer, waits []*drainWait, after time.Duration) error {
	var left []string
	for _, d := range waits {
		drain := d.overlay.Drain
		switch at := drain.AtDeadline; {
		case !drain.Out:
			fmt.Fprintf(w, "%s: nothing is left after %s%s\n", d.target, after.Round(time.Second),
				silentText(d.overlay.Left))
		case at == nil:
			left = append(left, fmt.Sprintf("%s: out%s; the flows left could not be counted", d.target, outWhen(drain)))
		case at.Active == 0 && (at.Tracked || at.Flows == 0):
			fmt.Fprintf(w, "%s: nothing was left%s\n", d.target, outWhen(drain))
		default:
			left = append(left, fmt.Sprintf("%s: out%s, and with it the flows left: %s", d.target, outWhen(drain),
				cmdkit.FlowsText(*at)))
		}
	}
	if len(left) > 0 {
		return leftError{strings.Join(left, "\n")}
	}
	return nil
}

// outWhen returns the text with the time at which a backend was removed.
func outWhen(d *ops.Drained) string {
	if d.Deadline.IsZero() {
		return " as " + d.By + " disabled it"
	}
	return " at its deadline"
}

// silentText notes that silent connections of a service that tracks no flows cannot be counted.
func silentText(left ops.Left) string {
	if left.Tracked || left.Until.IsZero() {
		return ""
	}
	return fmt.Sprintf(
		" that has sent anything; connections that are silent are not known, and still find it if they speak before %s",
		left.Until.Local().Format(time.DateTime))
}

// reporter prints the flows left: a person sees one line change, a file gets a line at intervals.
type reporter struct {
	w           io.Writer
	interactive bool
	open        bool
	lastReport  time.Time
}

func (r *reporter) show(line string, now time.Time) {
	switch {
	case r.interactive:
		fmt.Fprintf(r.w, "\r\x1b[K%s", line)
		r.open = true
	case r.lastReport.IsZero() || now.Sub(r.lastReport) >= reportInterval:
		fmt.Fprintln(r.w, line)
		r.lastReport = now
	}
}

// close ends the line that changes.
func (r *reporter) close() {
	if r.open {
		fmt.Fprintln(r.w)
		r.open = false
	}
}
