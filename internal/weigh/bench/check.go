// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjects"
)

// MaxRepeats bounds how often a point is measured.
const MaxRepeats = 1000

// Bounds of the other numbers of a suite.
const (
	maxHosts     = 99 // hosts of one role: the limit of lab.Spec
	maxFileBytes = 1 << 30
	maxConns     = 10_000_000
	maxRequests  = 1_000_000_000
	MaxDuration  = time.Hour
)

// check reports the mistakes of the form; at is its path in the file.
func (f Form) check(at Path, fail FailFunc) {
	between := func(value, least, most int, field ...any) {
		if value < least || value > most {
			fail(at.To(field...), "%d is not possible; use %d to %d", value, least, most)
		}
	}
	between(f.Lab.Clients, 1, maxHosts, "lab", "clients")
	between(f.Lab.Servers, 1, maxHosts, "lab", "servers")
	if len(implementing[servingFiles](f.experiments())) > 0 || f.Web.FileBytes != 0 {
		between(f.Web.FileBytes, 1, maxFileBytes, "web", "file_bytes")
	}
	between(f.Repeats, 1, MaxRepeats, "repeats")
	f.checkTuning(at, fail)
	f.checkContainers(at, fail)
	f.checkBalancers(at, fail)
	if len(f.Subjects) == 0 {
		fail(at.To("subjects"), "empty; name at least one of %s", strings.Join(subjects.Names(), ", "))
	}
	seen := map[string]bool{}
	for i, s := range f.Subjects {
		if seen[s.Name] {
			fail(at.To("subjects", i, "name"), "%s stands here twice; give one of them all values of its parameters",
				s.Name)
		}
		seen[s.Name] = true
		s.check(at.To("subjects", i), fail)
		if known, ok := subjects.Find(s.Name); ok && known.Can().HTTPOnly &&
			len(implementing[speakingHTTP](f.experiments())) < len(f.experiments()) {
			fail(at.To("subjects", i, "name"), "%s speaks HTTP only, and cannot carry a load that does not", s.Name)
		}
	}
	if len(f.Loads) == 0 {
		fail(at.To("loads"), "empty; name at least one load")
	}
	seen = map[string]bool{}
	for i, l := range f.Loads {
		if seen[l.Name] {
			fail(at.To("loads", i), "two loads are called %s; give one another name", l.Name)
		}
		seen[l.Name] = true
		l.check(at.To("loads", i), f, fail)
	}
}

func (s Subject) check(at Path, fail FailFunc) {
	known, ok := subjects.Find(s.Name)
	if !ok {
		fail(at.To("name"), "unknown subject %q; use %s", s.Name, strings.Join(subjects.Names(), ", "))
		return
	}
	var names []string
	for _, param := range known.Params() {
		names = append(names, param.Name)
		if _, given := s.Params[param.Name]; len(s.Params[param.Name]) == 0 && (given || !param.Optional) {
			fail(at.To("params", param.Name), "%s needs a list of values for %s", s.Name, param.Name)
		}
		for i, value := range s.Params[param.Name] {
			if err := param.Check(value); err != nil {
				fail(at.To("params", param.Name, i), "%v", err)
			} else if slices.Contains(s.Params[param.Name][:i], value) {
				fail(at.To("params", param.Name, i), "%v stands in the list twice", value)
			}
		}
	}
	for name := range s.Params {
		switch {
		case slices.Contains(names, name):
		case len(names) == 0:
			fail(at.To("params", name), "unknown parameter; %s has none", s.Name)
		default:
			fail(at.To("params", name), "unknown parameter; %s has %s", s.Name, strings.Join(names, ", "))
		}
	}
}

func (l Load) check(at Path, form Form, fail FailFunc) {
	if e, ok := findExperiment(l.Kind); ok {
		e.Check(l, form, at, fail)
		return
	}
	var names []string
	for _, e := range registered {
		names = append(names, e.Name())
	}
	fail(at.To("kind"), "unknown kind of load %q; use %s", l.Kind, strings.Join(names, " or "))
}

// CheckUDP reports the form's subjects that cannot carry UDP. at is the path of a load over UDP.
func (f Form) CheckUDP(at Path, fail FailFunc) {
	for i, s := range f.Subjects {
		if known, ok := subjects.Find(s.Name); ok && !known.Can().UDP {
			fail(at.To("kind"), "subjects[%d], %s, balances no UDP", i, s.Name)
		}
	}
}

// CheckRepeats checks how often the load's points are measured.
func (l Load) CheckRepeats(at Path, fail FailFunc) {
	if l.Repeats < 0 || l.Repeats > MaxRepeats {
		fail(at.To("repeats"), "%d is not possible; use 1 to %d", l.Repeats, MaxRepeats)
	}
}

// leastConns describes the least number of connections, and the reason for it.
func leastConns(least int) string {
	if least == 1 {
		return "1"
	}
	return fmt.Sprintf("%d (one for each client)", least)
}

// CheckConcurrency checks the load's numbers of connections. Each must be at least the number of clients, as every
// client needs a connection.
func (l Load) CheckConcurrency(at Path, clients int, fail FailFunc) {
	if len(l.Concurrency) == 0 {
		fail(at.To("concurrency"), "empty; list at least one number of connections")
	}
	for i, concurrency := range l.Concurrency {
		switch {
		case concurrency < clients || concurrency > maxConns:
			fail(at.To("concurrency", i), "%d is not possible; use %s to %d", concurrency,
				leastConns(clients), maxConns)
		case slices.Contains(l.Concurrency[:i], concurrency):
			fail(at.To("concurrency", i), "%d stands in the list twice", concurrency)
		}
	}
}

// CheckEnd checks the settings that end a trial. It is for loads whose generator is a standard program.
func (l Load) CheckEnd(at Path, kind load.Kind, fail FailFunc) {
	ends := 0
	for _, set := range []bool{l.Duration != 0, l.Requests != 0, l.RequestsEach != 0} {
		if set {
			ends++
		}
	}
	counted := l.Requests != 0 || l.RequestsEach != 0
	switch {
	case ends != 1 && kind.Counted():
		fail(at, "give one of duration, requests and requests_each, which says when a trial ends")
	case counted && !kind.Counted():
		fail(at, "%s cannot stop after a number of requests; give a duration", l.Kind)
	case ends != 1:
		fail(at, "give a duration, which says when a trial ends")
	case !counted && (l.Duration%time.Second != 0 || l.Duration < time.Second || l.Duration > MaxDuration):
		fail(at.To("duration"), "%v is not possible; use whole seconds from 1s to %v (%s knows no finer)", l.Duration,
			MaxDuration, l.Kind)
	case l.Requests < 0 || l.Requests > maxRequests:
		fail(at.To("requests"), "%d is not possible; use 1 to %d", l.Requests, maxRequests)
	case l.RequestsEach < 0 || l.RequestsEach > maxRequests:
		fail(at.To("requests_each"), "%d is not possible; use 1 to %d", l.RequestsEach, maxRequests)
	case l.MinRequests < 0 || l.MinRequests > maxRequests || l.MinRequests > 0 && l.RequestsEach == 0:
		fail(at.To("min_requests"), "goes with requests_each, from 1 to %d", maxRequests)
	}
	for i, concurrency := range l.Concurrency {
		if l.Requests > 0 && l.Requests < concurrency {
			fail(at.To("concurrency", i), "%d connections, but only %d requests", concurrency, l.Requests)
		}
	}
}
