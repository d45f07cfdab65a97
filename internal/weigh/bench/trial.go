// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// Point is one subject under one load with one set of parameters.
type Point struct {
	Subject subject.Subject
	// Params are the parameters of the subject.
	Params subject.Params
	// Load is the load's name. Experiment conducts it with the settings of By.
	Load       string
	Experiment Experiment
	By         Load
	// Concurrency and Requests are those of all clients together; Requests is 0 if Duration ends the trial.
	Concurrency, Requests int
	Duration              time.Duration
	// Pinned and Offloads are those of the load.
	Pinned, Offloads bool
	// Tune is the profile that the hosts are tuned by; empty if the suite names none.
	Tune string
	// Form has the settings that all points of a run share.
	Form Form
	// Repeats is how often the point is measured.
	Repeats int
}

// Trial is one measurement of a point.
type Trial struct {
	Point
	// Repeat counts from 1.
	Repeat int
	// SkipReason is the reason why the machine cannot carry the point; empty if it can.
	SkipReason string
}

// Absent has the reasons why requirements of points are missing on this machine: by the names of subjects, of kinds of
// loads, and of generators that loads request.
type Absent struct{ Subjects, Kinds, Generators map[string]string }

// Participants returns the number of clients, from the first, that take part in the load. Each has a connection.
func (p Point) Participants() int { return min(p.Form.Lab.Clients, p.Concurrency) }

// Share returns the part of the load of client i, from 0, without its directory and target.
func (p Point) Share(i int) load.Share {
	clients := p.Participants()
	share := load.Share{
		FileBytes:   p.Form.Web.FileBytes,
		Concurrency: Part(p.Concurrency, clients, i),
		Duration:    p.Duration,
	}
	if p.Requests > 0 {
		share.Requests = max(Part(p.Requests, clients, i), share.Concurrency)
	}
	return share
}

// Part returns the i-th of n parts of total. The parts differ by one at most.
func Part(total, n, i int) int {
	size := total / n
	if i < total%n {
		size++
	}
	return size
}

// EndParams returns the parameters that end a trial of a load whose generator is a standard program.
func (p Point) EndParams() map[string]any {
	if p.Requests > 0 {
		return map[string]any{"requests": p.Requests}
	}
	return map[string]any{"duration_seconds": int(p.Duration.Seconds())}
}

// YesNo returns the word for a parameter.
func YesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// paramTuned is the parameter that names the profile.
const paramTuned = "tuned"

// Places of a load's generators.
const (
	fromClients  = "clients"
	fromBalancer = "balancer"
	paramFrom    = "from"
)

// local reports whether the load's generators run on the balancer's host.
func (l Load) local() bool { return l.From == fromBalancer }

// Local reports whether the point's generators run on the balancer's host.
func (p Point) Local() bool { return p.By.local() }
