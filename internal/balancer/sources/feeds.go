// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// feedTimeout is the time without a report after which a program counts as silent.
const feedTimeout = 30 * time.Second

// The bounds of a program's report on its source, so that it cannot fill the balancer's memory or its status.
const (
	maxProblems = 32
	maxText     = 1000
)

// feeds are the last reports of programs on the sources that they keep, by name.
type feeds struct {
	mu      sync.Mutex
	reports map[string]timedReport
}

type timedReport struct {
	at time.Time
	ops.FeedReport
}

// SetFeedReport stores a program's report on its source, which need not have a service yet. Errors: ErrMalformed,
// ErrOwned.
func (s *Sources) SetFeedReport(source string, report ops.FeedReport) error {
	if source == config.FileOwner || source == API {
		return fmt.Errorf("%w: the source %s is kept by no program", ErrOwned, source)
	}
	if err := config.CheckFragmentName(source); err != nil {
		return fmt.Errorf("%w: source %w", ErrMalformed, err)
	}
	if len(report.Problems) > maxProblems {
		return fmt.Errorf("%w: troubles: %d are more than the %d that can be said", ErrMalformed,
			len(report.Problems), maxProblems)
	}
	texts := []string{report.Follows, string(report.Platform)}
	for _, t := range report.Problems {
		texts = append(texts, string(t.Kind), t.On, t.Problem, t.Remedy)
	}
	for _, text := range texts {
		if len(text) > maxText {
			return fmt.Errorf("%w: a text of %d bytes is longer than the %d that can be said", ErrMalformed, len(text),
				maxText)
		}
	}
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	if _, known := s.feeds.reports[source]; !known && len(s.feeds.reports) >= maxFragments {
		return fmt.Errorf("%w: %d sources are spoken of already, and no more can be", ErrMalformed, maxFragments)
	}
	if s.feeds.reports == nil {
		s.feeds.reports = map[string]timedReport{}
	}
	s.feeds.reports[source] = timedReport{time.Now(), report}
	return nil
}

// Feeds returns the sources that programs keep, by name, as of a time. A source without services and reports is left
// out.
func (s *Sources) Feeds(now time.Time) (list []ops.Feed) {
	s.feeds.mu.Lock()
	reports := maps.Clone(s.feeds.reports)
	s.feeds.mu.Unlock()
	p := s.now.Load()
	counts := map[string]int{}
	for i := range p.cfg.Services {
		counts[p.cfg.Owner(i)]++
	}
	add := func(name string, changed time.Time) {
		report, known := reports[name]
		delete(reports, name)
		if name == API || !known && counts[name] == 0 {
			return
		}
		list = append(list, ops.Feed{Source: name, Services: counts[name], Changed: changed, Heard: report.at,
			Silent: known && now.Sub(report.at) > feedTimeout, FeedReport: report.FeedReport})
	}
	for _, f := range p.fragments {
		add(f.Name, f.At)
	}
	for _, name := range slices.Sorted(maps.Keys(reports)) {
		add(name, time.Time{})
	}
	return list
}
