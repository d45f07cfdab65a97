// SPDX-License-Identifier: Apache-2.0

// Package transact has the loads of transactions of one byte each way, as netperf has them.
package transact

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/transact"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// transactions is the experiment whose clients make transactions of one byte each way, as netperf's test of that name
// does.
type transactions struct{ test transact.Test }

// CRR and RR are the loads that open a connection for each transaction, and that keep their connections.
var (
	CRR bench.Experiment = transactions{transact.CRR}
	RR  bench.Experiment = transactions{transact.RR}
)

// The servers' ports of the two tests.
const (
	crrPort = 7777
	rrPort  = 7778
)

func (x transactions) port() uint16 {
	if x.test == transact.CRR {
		return crrPort
	}
	return rrPort
}

func (x transactions) Name() string { return string(x.test) }

// Bounds of a trial's duration.
const (
	transactMinDuration = 100 * time.Millisecond
	transactMaxDuration = time.Hour
)

func (x transactions) Check(l bench.Load, form bench.Form, at bench.Path, fail bench.FailFunc) {
	// A load may have fewer connections than there are clients: some clients then stay idle.
	l.CheckConcurrency(at, 1, fail)
	l.CheckRepeats(at, fail)
	if l.Requests != 0 || l.RequestsEach != 0 || l.MinRequests != 0 {
		fail(at, "%s cannot stop after a number of requests; give a duration", l.Kind)
	}
	if l.Pinned {
		fail(at, "pinned goes with loads that transfer in bulk; a single connection of %s is tied to one core by itself", l.Kind)
	}
	if settingsOf(l).Generator != "" {
		checkNetperf(l, at, fail)
	}
	if l.Duration < transactMinDuration || l.Duration > transactMaxDuration {
		fail(at.To("duration"), "%v is not possible; use %v to %v", l.Duration, transactMinDuration,
			transactMaxDuration)
	}
}

func (x transactions) SkipReason(p bench.Point, limits probe.Limits) string {
	if reason := p.Subject.SkipReason(p.Params, p.Concurrency, limits); reason != "" {
		return reason
	}
	return transact.Kind{Test: x.test}.SkipReason(p.Share(0), limits)
}

// Alone reports whether the point has a single connection. All work of generator, balancer and server is then done on
// one core: each step waits for the one before it, and the time to wake another core would be most of the figure. On
// machines, which have cores of their own, nothing is pinned.
func (transactions) Alone(p bench.Point) bool { return p.Concurrency == 1 && !p.Form.Remote }

func (x transactions) Params(p bench.Point) map[string]any {
	all := map[string]any{
		"backends":         p.Form.Lab.Servers,
		"clients":          p.Participants(),
		"concurrency":      p.Concurrency,
		"duration_seconds": p.Duration.Seconds(),
		"pinned":           bench.YesNo(p.Alone()),
	}
	if settingsOf(p.By).Generator != "" {
		all["generator"] = settingsOf(p.By).Generator
	}
	return all
}

// Programs returns none: servers and clients are parts of jeoul.
func (transactions) Programs() bench.Programs { return bench.Programs{} }
func (transactions) OnMachines() string       { return "" }

// Notes on transactions.
const (
	transactTestNote = "tcp_crr: a connection is opened for each transaction (a byte each way), and the server closes it first, as in netperf's TCP_CRR (recv_omni and " +
		"disconnect_data_socket of nettest_omni.c); tcp_rr: connections are kept. Latency is from the call that connects or sends to the end; every one is counted (HdrHistogram)"
	transactTiedNote = "with one connection, client, servers and the balancer's processes are tied to the last core, where all their packet work is done as well: no step has to wake another core. " +
		"With more, nothing is tied"
	transactFreeNote = "on machines nothing is tied to a core: with one connection, a step may have to wake another one, and that is in the figures"
	transactSelfNote = "clients and servers of transactions are this program: one thread each for any number of connections, blocking calls for a single one"
)

func (transactions) Notes(f bench.Form) []string {
	if f.Remote {
		return []string{transactTestNote, transactFreeNote, transactSelfNote}
	}
	return []string{transactTestNote, transactTiedNote, transactSelfNote}
}

