// SPDX-License-Identifier: Apache-2.0

// Package web has the loads that request a file from web servers by a standard generator, and these servers, which
// other kinds of loads use, too.
package web

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// AB and Wrk are the kinds whose generators are ab and wrk.
var (
	AB  bench.Experiment = kind{load.AB{}}
	Wrk bench.Experiment = kind{load.Wrk{}}
)

// Settings reads a load's keys.
func (kind) Settings(read func(into any)) any { return bench.ReadSettings[Settings](read) }

func (k kind) Check(l bench.Load, form bench.Form, at bench.Path, fail bench.FailFunc) {
	l.CheckConcurrency(at, form.Lab.Clients, fail)
	l.CheckEnd(at, k.Kind, fail)
	if l.Pinned || l.Offloads {
		fail(at, "pinned goes with loads that transfer in bulk, and offloads with those, transactions and dnsperf; not with %s", l.Kind)
	}
	l.CheckRepeats(at, fail)
}

func (k kind) SkipReason(p bench.Point, limits probe.Limits) string {
	// The first client has the most connections if the concurrency does not divide evenly.
	reason := cmp.Or(p.Subject.SkipReason(p.Params, p.Concurrency, limits), k.Kind.SkipReason(p.Share(0), limits))
	if reason == "" && overTLS(p) && p.Subject.Can().HTTPOnly && !p.Subject.Can().EndsTLS {
		reason = fmt.Sprintf("%s reads HTTP, and is not set up to end TLS here", p.Subject.Name())
	}
	return cmp.Or(reason, ServersSkipReason(p, limits), crowdSkipReason(p, limits))
}

func (kind) Params(p bench.Point) map[string]any {
	all := p.EndParams()
	maps.Copy(all, map[string]any{"concurrency": p.Concurrency, "file_bytes": p.Form.Web.FileBytes})
	if overTLS(p) {
		all["tls"] = bench.YesNo(true)
	}
	return all
}

func (k kind) Programs() bench.Programs {
	server := Program
	server.Needed = true
	return bench.Programs{Clients: []bench.Program{{Name: k.Name(), Flag: k.VersionFlag()}},
		Servers: []bench.Program{server}}
}

func (kind) OnMachines() string { return "" }
func (kind) ServesFile()        {}
func (kind) SpeaksHTTP()        {}

// Size describes the servers.
func (kind) Size(f bench.Form) string {
	return fmt.Sprintf("%d clients, %d web servers (nginx, %d workers, access log on), a file of %d bytes",
		f.Lab.Clients, f.Lab.Servers, workers, f.Web.FileBytes)
}

// webNotes are the notes on loads of web servers.
var webNotes = []string{
	"latencies are what the generators clocked, merged over all clients request by request (HdrHistogram, three digits). " +
		"ab gives 101 percentiles per client, between which requests are spread evenly; wrk every request, with wrk's own correction " +
		"(requests that it adds after the fact) taken out. ab's latency includes connecting, wrk's does not",
	"requests per second are good answers divided by the time from the first client's first request to the last client's last answer",
	"connections per backend are those that its kernel accepted (TcpPassiveOpens); wrk makes one a client more than it was asked for",
}

// tlsNotes are the notes on loads over TLS.
var tlsNotes = []string{
	"over TLS, servers and proxies that end it show a certificate with an RSA key of 2048 bits that signed itself; what is negotiated is up to the programs' own defaults. " +
		"ab makes a whole handshake for each request, wrk one for each connection",
}

func (kind) Notes(f bench.Form) []string {
	if encrypted(f) {
		return slices.Concat(webNotes, tlsNotes)
	}
	return webNotes
}

func (kind) Prepare(ctx context.Context, r *bench.Runner) error { return Start(ctx, r) }

func (kind) Services(l *lab.Lab, p bench.Point) []subject.Service {
	if overTLS(p) {
		return tlsServices(l)
	}
	return Services(l)
}

// ChangeSetup gives a subject that terminates TLS the servers' certificate.
func (kind) ChangeSetup(r *bench.Runner, p bench.Point, setup *subject.Setup) {
	if overTLS(p) {
		setup.Certificate = Of(r).tls.path(r.Lab.Balancer)
	}
}

func (k kind) Conduct(ctx context.Context, r *bench.Runner, t bench.Trial, running subject.Running,
	blank results.Trial) ([]results.Trial, error) {
	m := &bench.Measurement{Runner: r, Trial: t, Running: running, Got: &blank, Kind: k.Kind,
		URL: func(target netip.AddrPort) string { return URL(t.Point, r.Limits, target) }}
	ready := func(ctx context.Context) error { return Ready(ctx, m) }
	if overTLS(t.Point) {
		ready = func(ctx context.Context) error { return readyTLS(ctx, m) }
	}
	err := m.Measure(ctx, ready)
	if mustLinger(t.Point, r.Limits) {
		blank.Notes = append(blank.Notes, lingerNote(r.Limits))
	}
	return []results.Trial{blank}, err
}

// Ready returns nil once every client has got the file through the subject.
func Ready(ctx context.Context, m *bench.Measurement) error {
	return m.EachClient(ctx, func(ctx context.Context, client *lab.Host, i int) error {
		return probe.Ask(ctx, client, m.Running.Target(i), "/"+FileName, m.Trial.Form.Web.FileBytes)
	})
}

// readyTLS is Ready over TLS.
func readyTLS(ctx context.Context, m *bench.Measurement) error {
	return m.EachClient(ctx, func(ctx context.Context, client *lab.Host, i int) error {
		return probe.AskTLS(ctx, client, m.Running.Target(i), "/"+FileName, m.Trial.Form.Web.FileBytes,
			Of(m.Runner).tls.der)
	})
}

// URL returns the URL of the file at target. It names the port even if that is HTTP's: wrk would look it up in
// /etc/services, which a small system lacks.
func URL(p bench.Point, limits probe.Limits, target netip.AddrPort) string {
	scheme, dir := "http://", "/"
	if overTLS(p) {
		scheme = "https://"
	}
	if mustLinger(p, limits) {
		dir += lingerDir
	}
	return scheme + target.String() + dir + FileName
}

func (kind) Line(got []results.Trial) string {
	return bench.LineOf(got, func(m map[string]float64) string {
		return fmt.Sprintf("%.0f requests/s, %.0f failed, p99 %.1f ms, balancer %.1f µs/request",
			m[results.RequestsPerSecond], m[results.Failed], m[results.LatencyMsP99],
			m[results.BalancerCPUUsPerRequest])
	})
}
