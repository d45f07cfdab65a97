// SPDX-License-Identifier: Apache-2.0

// Package paced is the open loop: clients send requests at a fixed rate, whether the previous ones have been answered
// or not.
package paced

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/web"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/paced"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

func (s Search) within() float64 {
	if s.Within == 0 {
		return 5
	}
	return s.Within
}

func (s Search) bound() time.Duration { return time.Duration(s.P99Ms * float64(time.Millisecond)) }

// arrivals is the experiment of an open loop: requests arrive at a fixed rate, whether the previous ones have been
// answered or not.
type arrivals struct{}

// Kind is the load.
var Kind bench.Experiment = arrivals{}

func (arrivals) Name() string { return paced.Name }

// Bounds of a suite's settings.
const (
	pacedMinDuration = 100 * time.Millisecond
	pacedMaxP99Ms    = 3000 // less than a client's timeout
)

func (arrivals) Check(l bench.Load, form bench.Form, at bench.Path, fail bench.FailFunc) {
	l.CheckConcurrency(at, form.Lab.Clients, fail)
	l.CheckRepeats(at, fail)
	if l.Requests != 0 || l.RequestsEach != 0 || l.MinRequests != 0 || l.Pinned || l.Offloads {
		fail(at, "%s takes no requests, requests_each, min_requests, pinned or offloads", l.Kind)
	}
	if l.Duration < pacedMinDuration || l.Duration > bench.MaxDuration {
		fail(at.To("duration"), "%v is not possible; use %v to %v, for each rate", l.Duration, pacedMinDuration,
			bench.MaxDuration)
	}
	if form.Web.FileBytes == 0 {
		fail(at.To("kind"), "%s asks web servers for a file; say how large it is: web: {file_bytes: …}", l.Kind)
	}
	of := settingsOf(l)
	if (len(of.Rate) == 0) == (of.Search == nil) {
		fail(at, "give one of rate, a list of requests a second, and search, which finds the highest")
		return
	}
	for i, rate := range of.Rate {
		switch {
		case rate < form.Lab.Clients || rate > paced.MaxRate:
			fail(at.To("rate", i), "%d is not possible; use %d (one a second for each client) to %d", rate,
				form.Lab.Clients, paced.MaxRate)
		case slices.Contains(of.Rate[:i], rate):
			fail(at.To("rate", i), "%d stands in the list twice", rate)
		}
	}
	if of.Search != nil {
		of.Search.check(at.To("search"), form.Lab.Clients, fail)
	}
}

func (s Search) check(at bench.Path, clients int, fail bench.FailFunc) {
	if s.From < clients || s.From > paced.MaxRate {
		fail(at.To("from"), "%d is not possible; use %d (one a second for each client) to %d", s.From, clients,
			paced.MaxRate)
	}
	if s.To <= s.From || s.To > paced.MaxRate {
		fail(at.To("to"), "%d is not possible; use more than from, to %d", s.To, paced.MaxRate)
	}
	if !(s.P99Ms > 0 && s.P99Ms <= pacedMaxP99Ms) {
		fail(at.To("p99_ms"), "%g is not possible; use more than 0 to %d", s.P99Ms, pacedMaxP99Ms)
	}
	if !(s.within() >= 1 && s.within() <= 50) {
		fail(at.To("within"), "%g is not possible; use 1 to 50 per cent", s.Within)
	}
}

func (arrivals) SpeaksHTTP() {}

func (arrivals) SkipReason(p bench.Point, limits probe.Limits) string {
	if reason := p.Subject.SkipReason(p.Params, p.Concurrency, limits); reason != "" {
		return reason
	}
	if reason := (paced.Kind{}).SkipReason(p.Share(0), limits); reason != "" {
		return reason
	}
	return web.ServersSkipReason(p, limits)
}

func (arrivals) Params(p bench.Point) map[string]any {
	all := map[string]any{
		"backends":         p.Form.Lab.Servers,
		"clients":          p.Participants(),
		"file_bytes":       p.Form.Web.FileBytes,
		"concurrency":      p.Concurrency,
		"duration_seconds": p.Duration.Seconds(),
		"kept":             bench.YesNo(settingsOf(p.By).Keep),
	}
	if settingsOf(p.By).Search != nil {
		all["p99_bound_ms"] = settingsOf(p.By).Search.P99Ms
	}
	return all
}

func (arrivals) Programs() bench.Programs {
	return bench.Programs{Servers: []bench.Program{web.Program}}
}
func (arrivals) OnMachines() string { return "" }

func (arrivals) Notes(bench.Form) []string {
	return []string{
		"paced is an open loop: requests are due at a fixed rate, evenly spaced and shared by all clients, and a request's latency counts from when it was due, " +
			"waiting for a free connection included (no coordinated omission). Every one is counted (HdrHistogram). A request that is not answered 4 s after it was due has failed",
		"a search doubles the rate until 99 % of the requests do not keep the bound or one fails, twice in a row, and then halves the distance; " +
			"its figures are those of the highest rate that held",
	}
}

func (arrivals) Prepare(ctx context.Context, r *bench.Runner) error { return web.Start(ctx, r) }

func (arrivals) Services(l *lab.Lab, _ bench.Point) []subject.Service { return web.Services(l) }

