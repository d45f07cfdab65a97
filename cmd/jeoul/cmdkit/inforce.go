// SPDX-License-Identifier: Apache-2.0

package cmdkit

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// WriteInForce prints the operations in force, which the configuration does not have.
func WriteInForce(w io.Writer, overlays []ops.Overlay, now time.Time) {
	t := NewTable(w, "backend", "operation", "by", "since", "deadline", "left")
	for _, o := range overlays {
		if d := o.Drain; d != nil {
			t.AppendRow(table.Row{o.Target, d.StateName(), d.By, d.At.Local().Format(time.DateTime), deadlineText(d,
				now),
				absentOr(&o, leftText(d, o.Left))})
		}
		if f := o.Forced; f != nil {
			t.AppendRow(table.Row{o.Target, "enable --force", f.By, f.At.Local().Format(time.DateTime), "-",
				absentOr(&o, "-")})
		}
		if weight := o.Weight; weight != nil {
			t.AppendRow(table.Row{o.Target, fmt.Sprintf("weight %d (configured: %d)", weight.Value, weight.Configured),
				weight.By,
				weight.At.Local().Format(time.DateTime), "-", absentOr(&o, "-")})
		}
	}
	t.Render()
}

// absentOr returns the text of the flows left on a backend, or the time since which the backend is absent.
func absentOr(o *ops.Overlay, left string) string {
	if o.Absent.IsZero() {
		return left
	}
	return "not found since " + o.Absent.Local().Format(time.DateTime)
}

// deadlineText returns the time at which a drained backend is removed.
func deadlineText(d *ops.Drained, now time.Time) string {
	switch {
	case d.Deadline.IsZero():
		return "-"
	case d.Out:
		return "passed"
	}
	return "in " + max(d.Deadline.Sub(now), 0).Round(time.Second).String()
}

// leftText counts the flows of a drained backend, now or at its deadline.
func leftText(d *ops.Drained, left ops.Left) string {
	switch {
	case !d.On:
		return "-"
	case d.Out && d.AtDeadline == nil:
		return "ended, not counted"
	case d.Out:
		return FlowsText(*d.AtDeadline) + ", ended"
	}
	return FlowsText(left)
}

// FlowsText returns the number of flows left, as far as it is known.
func FlowsText(left ops.Left) string {
	if left.Tracked {
		// The flows are counted only from time to time.
		return fmt.Sprintf("%s active, %s remembered", Count(uint64(left.Active)),
			Count(max(left.Flows, uint64(left.Active))))
	}
	return Count(left.Flows) + " remembered"
}
