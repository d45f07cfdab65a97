// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// measurement is one trial with its subject up.
type measurement struct {
	runner  *runner
	trial   Trial
	running subject.Running
	got     *results.Trial
}

// measure checks that the subject works, puts the load on it and writes down
// what came of it. An error makes the trial invalid.
func (m *measurement) measure(ctx context.Context) error {
	if err := m.ready(ctx); err != nil {
		return fmt.Errorf("the subject came up, but does not serve: %w", err)
	}
	if err := m.quiet(ctx); err != nil {
		return err
	}
	probing := probe.New(m.runner.lab)
	drive := load.Drive{
		Kind: m.trial.Kind, Clients: m.clients(), Bound: m.bound(),
		Before: probing.Begin, After: probing.End,
	}
	result, err := drive.Run(ctx)
	if err != nil {
		return err
	}
	m.write(result, probing.Reading())
	return nil
}

// readyBound is how long a subject may take to serve every client after it
// says that it is up: on a machine that others keep busy, a proxy takes seconds for a MiB.
const readyBound = 20 * time.Second

// ready returns nil once every client got the file through the subject, or for
// a bulk load sent a little through it.
func (m *measurement) ready(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, client := range m.runner.lab.Clients[:m.trial.participants()] {
		group.Go(func() error {
			return poll(ctx, m.runner.options.patience()*readyBound, func() error {
				if m.trial.Kind.Bulk() {
					return transfer(ctx, client, m.running.Target(i))
				}
				if m.trial.TLS {
					return probe.AskTLS(ctx, client, m.running.Target(i), "/"+fileName, m.trial.Form.Web.FileBytes,
						m.runner.certificate.shown)
				}
				return probe.Ask(ctx, client, m.running.Target(i), "/"+fileName, m.trial.Form.Web.FileBytes)
			})
		})
	}
	return group.Wait()
}

func (m *measurement) clients() []load.Client {
	var clients []load.Client
	for i, host := range m.runner.generators(m.trial.Point, m.trial.participants()) {
		share := m.trial.share(i)
		share.Target = m.running.Target(i)
		share.URL = m.url(share.Target)
		share.CPUs = m.trial.cpus(i)
		clients = append(clients, m.runner.client(i, host, share, m.trial.tied()...))
	}
	return clients
}

// client is generator number i (from 0) of a load, on a host, tied to cpus if there are any.
// Its directory is that of client number i, wherever it runs.
func (r *runner) client(i int, host *lab.Host, share load.Share, cpus ...int) load.Client {
	share.Dir, share.Executable = r.lab.Clients[i].Dir, host.Executable(r.options.Executable)
	client := load.Client{Name: host.Name, Share: share, Start: load.StartOn(host, cpus...)}
	if host.Far() {
		client.Far, client.CPUs = host, cpus
	}
	return client
}

// url names the file at target. The port stands there even if it is that of
// HTTP: wrk would look it up in /etc/services, which a small system lacks.
func (m *measurement) url(target netip.AddrPort) string {
	scheme, dir := "http://", "/"
	if m.trial.TLS {
		scheme = "https://"
	}
	if m.trial.patient(m.runner.limits) {
		dir += patientDir
	}
	return scheme + target.String() + dir + fileName
}

// tied are the cores of a trial's generators; none leaves them free.
func (t Trial) tied() []int {
	if t.alone() {
		return []int{lastCPU()}
	}
	return nil
}

// Bounds on a generator.
const (
	// grace is what a generator may take beyond the time of its load.
	grace = 10 * time.Second
	// slowest is the rate, in requests per second, below which a trial that ends
	// by a number of requests is given up.
	slowest = 200
)

// bound is how long a generator may take.
func (m *measurement) bound() time.Duration {
	patience := m.runner.options.patience()
	if m.trial.Duration > 0 {
		return m.trial.Duration + patience*m.runner.grace
	}
	return patience * (time.Duration(m.trial.Requests/slowest)*time.Second + m.runner.grace)
}

// write puts what was measured into the trial.
func (m *measurement) write(result *load.Result, reading probe.Reading) {
	got := m.got
	got.Notes = append(got.Notes, result.Problems...)
	got.Valid = len(result.Problems) == 0 && result.Failed == 0
	m.writeSaturated(reading)
	got.Notes = append(got.Notes, result.Notes...)
	got.Notes = append(got.Notes, drops(reading)...)
	m.writeLoad(result)
	m.writeReading(result, reading)
	if m.runner.options.counts() {
		m.writeInstructions(result, reading)
	}
}

