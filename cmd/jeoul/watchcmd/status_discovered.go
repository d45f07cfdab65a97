// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// writeDiscovered prints the origins of a service's discovered backends, the age of their answers, and the entries that
// cannot be backends.
func writeDiscovered(w io.Writer, s ops.Service, now time.Time) {
	for _, d := range s.Discovered {
		fmt.Fprintf(w, "  discovered: %s\n", discoveredText(d, now))
		for _, refused := range d.Refused {
			fmt.Fprintf(w, "    left out: %s\n", refused)
		}
	}
}

// discoveredText returns the result of an origin in a line.
func discoveredText(d ops.Discovered, now time.Time) string {
	if d.Taken.IsZero() && d.Problem == "" {
		return d.From + ": not answered yet"
	}
	if d.Taken.IsZero() {
		return fmt.Sprintf("%s: no backend yet: %s%s", d.From, d.Problem, cmdkit.SinceText(d.Since))
	}
	text := fmt.Sprintf("%s: backends: %d, of %s ago", d.From, d.Backends,
		time.Duration(d.AgeSeconds*float64(time.Second)).Truncate(time.Second))
	switch {
	case d.Overdue:
		text += fmt.Sprintf("; out of date: %s%s", d.Problem, cmdkit.SinceText(d.Since))
	case d.Problem != "" && !now.Before(d.Until):
		text += fmt.Sprintf("; used no longer since %s: %s%s", cmdkit.TimeText(d.Until), d.Problem, cmdkit.SinceText(d.Since))
	case d.Problem != "":
		text += fmt.Sprintf("; used until %s: %s%s", cmdkit.TimeText(d.Until), d.Problem, cmdkit.SinceText(d.Since))
	}
	return text
}

// isDiscovered reports whether any backend of a service was discovered.
func isDiscovered(s ops.Service) bool {
	return slices.ContainsFunc(s.Backends, func(b ops.Backend) bool { return b.Origin != "" })
}

// writeFeeds lists the sources that programs maintain, with their age.
func writeFeeds(w io.Writer, feeds []ops.Feed, now time.Time) {
	for i := range feeds {
		fmt.Fprintf(w, "source      %s\n", feedText(&feeds[i], now))
	}
}

func feedText(f *ops.Feed, now time.Time) string {
	text := fmt.Sprintf("%s: services: %d", f.Source, f.Services)
	if !f.Changed.IsZero() {
		text += ", changed " + f.Changed.Local().Format(time.DateTime)
	}
	if f.Follows != "" {
		text += ", as " + f.Follows
	}
	switch age := f.SourceAge(now).Truncate(time.Second); {
	case f.Heard.IsZero():
		text += "; no program has said how old that is since the balancer started"
	case age > 0:
		text += fmt.Sprintf(" had them %s ago", age)
	case f.Follows != "":
		text += " has them"
	}
	return text
}