// Prepare starts the servers, which listen at the ports of both tests.
func (x transactions) Prepare(ctx context.Context, r *bench.Runner) error {
	running := bench.LabState[servers](r, "servers of transactions")
	if err := running.startNetserver(ctx, r); err != nil {
		return err
	}
	if running.own {
		return nil
	}
	running.own = true
	return lab.Each(r.Lab.Servers, func(server *lab.Host) error {
		process, err := server.Start(context.WithoutCancel(ctx),
			lab.Command{Path: server.Executable(r.Options.Executable), Args: []string{
				"bench", "transact-server",
				"--closing", netip.AddrPortFrom(netip.IPv4Unspecified(), crrPort).String(),
				"--keeping", netip.AddrPortFrom(netip.IPv4Unspecified(), rrPort).String(),
			}})
		if err != nil {
			return err
		}
		err = bench.PollAlive(ctx, process, func() error {
			return transactOnce(ctx, server, netip.AddrPortFrom(server.IPv4, x.port()))
		})
		if err != nil {
			return fmt.Errorf("starting the server of transactions on %s: %w", server.Name, err)
		}
		return nil
	})
}

// transactOnce makes one transaction from a host of the laboratory.
func transactOnce(ctx context.Context, from *lab.Host, to netip.AddrPort) error {
	_, err := transactTask.On(ctx, from, to)
	return err
}

var transactTask = lab.NewTask("transact-once",
	func(ctx context.Context, from *lab.Host, to netip.AddrPort) (struct{}, error) {
		conn, err := probe.Dial(ctx, from, to)
		if err != nil {
			return struct{}{}, fmt.Errorf("%s asking %s: %w", from.Name, to, err)
		}
		defer conn.Close()
		answer := []byte{0}
		err = conn.SetDeadline(time.Now().Add(bench.ServerTimeout))
		if err == nil {
			_, err = conn.Write([]byte{'?'})
		}
		if err == nil {
			_, err = conn.Read(answer)
		}
		if err == nil && answer[0] != '?' {
			err = fmt.Errorf("it answered %q", answer)
		}
		if err != nil {
			return struct{}{}, fmt.Errorf("%s asking %s for a byte: %w", from.Name, to, err)
		}
		return struct{}{}, nil
	})

func (x transactions) Services(l *lab.Lab, p bench.Point) []subject.Service {
	if settingsOf(p.By).Generator != "" {
		return netperfServices(l)
	}
	return []subject.Service{{Port: x.port(), Servers: l.Servers}}
}

func (x transactions) Conduct(ctx context.Context, r *bench.Runner, t bench.Trial, running subject.Running,
	blank results.Trial) (all []results.Trial, err error) {
	// The measurement writes figures of requests, which become figures of transactions.
	m := &bench.Measurement{Runner: r, Trial: t, Running: running, Got: &blank, Kind: transact.Kind{Test: x.test}}
	ready := transactsAll
	if settingsOf(t.By).Generator != "" {
		m.Kind = transact.Netperf{Kind: transact.Kind{Test: x.test}, DataPort: netperfDataPort}
		ready = netserves
	}
	if err := ready(ctx, m); err != nil {
		return nil, fmt.Errorf("the subject came up, but does not serve: %w", err)
	}
	if err := m.Quiet(ctx); err != nil {
		return nil, err
	}
	if t.Alone() {
		defer func() { err = errors.Join(err, unpinServing(r)) }()
		if err := pinServing(r, bench.LastCPU()); err != nil {
			return nil, err
		}
	}
	if err := m.Drive(ctx, m.Clients()); err != nil {
		return nil, err
	}
	x.name(&blank)
	return []results.Trial{blank}, nil
}

// transactTry is how long a program on the balancer's host tries a subject.
const transactTry = 10 * time.Millisecond

// transactsAll returns nil once every participating client has made a transaction.
func transactsAll(ctx context.Context, m *bench.Measurement) error {
	return m.EachClient(ctx, func(ctx context.Context, client *lab.Host, i int) error {
		if m.Trial.Local() {
			return m.Runner.TryFromBalancer(ctx, m.Kind, load.Share{Target: m.Running.Target(i), Concurrency: 1,
				Duration: transactTry})
		}
		return transactOnce(ctx, client, m.Running.Target(i))
	})
}

// pinServing pins the processes of balancer and servers to a core.
func pinServing(r *bench.Runner, core int) error {
	return onServing(r, func(h *lab.Host) error { return h.Pin(core) })
}

func unpinServing(r *bench.Runner) error {
	return onServing(r, func(h *lab.Host) error { return h.Pin() })
}

func onServing(r *bench.Runner, do func(*lab.Host) error) error {
	errs := []error{do(r.Lab.Balancer)}
	for _, server := range r.Lab.Servers {
		errs = append(errs, do(server))
	}
	return errors.Join(errs...)
}

// name renames the figures of requests to those of the test.
func (x transactions) name(got *results.Trial) {
	metric := results.TransactionsPerSecond
	if x.test == transact.CRR {
		metric = results.ConnectionsPerSecond
	}
	got.Metrics[metric] = got.Metrics[results.RequestsPerSecond]
	delete(got.Metrics, results.RequestsPerSecond)
}

