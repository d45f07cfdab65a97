// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/view"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// progress shows the progress of a run: a line for each trial that has ended and, on a terminal, a status below it with
// the running trial and its rate.
type progress struct {
	to io.Writer
	// screen is the terminal of to; nil if to is no terminal.
	screen *view.Screen

	mu sync.Mutex
	// began is when the first trial began, last when the last one ended.
	began, last time.Time
	// total, done and before are numbers of trials: of all, of the finished ones, and of the finished ones from an
	// earlier run.
	total, done, before int
	// trial is the running trial, which began at started; rate is its present rate.
	trial   string
	started time.Time
	rate    string
	// timeless means that the clock does not show the time that people wait.
	timeless bool
	// traffic reads the laboratory's traffic; nil while there is none.
	traffic func() (clients, balancer lab.Traffic, err error)
}

// newProgress returns a progress that writes to a file, or draws on a terminal of width columns.
func newProgress(to io.Writer, live bool, width func() int) *progress {
	p := &progress{to: to, began: time.Now()}
	if live {
		p.screen = view.New(to, width)
	}
	return p
}

// begin sets how many trials there are, and how many of them are done already.
func (p *progress) begin(total, done int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total, p.done, p.before, p.began, p.last = total, done, done, time.Now(), time.Now()
}

// say prints a line about the run as a whole.
func (p *progress) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if p.screen != nil {
		p.screen.Log(line)
		return
	}
	fmt.Fprintln(p.to, line)
}

// starting shows the running trial, on a terminal.
func (p *progress) starting(t Trial) {
	p.mu.Lock()
	p.trial, p.started, p.rate = name(t), time.Now(), ""
	p.mu.Unlock()
	p.paint()
}

// ended prints the line of a finished trial, with all its results.
func (p *progress) ended(t Trial, all ...results.Trial) {
	p.mu.Lock()
	p.done++
	p.last = time.Now()
	line := fmt.Sprintf("%s %s: %s%s", p.count(p.done), name(t), outcome(t, all), p.left())
	p.trial = ""
	p.mu.Unlock()
	p.paint()
	p.say("%s", line)
}

// outcome describes the result of a trial in a few words.
func outcome(t Trial, all []results.Trial) string {
	if t.SkipReason != "" {
		return "not valid: " + all[0].Notes[0]
	}
	return t.Experiment.Line(all)
}

func (p *progress) count(n int) string {
	width := len(fmt.Sprint(p.total))
	return fmt.Sprintf("%*d/%d", width, n, p.total)
}

// left returns the estimated time of the remaining trials, from the mean time of those so far.
func (p *progress) left() string {
	made := p.done - p.before
	if made == 0 || p.done >= p.total || p.timeless {
		return ""
	}
	rest := p.last.Sub(p.began)/time.Duration(made)*time.Duration(p.total-p.done) - time.Since(p.last)
	return fmt.Sprintf(", %v left", max(rest, 0).Round(time.Second))
}

// barColumns is the width of the bar on a terminal.
const barColumns = 24

// paint draws the status, on a terminal.
func (p *progress) paint() {
	if p.screen == nil {
		return
	}
	p.mu.Lock()
	var lines []string
	if p.trial != "" {
		lines = []string{
			fmt.Sprintf("%s %s trials%s", view.Bar(p.done, p.total, barColumns), p.count(p.done), p.left()),
			fmt.Sprintf("now: %s, for %v", p.trial, time.Since(p.started).Round(time.Second)),
		}
		if p.rate != "" {
			lines = append(lines, "     "+p.rate)
		}
	}
	p.mu.Unlock()
	p.screen.Status(lines...)
}

// watch sets the laboratory whose traffic is shown; nil for none.
func (p *progress) watch(l *lab.Lab) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l == nil {
		p.traffic = nil
		return
	}
	p.traffic = func() (clients, balancer lab.Traffic, err error) {
		all, err := l.Traffic()
		for _, client := range l.Clients {
			clients = clients.Add(all[client.Name])
		}
		return clients, all[l.Balancer.Name], err
	}
}

// viewInterval is the interval at which the status is painted and the traffic is read.
const viewInterval = time.Second

// follow paints the status every second until ctx ends, on a terminal. The returned function waits until painting has
// stopped, and removes the status.
func (p *progress) follow(ctx context.Context) (stop func()) {
	if p.screen == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		tick := time.NewTicker(viewInterval)
		defer tick.Stop()
		var before sample
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				before = p.measure(before)
				p.paint()
			}
		}
	})
	return func() {
		cancel()
		following.Wait()
		p.screen.Status()
	}
}

// sample is the traffic at one moment; at is zero if it is not known.
type sample struct {
	at                time.Time
	clients, balancer lab.Traffic
}

// measure reads the traffic and updates the rates since the previous reading.
func (p *progress) measure(before sample) sample {
	p.mu.Lock()
	read := p.traffic
	p.mu.Unlock()
	if read == nil {
		return sample{}
	}
	now := sample{at: time.Now()}
	var err error
	if now.clients, now.balancer, err = read(); err != nil {
		// The laboratory is being taken down; the run reports the reason.
		return sample{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = now.since(before)
	return now
}

// since describes the traffic since an earlier sample; empty if there is no usable earlier sample.
func (s sample) since(before sample) string {
	seconds := s.at.Sub(before.at).Seconds()
	if before.at.IsZero() || seconds <= 0 || s.clients.ReceivedBytes < before.clients.ReceivedBytes {
		return ""
	}
	return fmt.Sprintf("clients receive %sframes/s, %sbit/s and send %sframes/s; balancer receives %sframes/s",
		view.SI(float64(s.clients.ReceivedFrames-before.clients.ReceivedFrames)/seconds),
		view.SI(8*float64(s.clients.ReceivedBytes-before.clients.ReceivedBytes)/seconds),
		view.SI(float64(s.clients.SentFrames-before.clients.SentFrames)/seconds),
		view.SI(float64(s.balancer.ReceivedFrames-before.balancer.ReceivedFrames)/seconds))
}

// name identifies a trial in a few words.
func name(t Trial) string {
	words := []string{t.Subject.Name()}
	for _, param := range slices.Sorted(maps.Keys(t.Params)) {
		words = append(words, fmt.Sprintf("%s %v", param, t.Params[param]))
	}
	if t.Tune != "" {
		words = append(words, paramTuned+" "+t.Tune)
	}
	many := "concurrency"
	if e, ok := t.Experiment.(naming); ok {
		many = e.Noun()
	}
	words = append(words, t.Load)
	if t.Concurrency > 0 {
		words = append(words, fmt.Sprintf("%s %d", many, t.Concurrency))
	}
	words = append(words, fmt.Sprintf("repeat %d", t.Repeat))
	return strings.Join(words, ", ")
}
