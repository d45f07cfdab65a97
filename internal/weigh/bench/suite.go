// SPDX-License-Identifier: Apache-2.0

// Package bench weighs load balancers: it reads a suite, builds a laboratory, puts every subject under every load, and
// writes down the figures of each.
package bench

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/router"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjects"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Suite is a file of trials, checked.
type Suite struct {
	Name, Title string
	// Digest is the SHA-256 of the file's content, in hexadecimal.
	Digest string
	Long   Form
	// Quick is the short form; it equals Long where the file has none.
	Quick Form
	// Baseline is the subject that the report holds the others against; empty is
	// direct.
	Baseline string
	// Published is a table from a document, to stand beside ours.
	Published *results.Published
}

// Form is everything that differs between a suite's long and its short form.
type Form struct {
	Lab      Size      `yaml:"lab"`
	Web      Web       `yaml:"web"`
	Subjects []Subject `yaml:"subjects"`
	Loads    []Load    `yaml:"loads"`
	// Repeats is how often each point is measured, unless its load says otherwise.
	Repeats int `yaml:"repeats"`
	// Tune lists the profiles that hosts are tuned by, all points with each of them: none, all, document, or an item of
	// `jeoul tune`. Empty has the laboratory's own settings.
	Tune []string `yaml:"tune"`

	// Far says that the hosts are machines.
	Far bool `yaml:"-"`
}

// Size is the number of hosts of a laboratory.
type Size struct {
	Clients int `yaml:"clients"`
	Servers int `yaml:"servers"`
	// Containers has the servers behind a bridge on the balancer, as a container host has.
	Containers bool `yaml:"containers"`
	// Balancers, where it is not 0, is how many balancers share the VIP behind a router.
	Balancers int `yaml:"balancers"`
	// Members has these balancers hand flows over.
	Members bool `yaml:"members"`
	// Router is the program of the router before several balancers; empty: BIRD. BFD is how often it and they send
	// packets of BFD to each other, of which three may be missing; 0: they do not.
	Router router.Kind   `yaml:"router"`
	BFD    time.Duration `yaml:"bfd"`
}

// router is the router before several balancers.
func (s Size) router() router.Kind { return cmp.Or(s.Router, router.Kinds[0]) }

// String says the size in words.
func (s Size) String() string {
	counted := func(n int, noun string) string {
		if n != 1 {
			noun += "s"
		}
		return fmt.Sprintf("%d %s", n, noun)
	}
	servers := "server"
	if s.Containers {
		servers = "container"
	}
	words := counted(s.Clients, "client") + " and " + counted(s.Servers, servers)
	if s.Balancers > 0 {
		words += " behind " + counted(s.Balancers, "balancer")
	}
	return words
}

// Web describes the web servers' file; it is empty where no load asks them.
type Web struct {
	FileBytes int `yaml:"file_bytes"`
}

// Subject is a subject and the values that its parameters take, every
// combination of them.
type Subject struct {
	Name   string           `yaml:"name"`
	Params map[string][]any `yaml:"params"`
}

// Load is a load generator and how it is used, once for every concurrency.
type Load struct {
	// Name stands in the results; by default it is that of the kind.
	Name string `yaml:"name"`
	Kind string `yaml:"kind"`
	// Concurrency lists the numbers of connections at once, of all clients
	// together.
	Concurrency []int `yaml:"concurrency"`
	// Of these, one says when a trial ends: after Duration; after Requests, of all
	// clients together; or after RequestsEach times the concurrency of them.
	Duration     time.Duration `yaml:"duration"`
	Requests     int           `yaml:"requests"`
	RequestsEach int           `yaml:"requests_each"`
	// MinRequests is the least that RequestsEach may come to: with few
	// connections a trial would be over before it can be measured.
	MinRequests int `yaml:"min_requests"`
	// Pinned gives each client of a bulk load a core, and its server the next.
	Pinned bool `yaml:"pinned"`
	// Offloads leaves the links their offloads (see lab.Lab.Offload) while the load is
	// on.
	Offloads bool `yaml:"offloads"`
	// From is where the generators run: clients, which is the default, or balancer, beside the balancer on its host.
	From string `yaml:"from"`
	// Repeats is how often this load's points are measured; 0 is as the form says.
	Repeats int `yaml:"repeats"`
	// Rest are the keys of the load's own kind, while the suite is read.
	yamlfile.Rest `yaml:",inline"`

	// settings are its kind's own: see SettingsOf.
	settings any
}