// writeSaturated writes down which part was the limit, and what the subject says
// of its set-up.
func (m *measurement) writeSaturated(reading probe.Reading) {
	for i := range reading.Parts {
		if reading.Parts[i].Part == results.SaturatedBalancer {
			reading.Parts[i].Allowed = m.running.Cores()
		}
	}
	part, why := probe.Saturated(reading.Parts, reading.Idle, float64(m.runner.limits.Cores))
	if len(reading.Machines) > 1 {
		part, why = probe.SaturatedMachines(reading.Machines, m.running.Cores())
	}
	if m.trial.alone() {
		part, why = results.SaturatedUnknown, fmt.Sprintf(
			"saturated: unknown, for one connection keeps one core busy with all parts in turn; %.2f of %d cores idled",
			reading.Idle, m.runner.limits.Cores)
	}
	if m.runner.options.counts() {
		part, why = results.SaturatedUnknown, "saturated: unknown, for one processor does everybody's work"
	}
	m.got.Saturated = part
	m.got.Notes = append(m.got.Notes, why)
	m.got.Notes = append(m.got.Notes, m.running.Notes()...)
	if m.trial.patient(m.runner.limits) {
		m.got.Notes = append(m.got.Notes, patientNote(m.runner.limits))
	}
}

// drops names what was dropped, which may explain what went wrong.
func drops(reading probe.Reading) []string {
	var notes []string
	for _, kind := range []struct {
		count uint64
		what  string
	}{
		{reading.ListenOverflows, "connections came while a server's queue of them was full (TcpExtListenOverflows)"},
		{reading.ListenDrops, "connections were dropped by listening sockets (TcpExtListenDrops)"},
		{reading.DeviceDrops, "frames were dropped by devices"},
	} {
		if kind.count > 0 {
			notes = append(notes, strconv.FormatUint(kind.count, 10)+" "+kind.what)
		}
	}
	return notes
}

func (m *measurement) writeLoad(result *load.Result) {
	metrics := m.got.Metrics
	if m.trial.Kind.Bulk() {
		metrics[results.GigabitsPerSecond] = result.Transfer.BitsPerSecond / 1e9
		metrics[results.TransferredGigabytes] = float64(result.Transfer.Bytes) / 1e9
		metrics[results.Retransmits] = float64(result.Transfer.Retransmits)
		metrics[results.DurationSeconds] = result.Duration.Seconds()
		return
	}
	metrics[results.Requests] = float64(result.Requests)
	metrics[results.Failed] = float64(result.Failed)
	metrics[results.DurationSeconds] = result.Duration.Seconds()
	if seconds := result.Duration.Seconds(); seconds > 0 {
		metrics[results.RequestsPerSecond] = float64(result.Requests) / seconds
	}
	l := result.Latency
	if l.Count() == 0 {
		return
	}
	metrics[results.LatencyMsMin] = l.MinMs()
	metrics[results.LatencyMsMean] = l.MeanMs()
	metrics[results.LatencyMsP50] = l.Ms(50)
	metrics[results.LatencyMsP90] = l.Ms(90)
	metrics[results.LatencyMsP99] = l.Ms(99)
	metrics[results.LatencyMsMax] = l.MaxMs()
}

// cpuMetrics are the two metrics of a part's CPU.
var cpuMetrics = map[results.Part]struct{ cores, perRequest string }{
	results.SaturatedBalancer: {results.BalancerCPUCores, results.BalancerCPUUsPerRequest},
	results.SaturatedClient:   {results.ClientCPUCores, results.ClientCPUUsPerRequest},
	results.SaturatedBackend:  {results.BackendCPUCores, results.BackendCPUUsPerRequest},
	probe.PartHost:            {results.BalancerHostCPUCores, results.BalancerHostCPUUsPerRequest},
	probe.PartSwitch:          {results.SwitchCPUCores, results.SwitchCPUUsPerRequest},
}

func (m *measurement) writeReading(result *load.Result, reading probe.Reading) {
	metrics := m.got.Metrics
	if !m.runner.options.counts() {
		m.writeCPU(result, reading)
	}
	metrics[results.IdleCPUCores] = reading.Idle
	metrics[results.ContextSwitchesPerS] = reading.ContextSwitches
	metrics[results.ListenDrops] = float64(reading.ListenDrops)
	metrics[results.ListenOverflows] = float64(reading.ListenOverflows)
	metrics[results.DeviceDrops] = float64(reading.DeviceDrops)
	for i, server := range m.runner.lab.Servers {
		m.got.Backends = append(m.got.Backends, results.Backend{
			Name: server.Name, Address: server.IPv4.String(), Connections: reading.Connections[i]})
	}
	idle := slices.ContainsFunc(reading.Connections, func(n uint64) bool { return n == 0 })
	if idle && m.trial.Concurrency >= len(reading.Connections) {
		m.got.Notes = append(m.got.Notes, "a backend had no connection at all")
	}
}

// writeCPU writes down what each part used, and of the work for a request or a
// gigabyte (10^9 bytes).
func (m *measurement) writeCPU(result *load.Result, reading probe.Reading) {
	metrics := m.got.Metrics
	for _, part := range reading.Parts {
		names := cpuMetrics[part.Part]
		metrics[names.cores] = part.Cores
		used := part.Cores * float64(reading.Interval.Microseconds())
		if result.Requests > 0 {
			metrics[names.perRequest] = used / float64(result.Requests)
		}
		if gigabytes := float64(result.Transfer.Bytes) / 1e9; gigabytes > 0 && part.Part == results.SaturatedBalancer {
			metrics[results.BalancerCPUMsPerGigabyte] = used / 1e3 / gigabytes
		}
	}
}
