// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/transact"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"golang.org/x/sync/errgroup"
)

// transactions is the experiment whose clients make transactions of a byte each way,
// as netperf's test of the name does.
type transactions struct{ test transact.Test }

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

func (x transactions) check(l Load, form Form, at path, fail failFunc) {
	// A load may have fewer connections than there are clients: some then stand by.
	l.checkConcurrency(at, 1, fail)
	l.checkRepeats(at, fail)
	if l.Requests != 0 || l.RequestsEach != 0 || l.MinRequests != 0 {
		fail(at, "%s cannot stop after a number of requests; give a duration", l.Kind)
	}
	if l.Pinned {
		fail(at, "pinned goes with loads that transfer in bulk; a single connection of %s is tied to one core by itself", l.Kind)
	}
	if l.Generator != "" {
		l.checkNetperf(at, fail)
	}
	if l.Duration < transactMinDuration || l.Duration > transactMaxDuration {
		fail(at.to("duration"), "%v is not possible; use %v to %v", l.Duration, transactMinDuration,
			transactMaxDuration)
	}
}

func (x transactions) obstacle(p Point, limits probe.Limits) string {
	if reason := p.Subject.Obstacle(p.Params, p.Concurrency, limits); reason != "" {
		return reason
	}
	return transact.Kind{Test: x.test}.Obstacle(p.share(0), limits)
}

// alone says that the point has a single connection. All its work, the generator's,
// the balancer's and the server's, is done on one core then: each step waits for the
// one before it, and what it costs to wake another core would be most of the figure.
// On machines, which have cores of their own, nothing is tied.
func (transactions) alone(p Point) bool { return p.Concurrency == 1 && !p.Form.far }

func (x transactions) params(p Point) map[string]any {
	all := map[string]any{
		"backends":         p.Form.Lab.Servers,
		"clients":          p.participants(),
		"concurrency":      p.Concurrency,
		"duration_seconds": p.Duration.Seconds(),
		"pinned":           yesNo(p.alone()),
	}
	if p.By.Generator != "" {
		all["generator"] = p.By.Generator
	}
	return all
}

// programs are none: servers and clients are parts of jeoul.
func (transactions) programs() programs { return programs{} }
func (transactions) onMachines() string { return "" }

// Notes on transactions.
const (
	transactTestNote = "tcp_crr: a connection is opened for each transaction (a byte each way), and the server closes it first, as in netperf's TCP_CRR (recv_omni and " +
		"disconnect_data_socket of nettest_omni.c); tcp_rr: connections are kept. Latency is from the call that connects or sends to the end; every one is counted (HdrHistogram)"
	transactTiedNote = "with one connection, client, servers and the balancer's processes are tied to the last core, where all their packet work is done as well: no step has to wake another core. " +
		"With more, nothing is tied"
	transactFreeNote = "on machines nothing is tied to a core: with one connection, a step may have to wake another one, and that is in the figures"
	transactSelfNote = "clients and servers of transactions are this program: one thread each for any number of connections, blocking calls for a single one"
)

func (transactions) notes(f Form) []string {
	if f.far {
		return []string{transactTestNote, transactFreeNote, transactSelfNote}
	}
	return []string{transactTestNote, transactTiedNote, transactSelfNote}
}

// prepare starts the servers, which have both tests' ports.
func (x transactions) prepare(ctx context.Context, r *runner) error {
	if err := r.startNetservers(ctx); err != nil {
		return err
	}
	if r.transactServers {
		return nil
	}
	r.transactServers = true
	return lab.Each(r.lab.Servers, func(server *lab.Host) error {
		process, err := server.Start(context.WithoutCancel(ctx),
			lab.Command{Path: server.Executable(r.options.Executable), Args: []string{
				"bench", "transact-server",
				"--closing", netip.AddrPortFrom(netip.IPv4Unspecified(), crrPort).String(),
				"--keeping", netip.AddrPortFrom(netip.IPv4Unspecified(), rrPort).String(),
			}})
		if err != nil {
			return err
		}
		err = pollAlive(ctx, process, func() error {
			return transactOnce(ctx, server, netip.AddrPortFrom(server.IPv4, x.port()))
		})
		if err != nil {
			return fmt.Errorf("starting the server of transactions on %s: %w", server.Name, err)
		}
		return nil
	})
}

// transactOnce makes a transaction from a host of the laboratory.
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
		err = conn.SetDeadline(time.Now().Add(webBound))
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

func (x transactions) services(l *lab.Lab, p Point) []subject.Service {
	if p.By.Generator != "" {
		return netperfServices(l)
	}
	return []subject.Service{{Port: x.port(), Servers: l.Servers}}
}

func (x transactions) conduct(ctx context.Context, r *runner, t Trial, running subject.Running,
	blank results.Trial) (all []results.Trial, err error) {
	// What is written down of requests is written down of transactions.
	t.Kind = transact.Kind{Test: x.test}
	m := &measurement{runner: r, trial: t, running: running, got: &blank}
	ready := m.transactsAll
	if t.By.Generator != "" {
		m.trial.Kind = transact.Netperf{Kind: transact.Kind{Test: x.test}, DataPort: netperfDataPort}
		ready = m.netserves
	}
	if err := ready(ctx); err != nil {
		return nil, fmt.Errorf("the subject came up, but does not serve: %w", err)
	}
	if err := m.quiet(ctx); err != nil {
		return nil, err
	}
	if t.alone() {
		defer func() { err = errors.Join(err, r.free()) }()
		if err := r.tie(lastCPU()); err != nil {
			return nil, err
		}
	}
	probing := probe.New(r.lab)
	result, err := load.Drive{
		Kind: m.trial.Kind, Clients: m.clients(), Bound: m.bound(), Before: probing.Begin, After: probing.End,
	}.Run(ctx)
	if err != nil {
		return nil, err
	}
	m.write(result, t.read(probing))
	x.name(&blank)
	return []results.Trial{blank}, nil
}

