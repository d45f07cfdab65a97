// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Bounds of dnsperf.
const (
	dnsperfMaxClients = 10_000
	dnsperfMaxThreads = 256
	dnsperfMaxRate    = 100_000_000
	dnsperfMaxTimeout = time.Minute
)

// sockets are those of all generators of a point together.
func (d DNSPerf) sockets() int { return d.Clients[0] * d.Generators[0] }

// kind is the generator.
func (d DNSPerf) kind() load.DNSPerf {
	return load.DNSPerf{Question: dnsQuestion, Threads: d.Threads, Rate: d.Rate, Timeout: d.Timeout}
}

// timeout is after how long a query counts as lost.
func (d DNSPerf) timeout() time.Duration {
	if d.Timeout > 0 {
		return d.Timeout
	}
	return load.DNSPerfTimeout
}

// dnsExperiment asks name servers through a subject, as the second document did.
type dnsExperiment struct{}

func (dnsExperiment) Name() string { return load.DNSPerf{}.Name() }

func (e dnsExperiment) check(l Load, form Form, at path, fail failFunc) {
	l.checkRepeats(at, fail)
	if l.Requests != 0 || l.RequestsEach != 0 || l.MinRequests != 0 || l.Pinned || len(l.Concurrency) > 0 {
		fail(at, "dnsperf has none of concurrency, requests, requests_each, min_requests and pinned")
	}
	if l.Duration%time.Second != 0 || l.Duration < time.Second || l.Duration > maxDuration {
		fail(at.to("duration"), "%v is not possible; use whole seconds from 1s to %v", l.Duration, maxDuration)
	}
	for i, s := range form.Subjects {
		if known, ok := subject.Find(s.Name); ok && !subject.CarriesUDP(known) {
			fail(at.to("kind"), "subjects[%d], %s, balances no UDP", i, s.Name)
		}
	}
	if l.DNSPerf == nil {
		fail(at.to("dnsperf"), "missing; say at least clients, generators and backends")
		return
	}
	l.DNSPerf.check(form.Lab, at.to("dnsperf"), fail)
}

func (d DNSPerf) check(size Size, at path, fail failFunc) {
	between := func(value, least, most int, field ...any) {
		if value < least || value > most {
			fail(at.to(field...), "%d is not possible; use %d to %d", value, least, most)
		}
	}
	between(d.Threads, 0, dnsperfMaxThreads, "threads")
	between(d.Rate, 0, dnsperfMaxRate, "rate")
	if d.Timeout%time.Second != 0 || d.Timeout < 0 || d.Timeout > dnsperfMaxTimeout {
		fail(at.to("timeout"), "%v is not possible; use whole seconds up to %v", d.Timeout, dnsperfMaxTimeout)
	}
	for _, list := range []struct {
		name   string
		values []int
		most   int
	}{{"clients", d.Clients, dnsperfMaxClients}, {"generators", d.Generators, size.Clients},
		{"backends", d.Backends, size.Servers}} {
		if len(list.values) == 0 {
			fail(at.to(list.name), "empty; list at least one number, up to %d", list.most)
		}
		for i, value := range list.values {
			between(value, 1, list.most, list.name, i)
			if slices.Contains(list.values[:i], value) {
				fail(at.to(list.name, i), "%d stands in the list twice", value)
			}
		}
	}
}

func (dnsExperiment) obstacle(p Point, limits probe.Limits) string {
	if reason := p.Subject.Obstacle(p.Params, p.Concurrency, limits); reason != "" {
		return reason
	}
	// The suite was checked against its own laboratory; an inventory may have fewer.
	d := p.By.DNSPerf
	switch {
	case d.Generators[0] > p.Form.Lab.Clients:
		return fmt.Sprintf("%d generators: there are %d clients", d.Generators[0], p.Form.Lab.Clients)
	case d.Backends[0] > p.Form.Lab.Servers:
		return fmt.Sprintf("%d backends: there are %d servers", d.Backends[0], p.Form.Lab.Servers)
	}
	return load.DNSPerf{}.Obstacle(load.Share{Concurrency: d.Clients[0]}, limits)
}

// params has the sockets of all generators together as the concurrency.
func (dnsExperiment) params(p Point) map[string]any {
	d := p.By.DNSPerf
	all := map[string]any{
		"backends": d.Backends[0], "clients": d.Generators[0], "concurrency": d.sockets(),
		"duration_seconds": int(p.Duration.Seconds()), "question": dnsQuestion,
	}
	if d.Threads > 0 {
		all["generator_threads"] = d.Threads
	}
	if d.Rate > 0 {
		all["queries_per_second_most"] = d.Rate
	}
	return all
}

