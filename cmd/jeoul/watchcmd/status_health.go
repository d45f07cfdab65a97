// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"fmt"
	"io"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// writeChecks prints the health checks of a service.
func writeChecks(w io.Writer, s ops.Service) {
	for _, c := range s.Checks {
		fmt.Fprintf(w, "  check %s via %s every %s, within %s, rise %d, fall %d: %s\n", c.Check, c.Via,
			cmdkit.SecondsText(c.IntervalSeconds), cmdkit.SecondsText(c.TimeoutSeconds), c.Rise, c.Fall, c.Expected)
	}
	if s.Require != "" {
		fmt.Fprintf(w, "  %s of them must pass\n", s.Require)
	}
	writeOutliers(w, s.Outliers)
	switch s.OnDown {
	case lb.ResetFlows:
		fmt.Fprintln(w, "  flows of a backend that fails are reset")
	case lb.MoveFlows:
		fmt.Fprintln(w, "  flows of a backend that fails move to others")
	}
}

// writeOutliers prints the conditions under which backends of a service are ejected.
func writeOutliers(w io.Writer, o *ops.Outliers) {
	if o == nil {
		return
	}
	pause := cmdkit.SecondsText(o.PauseSeconds)
	if o.LongestPauseSeconds > o.PauseSeconds {
		pause += " to " + cmdkit.SecondsText(o.LongestPauseSeconds)
	}
	fmt.Fprintf(w,
		"  a backend is ejected for %s that fails %d%% of what clients send it in %s, of %s or more; at most %d%% of the backends at a time\n",
		pause, o.FailuresPercent, cmdkit.SecondsText(o.IntervalSeconds),
		cmdkit.Count(uint64(o.Connections)), o.EjectedPercent)
}

// ejectionText returns the reason, the beginning and the end of a backend's ejection.
func ejectionText(e *ops.Ejection) string {
	text := fmt.Sprintf("%s: ejected until %s", e.Reason, e.Until.Local().Format(time.TimeOnly))
	if e.Times > 1 {
		text += fmt.Sprintf(", %d times of late", e.Times)
	}
	return text + cmdkit.SinceText(e.Since)
}

// healthText returns the verdict of the checks on a backend, in a word or two.
func healthText(b ops.Backend) any {
	switch h := b.Health; {
	case h == nil:
		return "-"
	case b.Forced != nil:
		return string(h.State) + ", forced"
	case h.Drain:
		return string(h.State) + ", drain"
	case h.WeightPercent != 100:
		return fmt.Sprintf("%s, %d%%", h.State, h.WeightPercent)
	default:
		return string(h.State)
	}
}

// writeFailing prints the reason why a backend fails its checks, or is about to: the time, the last answer and the
// expected one.
func writeFailing(w io.Writer, s ops.Service, b ops.Backend) {
	reason := b.Health.Reason
	if reason == "" {
		reason = "fails its health checks"
	}
	since := ""
	if b.Health.State == lb.Failing {
		since = cmdkit.SinceText(b.Health.Since)
	}
	fmt.Fprintf(w, "  %s %s%s\n", b.Name, reason, since)
	for i, r := range b.Health.Checks {
		if r.Failed == 0 || i >= len(s.Checks) {
			continue
		}
		fmt.Fprintf(w, "    %s: %d failed in a row, the last at %s after %s: %s; expected: %s\n",
			s.Checks[i].Check, r.Failed,
			r.Last.Local().Format(time.TimeOnly), cmdkit.CheckTime(r.TookSeconds),
			cmdkit.OrDash(cmdkit.OneLine(r.Answer)),
			s.Checks[i].Expected)
	}
	if f := b.Forced; f != nil {
		fmt.Fprintf(w, "    it takes new flows all the same: %s has enabled it by force%s\n", f.By, cmdkit.SinceText(f.At))
	}
	if b.Reason != "" && b.Reason != b.Health.Reason && b.State != lb.Unhealthy && b.State != lb.Up {
		fmt.Fprintf(w, "    besides, it %s\n", b.Reason)
	}
}