// transactTry is for how long a subject is tried by a program on the balancer's host.
const transactTry = 10 * time.Millisecond

// transactsAll returns nil once every client that takes part has made a transaction.
func (m *measurement) transactsAll(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, client := range m.runner.generators(m.trial.Point, m.trial.participants()) {
		if m.trial.local() && i > 0 {
			break // the host asks as one
		}
		group.Go(func() error {
			return poll(ctx, readyBound, func() error {
				if m.trial.local() {
					return m.runner.tries(ctx, m.trial.Kind, load.Share{Target: m.running.Target(i), Concurrency: 1,
						Duration: transactTry})
				}
				return transactOnce(ctx, client, m.running.Target(i))
			})
		})
	}
	return group.Wait()
}

// tie ties the processes of balancer and servers to a core; free unties them.
func (r *runner) tie(core int) error {
	return r.onServing(func(h *lab.Host) error { return h.Pin(core) })
}

func (r *runner) free() error { return r.onServing(func(h *lab.Host) error { return h.Pin() }) }

func (r *runner) onServing(do func(*lab.Host) error) error {
	errs := []error{do(r.lab.Balancer)}
	for _, server := range r.lab.Servers {
		errs = append(errs, do(server))
	}
	return errors.Join(errs...)
}

// name gives the figures of requests the names of the test's.
func (x transactions) name(got *results.Trial) {
	metric := results.TransactionsPerSecond
	if x.test == transact.CRR {
		metric = results.ConnectionsPerSecond
	}
	got.Metrics[metric] = got.Metrics[results.RequestsPerSecond]
	delete(got.Metrics, results.RequestsPerSecond)
}

func (x transactions) line(got []results.Trial) string {
	t := got[0]
	if !t.Valid {
		return "not valid: " + t.Notes[0]
	}
	noun, metric := "transactions", results.TransactionsPerSecond
	if x.test == transact.CRR {
		noun, metric = "connections", results.ConnectionsPerSecond
	}
	return fmt.Sprintf("%.0f %s/s, mean %.3f ms, p99 %.3f ms, %s each", t.Metrics[metric], noun,
		t.Metrics[results.LatencyMsMean], t.Metrics[results.LatencyMsP99], balancerWork(t.Metrics))
}

func (x transactions) checkAny(l Load, _ Form, at path, fail failFunc) {
	e, _ := findExperiment(l.Kind)
	if _, transacts := e.(transactions); l.Generator != "" && !transacts && x.test == transact.CRR {
		fail(at.to("generator"), "goes with %s and %s, not with %s", transact.CRR, transact.RR, l.Kind)
	}
}

func (transactions) besideContainers() {}

// netperf's own port, where it takes orders, and the one of the connections that are
// measured. Behind a VIP both must lead to the same server.
const (
	netperfControlPort = 12865
	netperfDataPort    = 12866
)

// checkNetperf checks what netperf can do for a load.
func (l Load) checkNetperf(at path, fail failFunc) {
	if l.Generator != transact.NetperfProgram {
		fail(at.to("generator"), "unknown generator %q; use %s, or leave it out", l.Generator, transact.NetperfProgram)
		return
	}
	if !slices.Equal(l.Concurrency, []int{1}) {
		fail(at.to("concurrency"),
			"through a balancer netperf is used with one connection only, for each of its streams needs services of its own; use [1]")
	}
	if l.Duration%time.Second != 0 {
		fail(at.to("duration"), "%v is not possible; netperf knows whole seconds only", l.Duration)
	}
}

// netperfServices are those of the one stream, both of the first server.
func netperfServices(l *lab.Lab) []subject.Service {
	return []subject.Service{
		{Port: netperfControlPort, Servers: l.Servers[:1]},
		{Port: netperfDataPort, Servers: l.Servers[:1]},
	}
}

// startNetservers starts netperf's server on the first server, where a load asks for
// it and it is installed.
func (r *runner) startNetservers(ctx context.Context) error {
	if !r.form.byNetperf() || r.netservers || r.absent.Generators[transact.NetperfProgram] != "" {
		return nil
	}
	r.netservers = true
	server := r.lab.Servers[0]
	at := netip.AddrPortFrom(server.IPv4, netperfControlPort)
	command := transact.Netserver(at)
	process, err := server.Start(context.WithoutCancel(ctx), lab.Command{Path: command[0], Args: command[1:]})
	if err != nil {
		return err
	}
	err = pollAlive(ctx, process, func() error { return probe.Listening(ctx, server, at) })
	if err != nil {
		return fmt.Errorf("starting netserver on %s: %w", server.Name, err)
	}
	return nil
}

// netserves returns nil once netperf's server can be reached through the subject.
func (m *measurement) netserves(ctx context.Context) error {
	return poll(ctx, readyBound, func() error {
		return probe.Listening(ctx, m.runner.lab.Clients[0], m.running.Target(0))
	})
}
