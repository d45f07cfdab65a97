// SPDX-License-Identifier: Apache-2.0

// Package dns is the load that queries name servers through a subject by dnsperf, as the second document did.
package dns

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
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

// sockets returns the number of sockets of all generators of a point together.
func (d DNSPerf) sockets() int { return d.Clients[0] * d.Generators[0] }

// kind returns the generator.
func (d DNSPerf) kind() load.DNSPerf {
	return load.DNSPerf{Question: dnsQuestion, Threads: d.Threads, Rate: d.Rate, Timeout: d.Timeout}
}

// timeout returns how long a query may take before it counts as lost.
func (d DNSPerf) timeout() time.Duration {
	if d.Timeout > 0 {
		return d.Timeout
	}
	return load.DNSPerfTimeout
}

// kind queries name servers through a subject, as the second document did.
type kind struct{}

// Kind is the load.
var Kind bench.Experiment = kind{}

func (kind) Name() string { return load.DNSPerf{}.Name() }

func (e kind) Check(l bench.Load, form bench.Form, at bench.Path, fail bench.FailFunc) {
	l.CheckRepeats(at, fail)
	if l.Requests != 0 || l.RequestsEach != 0 || l.MinRequests != 0 || l.Pinned || len(l.Concurrency) > 0 {
		fail(at, "dnsperf has none of concurrency, requests, requests_each, min_requests and pinned")
	}
	if l.Duration%time.Second != 0 || l.Duration < time.Second || l.Duration > bench.MaxDuration {
		fail(at.To("duration"), "%v is not possible; use whole seconds from 1s to %v", l.Duration, bench.MaxDuration)
	}
	form.CheckUDP(at, fail)
	of := settingsOf(l)
	if of == nil {
		fail(at.To("dnsperf"), "missing; say at least clients, generators and backends")
		return
	}
	of.check(form.Lab, at.To("dnsperf"), fail)
}

func (d DNSPerf) check(size bench.Size, at bench.Path, fail bench.FailFunc) {
	between := func(value, least, most int, field ...any) {
		if value < least || value > most {
			fail(at.To(field...), "%d is not possible; use %d to %d", value, least, most)
		}
	}
	between(d.Threads, 0, dnsperfMaxThreads, "threads")
	between(d.Rate, 0, dnsperfMaxRate, "rate")
	if d.Timeout%time.Second != 0 || d.Timeout < 0 || d.Timeout > dnsperfMaxTimeout {
		fail(at.To("timeout"), "%v is not possible; use whole seconds up to %v", d.Timeout, dnsperfMaxTimeout)
	}
	for _, list := range []struct {
		name   string
		values []int
		most   int
	}{{"clients", d.Clients, dnsperfMaxClients}, {"generators", d.Generators, size.Clients},
		{"backends", d.Backends, size.Servers}} {
		if len(list.values) == 0 {
			fail(at.To(list.name), "empty; list at least one number, up to %d", list.most)
		}
		for i, value := range list.values {
			between(value, 1, list.most, list.name, i)
			if slices.Contains(list.values[:i], value) {
				fail(at.To(list.name, i), "%d stands in the list twice", value)
			}
		}
	}
}

func (kind) SkipReason(p bench.Point, limits probe.Limits) string {
	if reason := p.Subject.SkipReason(p.Params, p.Concurrency, limits); reason != "" {
		return reason
	}
	// The suite was checked against its own laboratory; an inventory may have fewer hosts.
	d := settingsOf(p.By)
	switch {
	case d.Generators[0] > p.Form.Lab.Clients:
		return fmt.Sprintf("%d generators: there are %d clients", d.Generators[0], p.Form.Lab.Clients)
	case d.Backends[0] > p.Form.Lab.Servers:
		return fmt.Sprintf("%d backends: there are %d servers", d.Backends[0], p.Form.Lab.Servers)
	}
	return load.DNSPerf{}.SkipReason(load.Share{Concurrency: d.Clients[0]}, limits)
}

// Params returns the parameters, with the sockets of all generators together as the concurrency.
func (kind) Params(p bench.Point) map[string]any {
	d := settingsOf(p.By)
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

func (kind) Programs() bench.Programs {
	generator := load.DNSPerf{}
	return bench.Programs{
		Clients: []bench.Program{{Name: generator.Name(), Flag: generator.VersionFlag()}},
		Servers: []bench.Program{{Name: nameServerProgram, Flag: "-v"}},
	}
}

func (kind) OnMachines() string { return "" }

func (kind) Notes(f bench.Form) []string {
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
	if f.Remote {
		all = append(all,
			"on machines, user, system, softirq and idle are of all machines together, and what other programs of a server are sent over UDP is among its queries")
	}
	return all
}

// Prepare starts a name server on every server.
func (kind) Prepare(ctx context.Context, r *bench.Runner) (err error) {
	names := bench.LabState[[]*NameServer](r, kind{}.Name())
	if *names, err = startNameServers(ctx, r.Lab); err != nil {
		return err
	}
	for _, server := range *names {
		r.Alive = append(r.Alive, server.running)
	}
	return err
}

// Servers returns the name servers of a run's laboratory.
func Servers(r *bench.Runner) []*NameServer { return *bench.LabState[[]*NameServer](r, kind{}.Name()) }

// Services returns one service, with as many servers as the point has backends.
func (kind) Services(l *lab.Lab, p bench.Point) []subject.Service {
	return []subject.Service{{Port: Port, UDP: true, Servers: slices.Clone(l.Servers[:settingsOf(p.By).Backends[0]])}}
}

func (kind) Line(got []results.Trial) string {
	t := got[0]
	if !t.Valid {
		return "not valid: " + t.Notes[0]
	}
	m := t.Metrics
	return fmt.Sprintf("%.0f queries/s, %.0f lost, %s/query, name servers %.0f %%, %.0f context switches/s",
		m[results.QueriesPerSecond], m[results.Lost], bench.BalancerWork(m), m[results.NameServerCPUPercent],
		m[results.ContextSwitchesPerS])
}

func (kind) Conduct(ctx context.Context, r *bench.Runner, t bench.Trial, running subject.Running,
	blank results.Trial) ([]results.Trial, error) {
	blank.Metrics = maps.Clone(blank.Metrics)
	d := &dnsTrial{runner: r, trial: t, running: running, got: &blank,
		servers: Servers(r)[:settingsOf(t.By).Backends[0]]}
	err := d.conduct(ctx)
	return []results.Trial{blank}, err
}

func (kind) BesideContainers() {}

// Expand returns a point for each combination of the load's lists. The load of each point has lists of one value.
func (kind) Expand(l bench.Load) []bench.Point {
	asked := settingsOf(l)
	if asked == nil {
		return nil
	}
	var all []bench.Point
	for _, clients := range asked.Clients {
		for _, generators := range asked.Generators {
			for _, backends := range asked.Backends {
				of := *asked
				of.Clients, of.Generators, of.Backends = []int{clients}, []int{generators}, []int{backends}
				all = append(all, bench.Point{By: l.With(settings{&of}), Concurrency: of.sockets()})
			}
		}
	}
	return all
}
