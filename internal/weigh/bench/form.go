// SPDX-License-Identifier: Apache-2.0

// Package bench measures load balancers. It reads a suite, builds a laboratory, runs every load through every subject,
// and writes down the figures of each.
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

// Suite is a checked file of trials.
type Suite struct {
	Name, Title string
	// Digest is the SHA-256 of the file's content, in hexadecimal.
	Digest string
	Long   Form
	// Quick is the short form; it equals Long where the file has none.
	Quick Form
	// Baseline is the subject that the report compares the others with; empty means direct.
	Baseline string
	// Published is a table from a document, which the report shows beside our figures.
	Published *results.Published
}

// Form is the part of a suite that can differ between its long and its short form.
type Form struct {
	Lab      Size      `yaml:"lab"`
	Web      Web       `yaml:"web"`
	Subjects []Subject `yaml:"subjects"`
	Loads    []Load    `yaml:"loads"`
	// Repeats is how often each point is measured, unless its load says otherwise.
	Repeats int `yaml:"repeats"`
	// Tune lists the profiles that hosts are tuned by; all points are measured with each profile. A profile is none,
	// all, document, or an item of `jeoul tune`. An empty list keeps the laboratory's own settings.
	Tune []string `yaml:"tune"`

	// Remote means that the hosts are machines.
	Remote bool `yaml:"-"`
}

// Size is the number of hosts of a laboratory.
type Size struct {
	Clients int `yaml:"clients"`
	Servers int `yaml:"servers"`
	// Containers puts the servers behind a bridge on the balancer, as on a container host.
	Containers bool `yaml:"containers"`
	// Balancers is the number of balancers that share the VIP behind a router; 0 means one balancer without a router.
	Balancers int `yaml:"balancers"`
	// Members means that these balancers hand over flows.
	Members bool `yaml:"members"`
	// Router is the program of the router before several balancers; empty means BIRD. BFD is the interval of BFD
	// between router and balancers, with a multiplier of 3; 0 means no BFD.
	Router router.Kind   `yaml:"router"`
	BFD    time.Duration `yaml:"bfd"`
}

// router returns the program of the router before several balancers.
func (s Size) router() router.Kind { return cmp.Or(s.Router, router.Kinds[0]) }

// String describes the size in words.
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

// Web describes the file of the web servers; it is empty if no load requests the file.
type Web struct {
	FileBytes int `yaml:"file_bytes"`
}

// Subject is a subject and the values of its parameters. Every combination of the values is measured.
type Subject struct {
	Name   string           `yaml:"name"`
	Params map[string][]any `yaml:"params"`
}

// Load is a load generator and its settings. It runs once for every concurrency.
type Load struct {
	// Name is the load's name in the results; by default the name of its kind.
	Name string `yaml:"name"`
	Kind string `yaml:"kind"`
	// Concurrency lists the numbers of concurrent connections, each of all clients together.
	Concurrency []int `yaml:"concurrency"`
	// One of these three ends a trial: Duration; Requests, of all clients together; or RequestsEach, times the
	// concurrency.
	Duration     time.Duration `yaml:"duration"`
	Requests     int           `yaml:"requests"`
	RequestsEach int           `yaml:"requests_each"`
	// MinRequests is the lower bound of the requests by RequestsEach: with few connections, a trial would be over
	// before it can be measured.
	MinRequests int `yaml:"min_requests"`
	// Pinned gives each client of a bulk load a core, and its server the next.
	Pinned bool `yaml:"pinned"`
	// Offloads keeps the offloads of the links (see lab.Lab.Offload) while the load runs.
	Offloads bool `yaml:"offloads"`
	// From is the place of the generators: clients, the default, or balancer, which is the balancer's host.
	From string `yaml:"from"`
	// Repeats is how often this load's points are measured; 0 means Repeats of the form.
	Repeats int `yaml:"repeats"`
	// Rest are the keys of the load's own kind, while the suite is read.
	yamlfile.Rest `yaml:",inline"`

	// settings are the settings of the load's own kind: see SettingsOf.
	settings any
}

// Only returns the form with only the named subjects and loads, in the form's order. An empty list of names selects
// all. An unknown name is an error that lists the known ones.
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

// chosen returns the elements of all that have one of the names, in the order of all. Without names it returns all.
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

// Repeated returns the form with every point measured the given number of times.
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

// SettingsOf returns the settings of a load's own kind, or the zero T if the load has none.
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