func (dnsExperiment) programs() programs {
	generator := load.DNSPerf{}
	return programs{
		clients: []askedProgram{{generator.Name(), generator.VersionFlag()}},
		servers: []askedProgram{{nameServerProgram, "-v"}},
	}
}

func (dnsExperiment) onMachines() string { return "" }

func (dnsExperiment) notes(f Form) []string {
	all := []string{
		fmt.Sprintf("name servers are BIND (named), one on each server, with no recursion, no query log and room for 4 MiB of waiting queries; every query is for %q, whose zone each of them has; %s",
			dnsQuestion, nameServerThreadsNote(f)),
		"queries per second are answers without an error, divided by what dnsperf took from its first query to its last answer; with several generators the sum of theirs. " +
			"dnsperf is a closed loop: it has up to 100 queries under way (-q) and sends the next when one is answered, but no more a second than its rate (-Q). It tells no percentiles",
		fmt.Sprintf("a trial in which more than %g %% of the queries were lost is not valid: dnsperf waits for each of them as long as it takes to call it lost, and sends less meanwhile", dnsMostLost),
		"queries of each backend are the datagrams that its kernel handed to the name server (UdpInDatagrams). Balancers that keep a flow's backend send all queries of one socket to one backend: " +
			"counts are even where the sockets are a multiple of the backends",
		"the name servers' CPU is that of the processes, in per cent of one core, packet work that ran on top of them included; user, system, softirq (interrupts included) and idle are of the whole machine",
	}
	if f.far {
		all = append(all,
			"on machines, user, system, softirq and idle are of all machines together, and what other programs of a server are sent over UDP is among its queries")
	}
	return all
}

// prepare starts a name server on every server.
func (dnsExperiment) prepare(ctx context.Context, r *runner) (err error) {
	names := keptOf[[]*nameServer](r, dnsExperiment{}.Name())
	if *names, err = startNameServers(ctx, r.lab); err != nil {
		return err
	}
	for _, server := range *names {
		r.alive = append(r.alive, server.running)
	}
	return err
}

// services is one, of as many servers as the point has backends.
func (dnsExperiment) services(l *lab.Lab, p Point) []subject.Service {
	return []subject.Service{{Port: dnsPort, UDP: true, Servers: slices.Clone(l.Servers[:p.By.DNSPerf.Backends[0]])}}
}

func (dnsExperiment) line(got []results.Trial) string {
	t := got[0]
	if !t.Valid {
		return "not valid: " + t.Notes[0]
	}
	m := t.Metrics
	return fmt.Sprintf("%.0f queries/s, %.0f lost, %s/query, name servers %.0f %%, %.0f context switches/s",
		m[results.QueriesPerSecond], m[results.Lost], balancerWork(m), m[results.NameServerCPUPercent],
		m[results.ContextSwitchesPerS])
}

func (dnsExperiment) conduct(ctx context.Context, r *runner, t Trial, running subject.Running,
	blank results.Trial) ([]results.Trial, error) {
	blank.Metrics = maps.Clone(blank.Metrics)
	d := &dnsTrial{runner: r, trial: t, running: running, got: &blank,
		servers: (*keptOf[[]*nameServer](r, dnsExperiment{}.Name()))[:t.By.DNSPerf.Backends[0]]}
	err := d.conduct(ctx)
	return []results.Trial{blank}, err
}

func (e dnsExperiment) checkAny(l Load, _ Form, at path, fail failFunc) {
	if l.DNSPerf != nil && l.Kind != e.Name() {
		fail(at.to("dnsperf"), "goes with the kind %s, not with %s", e.Name(), l.Kind)
	}
}

func (dnsExperiment) besideContainers() {}

// expand returns a point for each combination of the load's lists, which then have that alone.
func (dnsExperiment) expand(l Load) []Point {
	if l.DNSPerf == nil {
		return nil
	}
	var all []Point
	for _, clients := range l.DNSPerf.Clients {
		for _, generators := range l.DNSPerf.Generators {
			for _, backends := range l.DNSPerf.Backends {
				one, of := l, *l.DNSPerf
				of.Clients, of.Generators, of.Backends = []int{clients}, []int{generators}, []int{backends}
				one.DNSPerf = &of
				all = append(all, Point{By: one, Concurrency: of.sockets()})
			}
		}
	}
	return all
}
