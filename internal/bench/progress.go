// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/results"
)

// progress tells a person how far a run is: a line for each trial that ended,
// and on a terminal one below it for the trial that runs.
type progress struct {
	to io.Writer
	// live says that to is a terminal, on which a line can be taken back.
	live        bool
	began       time.Time
	total, done int
}

const takeBack = "\r\x1b[K"

// say prints a line about the run as a whole.
func (p *progress) say(format string, args ...any) {
	p.clear()
	fmt.Fprintf(p.to, format+"\n", args...)
}

// starting shows the trial that runs, on a terminal.
func (p *progress) starting(t Trial) {
	if p.live {
		fmt.Fprintf(p.to, "%s%s %s …", takeBack, p.count(p.done+1), name(t))
	}
}

// ended prints the line of a trial that ended, with all its results.
func (p *progress) ended(t Trial, all ...results.Trial) {
	p.done++
	p.clear()
	got := all[0]
	if t.Experiment != nil && t.Obstacle == "" {
		fmt.Fprintf(p.to, "%s %s: %s%s\n", p.count(p.done), name(t), t.Experiment.line(all), p.left())
		return
	}
	if !got.Valid {
		fmt.Fprintf(p.to, "%s %s: not valid: %s%s\n", p.count(p.done), name(t), got.Notes[0], p.left())
		return
	}
	if t.Kind.Bulk() {
		fmt.Fprintf(p.to, "%s %s: %.2f Gbit/s, %.0f retransmits%s\n", p.count(p.done), name(t),
			got.Metrics[results.GigabitsPerSecond], got.Metrics[results.Retransmits], p.left())
		return
	}
	fmt.Fprintf(p.to, "%s %s: %.0f requests/s, %.0f failed, p99 %.1f ms, balancer %.1f µs/request%s\n",
		p.count(p.done), name(t), got.Metrics[results.RequestsPerSecond], got.Metrics[results.Failed],
		got.Metrics[results.LatencyMsP99], got.Metrics[results.BalancerCPUUsPerRequest], p.left())
}

// clear takes back the line of the trial that runs.
func (p *progress) clear() {
	if p.live {
		fmt.Fprint(p.to, takeBack)
	}
}

func (p *progress) count(n int) string {
	width := len(fmt.Sprint(p.total))
	return fmt.Sprintf("%*d/%d", width, n, p.total)
}

// left is the time that the rest will take if it goes on as until now.
func (p *progress) left() string {
	if p.done == 0 || p.done >= p.total {
		return ""
	}
	rest := time.Since(p.began) / time.Duration(p.done) * time.Duration(p.total-p.done)
	return fmt.Sprintf(", %v left", rest.Round(time.Second))
}

// name says in short which trial it is.
func name(t Trial) string {
	words := []string{t.Subject.Name()}
	for _, param := range slices.Sorted(maps.Keys(t.Params)) {
		words = append(words, fmt.Sprintf("%s %v", param, t.Params[param]))
	}
	many := "concurrency"
	if t.Kind != nil && t.Kind.Bulk() {
		many = "streams"
	}
	words = append(words, t.Load, fmt.Sprintf("%s %d", many, t.Concurrency), fmt.Sprintf("repeat %d", t.Repeat))
	return strings.Join(words, ", ")
}