func (x transactions) Line(got []results.Trial) string {
	t := got[0]
	if !t.Valid {
		return "not valid: " + t.Notes[0]
	}
	noun, metric := "transactions", results.TransactionsPerSecond
	if x.test == transact.CRR {
		noun, metric = "connections", results.ConnectionsPerSecond
	}
	return fmt.Sprintf("%.0f %s/s, mean %.3f ms, p99 %.3f ms, %s each", t.Metrics[metric], noun,
		t.Metrics[results.LatencyMsMean], t.Metrics[results.LatencyMsP99], bench.BalancerWork(t.Metrics))
}

func (transactions) BesideContainers() {}

// Ports of netperf: the one for control, and the one of the measured connections. Behind a VIP both must lead to the
// same server.
const (
	netperfControlPort = 12865
	netperfDataPort    = 12866
)

// checkNetperf rejects settings of a load that netperf cannot run.
func checkNetperf(l bench.Load, at bench.Path, fail bench.FailFunc) {
	if by := settingsOf(l).Generator; by != transact.NetperfProgram {
		fail(at.To("generator"), "unknown generator %q; use %s, or leave it out", by, transact.NetperfProgram)
		return
	}
	if !slices.Equal(l.Concurrency, []int{1}) {
		fail(at.To("concurrency"),
			"through a balancer netperf is used with one connection only, for each of its streams needs services of its own; use [1]")
	}
	if l.Duration%time.Second != 0 {
		fail(at.To("duration"), "%v is not possible; netperf knows whole seconds only", l.Duration)
	}
}

// netperfServices returns the services of the one stream, both of the first server.
func netperfServices(l *lab.Lab) []subject.Service {
	return []subject.Service{
		{Port: netperfControlPort, Servers: l.Servers[:1]},
		{Port: netperfDataPort, Servers: l.Servers[:1]},
	}
}

// servers records which servers run in a laboratory.
type servers struct{ own, netperf bool }

// startNetserver starts netperf's server on the first server if a load needs it and it is installed.
func (s *servers) startNetserver(ctx context.Context, r *bench.Runner) error {
	if !slices.ContainsFunc(r.Form.Loads, byNetperf) || s.netperf ||
		r.Absent.Generators[transact.NetperfProgram] != "" {
		return nil
	}
	s.netperf = true
	server := r.Lab.Servers[0]
	at := netip.AddrPortFrom(server.IPv4, netperfControlPort)
	command := transact.Netserver(at)
	process, err := server.Start(context.WithoutCancel(ctx), lab.Command{Path: command[0], Args: command[1:]})
	if err != nil {
		return err
	}
	err = bench.PollAlive(ctx, process, func() error { return probe.Listening(ctx, server, at) })
	if err != nil {
		return fmt.Errorf("starting netserver on %s: %w", server.Name, err)
	}
	return nil
}

// netserves returns nil once netperf's server is reachable through the subject.
func netserves(ctx context.Context, m *bench.Measurement) error {
	return bench.Poll(ctx, bench.ReadyTimeout, func() error {
		return probe.Listening(ctx, m.Runner.Lab.Clients[0], m.Running.Target(0))
	})
}

// settings are the keys that only loads of this kind have.
type settings struct {
	// Generator is netperf, or empty for jeoul's own generator.
	Generator string `yaml:"generator"`
}

// Settings reads a load's keys.
func (transactions) Settings(read func(into any)) any { return bench.ReadSettings[settings](read) }

// settingsOf returns a load's settings of its generator.
func settingsOf(l bench.Load) settings { return bench.SettingsOf[settings](l) }

// byNetperf reports whether a load's generator is netperf.
func byNetperf(l bench.Load) bool { return settingsOf(l).Generator == transact.NetperfProgram }

// netperf has the client and the server of netperf, which both print a version.
var netperf = &bench.Generator{
	Name: transact.NetperfProgram,
	Programs: bench.Programs{
		Clients: []bench.Program{{Name: transact.NetperfProgram, Flag: transact.Netperf{}.VersionFlag()}},
		Servers: []bench.Program{{Name: transact.NetserverProgram, Flag: transact.Netperf{}.VersionFlag()}},
	},
	Missing: func(program string) string {
		return program + " is not installed (Debian has it in non-free); leave out generator for this program's own"
	},
}

// Generator returns netperf if a load asks for it.
func (transactions) Generator(l bench.Load) *bench.Generator {
	if byNetperf(l) {
		return netperf
	}
	return nil
}
