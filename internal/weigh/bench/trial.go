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
	// Params are the subject's.
	Params subject.Params
	// Load is the load's name, Experiment the one that conducts it, as By is set up.
	Load       string
	Experiment Experiment
	By         Load
	// Concurrency and Requests are of all clients together; Requests is 0 where
	// Duration ends the trial.
	Concurrency, Requests int
	Duration              time.Duration
	// Pinned and Offloads are the load's.
	Pinned, Offloads bool
	// Tune is the profile that the hosts are tuned by; empty where the suite does not say.
	Tune string
	// Form has the settings that the point shares with the others of its run.
	Form Form
	// Repeats is how often the point is to be measured.
	Repeats int
}

// Trial is a point to be measured once.
type Trial struct {
	Point
	// Repeat counts from 1.
	Repeat int
	// Obstacle is the reason why the machine cannot carry the point; empty if it can.
	Obstacle string
}

// Absent is the reason why a requirement of a point is not on this machine: by the name of a subject, of a kind of
// load, and of a generator that a load asks for.
type Absent struct{ Subjects, Kinds, Generators map[string]string }

// Participants is how many clients, the first ones, take part in the load: each
// has a connection.
func (p Point) Participants() int { return min(p.Form.Lab.Clients, p.Concurrency) }

// Share returns client i's part of the load, from 0, without its directory and
// target.
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

// Part returns the i-th of n parts of total that differ by one at most.
func Part(total, n, i int) int {
	size := total / n
	if i < total%n {
		size++
	}
	return size
}

// EndParams are the parameters that end a trial of a load whose generator is a program of the trade.
func (p Point) EndParams() map[string]any {
	if p.Requests > 0 {
		return map[string]any{"requests": p.Requests}
	}
	return map[string]any{"duration_seconds": int(p.Duration.Seconds())}
}

// YesNo is a parameter's word.
func YesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// paramTuned is the parameter that names the profile.
const paramTuned = "tuned"

// Where a load's generators run.
const (
	fromClients  = "clients"
	fromBalancer = "balancer"
	paramFrom    = "from"
)

// local reports whether the load's generators run on the balancer's host.
func (l Load) local() bool { return l.From == fromBalancer }

// Local reports whether the point's generators run on the balancer's host.
func (p Point) Local() bool { return p.By.local() }
