// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjects"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// A form may have its servers as containers of the balancer's host, behind a bridge there. A
// load's generators run on clients beyond that host, or on the host itself.

// Where a load's generators run.
const (
	fromClients  = "clients"
	fromBalancer = "balancer"
	paramFrom    = "from"
)

// Notes on containers.
const (
	containersNote = "servers are containers of the balancer's host: each has a veth into a bridge there, and its default route by that"
	localNote      = "under a load from the balancer's host, generators and balancer share it: what the balancer costs cannot be told from them. " +
		"The host's CPU time has both, with the kernel's work for the bridge and the containers' links; what it has beyond that of direct is the balancer's"
)

// local says that the load's generators run on the balancer's host.
func (l Load) local() bool { return l.From == fromBalancer }

// Local says that the point's generators run on the balancer's host.
func (p Point) Local() bool { return p.By.local() }

// checkContainers reports settings that do not go with containers, or with generators on their host.
func (f Form) checkContainers(at Path, fail FailFunc) {
	if f.Lab.Containers && len(f.Tune) > 0 {
		fail(at.To("tune"), "goes with servers on the segment, not with lab.containers")
	}
	for i, l := range f.Loads {
		l.checkFrom(f, at.To("loads", i), fail)
	}
}

func (l Load) checkFrom(f Form, at Path, fail FailFunc) {
	e, _ := findExperiment(l.Kind)
	_, carried := e.(besideContainers)
	switch {
	case l.From != "" && l.From != fromClients && l.From != fromBalancer:
		fail(at.To("from"), "%q is not possible; use %s or %s", l.From, fromClients, fromBalancer)
	case l.local() && !f.Lab.Containers:
		fail(at.To("from"), "clients on the balancer's host need servers behind it: set lab.containers to true")
	case f.Lab.Containers && !carried:
		fail(at.To("kind"), "%s needs servers on the segment; with lab.containers use %s",
			l.Kind, besideContainersNames())
	case f.Lab.Containers && l.generator() != nil:
		fail(at.To("generator"), "%s goes with servers on the segment, not with lab.containers", l.generator().Name)
	case f.Lab.Containers:
		for j, s := range f.Subjects {
			known, ok := subjects.Find(s.Name)
			if !ok {
				continue // said elsewhere
			}
			if reason := subject.BesideContainers(known, l.local()); reason != "" {
				fail(at.To("from"), "subjects[%d], %s: %s", j, s.Name, reason)
			}
		}
	}
}

// from is the parameter of that name; empty where there are no containers.
func (p Point) from() string {
	switch {
	case !p.Form.Lab.Containers:
		return ""
	case p.Local():
		return fromBalancer
	}
	return fromClients
}

// Generators are the hosts that so many generators of a point run on, one each.
func (r *Runner) Generators(p Point, n int) []*lab.Host {
	if p.Local() {
		return slices.Repeat([]*lab.Host{r.Lab.Balancer}, n)
	}
	return r.Lab.Clients[:n]
}

// triesBound is how long a generator that tries a subject may take.
const triesBound = 20 * time.Second

// Tries has a program on the balancer's host ask a subject once, as its load will. Asking from
// this process would not do: a balancer may serve the programs of a cgroup, and this one is in
// no cgroup of the laboratory's.
func (r *Runner) Tries(ctx context.Context, kind load.Kind, share load.Share) error {
	nothing := func() error { return nil }
	result, err := load.Drive{Kind: kind, Clients: []load.Client{r.Client(0, r.Lab.Balancer, share)}, Bound: triesBound,
		Before: nothing, After: nothing}.Run(ctx)
	switch {
	case err != nil:
		return err
	case len(result.Problems) > 0:
		return fmt.Errorf("%s asking %s: %s", r.Lab.Balancer.Name, share.Target, result.Problems[0])
	case result.Lost > 0:
		return fmt.Errorf("%s asking %s: no answer", r.Lab.Balancer.Name, share.Target)
	}
	return nil
}

// Read returns the probe's reading of the time while the point's load was on. Under a load from the balancer's host
// there are no clients, and that host's use is the generators' and the balancer's together.
func (p Point) Read(probing *probe.Probe) probe.Reading {
	reading := probing.Reading()
	if !p.Local() {
		return reading
	}
	reading.Parts = slices.DeleteFunc(reading.Parts, func(u probe.Usage) bool {
		return u.Part == results.SaturatedClient
	})
	for i := range reading.Parts {
		if reading.Parts[i].Part == results.SaturatedBalancer {
			reading.Parts[i].Part = probe.PartHost
		}
	}
	return reading
}

// BalancerWork gives in a few words the CPU time of a request on the balancer, or on its host with the generators that
// run there.
func BalancerWork(metrics map[string]float64) string {
	if both, ok := metrics[results.BalancerHostCPUUsPerRequest]; ok {
		return fmt.Sprintf("balancer's host %.1f µs", both)
	}
	return fmt.Sprintf("balancer %.1f µs", metrics[results.BalancerCPUUsPerRequest])
}

// besideContainersNames lists the kinds of loads that go beside containers: "a, b or c".
func besideContainersNames() string {
	var names []string
	for _, e := range registered {
		if _, ok := e.(besideContainers); ok {
			names = append(names, e.Name())
		}
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