func (x arrivals) Conduct(ctx context.Context, r *bench.Runner, t bench.Trial, running subject.Running,
	blank results.Trial) ([]results.Trial, error) {
	p := &pacedTrial{runner: r, trial: t, running: running, blank: blank}
	if err := web.Ready(ctx, &bench.Measurement{Runner: r, Trial: t, Running: running}); err != nil {
		return nil, fmt.Errorf("the subject came up, but does not serve: %w", err)
	}
	if settingsOf(t.By).Search != nil {
		found, err := p.search(ctx, *settingsOf(t.By).Search)
		return []results.Trial{found}, err
	}
	var all []results.Trial
	for _, rate := range settingsOf(t.By).Rate {
		got, err := p.at(ctx, rate, 0)
		if err != nil {
			return all, err
		}
		got.Params["arrivals"] = rate
		all = append(all, got)
	}
	return all, nil
}

// pacedTrial is a trial while its subject runs.
type pacedTrial struct {
	runner  *bench.Runner
	trial   bench.Trial
	running subject.Running
	blank   results.Trial
}

// at measures one rate, in requests per second of all clients. With a bound for the latency of 99 % of the requests,
// clients give up once the bound can no longer be kept.
func (p *pacedTrial) at(ctx context.Context, rate int, bound time.Duration) (results.Trial, error) {
	got := p.blank
	got.Params, got.Metrics, got.Notes = maps.Clone(got.Params), map[string]float64{}, slices.Clone(got.Notes)
	// Connections of the previous rate may still be closing.
	if _, err := bench.WaitForSockets(ctx, p.runner.Lab.Clients); err != nil {
		return got, err
	}
	m := &bench.Measurement{Runner: p.runner, Trial: p.trial, Running: p.running, Got: &got,
		Kind: paced.Kind{Path: "/" + web.FileName, Keep: settingsOf(p.trial.By).Keep, Bound: bound}}
	clients := m.Clients()
	for i := range clients {
		share := &clients[i].Share
		share.Rate = float64(rate) / float64(len(clients))
		share.Delay = time.Duration(float64(i) / float64(rate) * float64(time.Second))
	}
	if err := m.Drive(ctx, clients); err != nil {
		return got, err
	}
	got.Metrics[results.OfferedPerSecond] = float64(rate)
	return got, nil
}

// tries is how often a search tries a rate before the rate counts as failed: a moment in which the machine does other
// work must not decide.
const tries = 2

// search finds the highest rate that keeps the bound of latency.
func (p *pacedTrial) search(ctx context.Context, s Search) (results.Trial, error) {
	best, held, failed := p.blank, 0, 0
	var steps []string
	for {
		rate := s.next(held, failed)
		if rate == 0 {
			break
		}
		got, why, err := p.holds(ctx, rate, s)
		if err != nil {
			return best, err
		}
		if why == "" {
			best, held = got, rate
			steps = append(steps, fmt.Sprintf("%d held (p99 %.1f ms)", rate, got.Metrics[results.LatencyMsP99]))
			continue
		}
		failed = rate
		steps = append(steps, fmt.Sprintf("%d did not (%s)", rate, why))
		if held == 0 {
			best.Notes = append(best.Notes,
				fmt.Sprintf("the lowest rate, %d requests/s, did not hold a p99 of %g ms: %s", rate, s.P99Ms, why))
			break
		}
	}
	if held >= s.To {
		best.Notes = append(best.Notes, "the highest rate that was to be tried held: the ceiling is above it")
	}
	if len(steps) > 0 {
		best.Notes = append(best.Notes, "tried, requests/s: "+strings.Join(steps, "; "))
	}
	return best, nil
}

// next returns the rate to try after the highest rate that held and the lowest that failed, each 0 if there is none. It
// returns 0 if the search is over.
func (s Search) next(held, failed int) int {
	switch {
	case held == 0 && failed == 0:
		return s.From
	case held == 0 || held >= s.To:
		return 0
	case failed == 0:
		return min(2*held, s.To)
	}
	next := held + (failed-held)/2
	if next == held || float64(failed-held)/float64(held)*100 <= s.within() {
		return 0
	}
	return next
}

// holds measures a rate, and returns why it does not hold; empty if it does.
func (p *pacedTrial) holds(ctx context.Context, rate int, s Search) (got results.Trial, why string, err error) {
	for range tries {
		if got, err = p.at(ctx, rate, s.bound()); err != nil {
			return got, "", err
		}
		p99 := got.Metrics[results.LatencyMsP99]
		switch {
		case !got.Valid:
			why = got.Notes[0]
		case p99 > s.P99Ms:
			why = fmt.Sprintf("p99 %.1f ms", p99)
		default:
			return got, "", nil
		}
	}
	return got, why, nil
}

func (arrivals) Line(got []results.Trial) string {
	var words []string
	for _, t := range got {
		if !t.Valid {
			words = append(words, "not valid: "+t.Notes[0])
			continue
		}
		words = append(words, fmt.Sprintf("%.0f of %.0f requests/s, p99 %.1f ms", t.Metrics[results.RequestsPerSecond],
			t.Metrics[results.OfferedPerSecond], t.Metrics[results.LatencyMsP99]))
	}
	return strings.Join(words, "; ")
}
