// SPDX-License-Identifier: Apache-2.0

// Package bench weighs load balancers: it reads a suite, builds a laboratory, puts every subject under every load, and
// writes down the figures of each.
package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
	"github.com/jeoul/jeoul/internal/weigh/bench/router"
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

	// Far: the hosts are machines.
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
	// Router is the program of the router before several balancers; empty: BIRD. BFD is the interval of BFD between it
	// and them, with a multiplier of 3; 0: none.
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

// SettingsOf returns a load's settings of its own kind; the zero T, if it has none.
func SettingsOf[T any](l Load) T {
	own, _ := l.settings.(T)
	return own
}

// ReadSettings reads a load's settings of its own kind into a T, for the method Settings of that kind.
func ReadSettings[T any](read func(into any)) any {
	var own T
	read(&own)
	return own
}

// With returns the load with other settings of its own kind.
func (l Load) With(settings any) Load {
	l.settings = settings
	return l
}