// MaxRepeats bounds how often a point is measured.
const MaxRepeats = 1000

// Bounds of the other numbers of a suite.
const (
	maxHosts     = 99 // of a role: lab.Spec's
	maxFileBytes = 1 << 30
	maxConns     = 10_000_000
	maxRequests  = 1_000_000_000
	MaxDuration  = time.Hour
)

// LoadSuite reads and checks the suite at path. Its errors are problems with
// file, line and field.
func LoadSuite(path string) (*Suite, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the suite: %w", err)
	}
	return ParseSuite(path, data)
}

// Only returns the form with none but the named subjects and loads, in the form's order;
// no name chooses all. A name that the form does not have is an error that lists those
// it has.
func (f Form) Only(subjects, loads []string) (Form, error) {
	var err error
	if f.Subjects, err = chosen(f.Subjects, subjects, func(s Subject) string { return s.Name }); err != nil {
		return Form{}, fmt.Errorf("--only %w", err)
	}
	if f.Loads, err = chosen(f.Loads, loads, func(l Load) string { return l.Name }); err != nil {
		return Form{}, fmt.Errorf("--loads %w", err)
	}
	return f, nil
}

// chosen returns those of all that have one of the names, in their order; all if there
// are no names.
func chosen[T any](all []T, names []string, name func(T) string) ([]T, error) {
	if len(names) == 0 {
		return all, nil
	}
	var known []string
	for _, one := range all {
		known = append(known, name(one))
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("%s: the suite has none of that name; it has %s", n, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !slices.Contains(names, name(one)) }), nil
}

// Repeated returns the form with every point measured so often.
func (f Form) Repeated(times int) Form {
	f.Repeats, f.Loads = times, slices.Clone(f.Loads)
	for i := range f.Loads {
		f.Loads[i].Repeats = 0
	}
	return f
}

// repeats returns how often the points of l are measured.
func (f Form) repeats(l Load) int {
	if l.Repeats > 0 {
		return l.Repeats
	}
	return f.Repeats
}

// check reports the mistakes of the form; at is its path in the file.
func (f Form) check(at Path, fail FailFunc) {
	between := func(value, least, most int, field ...any) {
		if value < least || value > most {
			fail(at.To(field...), "%d is not possible; use %d to %d", value, least, most)
		}
	}
	between(f.Lab.Clients, 1, maxHosts, "lab", "clients")
	between(f.Lab.Servers, 1, maxHosts, "lab", "servers")
	if len(having[servingFiles](f.experiments())) > 0 || f.Web.FileBytes != 0 {
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
			len(having[speakingHTTP](f.experiments())) < len(f.experiments()) {
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

// CheckRepeats checks how often the load's points are measured.
func (l Load) CheckRepeats(at Path, fail FailFunc) {
	if l.Repeats < 0 || l.Repeats > MaxRepeats {
		fail(at.To("repeats"), "%d is not possible; use 1 to %d", l.Repeats, MaxRepeats)
	}
}

// leastConns says why there must be so many.
func leastConns(least int) string {
	if least == 1 {
		return "1"
	}
	return fmt.Sprintf("%d (one for each client)", least)
}

// CheckConcurrency checks the numbers of connections, of which each of so many
// clients needs one.
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

// CheckEnd checks the settings that end a trial of a load whose generator is a program of the trade.
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
