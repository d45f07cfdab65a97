// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jeoul/jeoul/internal/host/cpus"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Measurement is one trial while its subject runs.
type Measurement struct {
	Runner  *Runner
	Trial   Trial
	Running subject.Running
	Got     *results.Trial
	// Kind is the generator.
	Kind load.Kind
	// URL returns the URL of the file that a generator requests at an address; nil if it requests none.
	URL func(target netip.AddrPort) string
	// Datagrams means that requests are no connections, so that servers' connection counts do not show them.
	Datagrams bool
	// Figures writes the generators' measurements; nil means the figures of requests.
	Figures func(metrics map[string]float64, result *load.Result)
}

// Measure waits until the subject serves, runs the load and writes down the results. An error makes the trial invalid.
func (m *Measurement) Measure(ctx context.Context, ready func(context.Context) error) error {
	if err := ready(ctx); err != nil {
		return fmt.Errorf("the subject came up, but does not serve: %w", err)
	}
	if err := m.Quiet(ctx); err != nil {
		return err
	}
	return m.Drive(ctx, m.Clients())
}

// Drive runs the load from clients and writes down the results.
func (m *Measurement) Drive(ctx context.Context, clients []load.Client) error {
	probing := probe.New(m.Runner.Lab)
	result, err := load.Drive{Kind: m.Kind, Clients: clients, Bound: m.Bound(), Before: probing.Begin,
		After: probing.End}.Run(ctx)
	if err != nil {
		return err
	}
	m.Write(result, m.Trial.Read(probing))
	return nil
}

// ReadyTimeout is how long a subject may take, after it reports that it is up, to serve every client. On a busy
// machine, a proxy takes seconds for a MiB.
const ReadyTimeout = 20 * time.Second

// EachClient lets every participating client try the subject concurrently until the subject serves it. A host that
// several generators share tries once.
func (m *Measurement) EachClient(ctx context.Context,
	try func(ctx context.Context, client *lab.Host, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, client := range m.Runner.Generators(m.Trial.Point, m.Trial.Participants()) {
		if m.Trial.Local() && i > 0 {
			break // the generators of the host share one address
		}
		group.Go(func() error {
			return Poll(ctx, m.Runner.Options.Slowdown()*ReadyTimeout, func() error { return try(ctx, client, i) })
		})
	}
	return group.Wait()
}

// Clients returns the load's generators.
func (m *Measurement) Clients() []load.Client {
	var clients []load.Client
	for i, host := range m.Runner.Generators(m.Trial.Point, m.Trial.Participants()) {
		share := m.Trial.Share(i)
		share.Target = m.Running.Target(i)
		if m.URL != nil {
			share.URL = m.URL(share.Target)
		}
		share.CPUs = m.Trial.cpus(i)
		clients = append(clients, m.Runner.Client(i, host, share, m.Trial.pinnedCPUs()...))
	}
	return clients
}

// Client returns generator number i (from 0) of a load, on a host, pinned to cpus if there are any. Its directory is
// that of client number i, wherever it runs.
func (r *Runner) Client(i int, host *lab.Host, share load.Share, cpus ...int) load.Client {
	share.Dir, share.Executable = r.Lab.Clients[i].Dir, host.Executable(r.Options.Executable)
	client := load.Client{Name: host.Name, Share: share, Start: load.StartOn(host, cpus...)}
	if host.Remote() {
		client.Remote, client.CPUs = host, cpus
	}
	return client
}

// pinnedCPUs returns the cores that a trial's generators are pinned to; none means no pinning.
func (t Trial) pinnedCPUs() []int {
	if t.Alone() {
		return []int{LastCPU()}
	}
	return nil
}

// cpus returns the cores of client i, from 0; nil if it is not pinned.
func (p Point) cpus(i int) *load.CPUs {
	if !p.Pinned {
		return nil
	}
	return &load.CPUs{Client: allowedCPU(2 * i), Server: allowedCPU(2*i + 1)}
}

// Bounds on a generator.
const (
	// grace is how long a generator may run beyond the time of its load.
	grace = 10 * time.Second
	// slowest is the rate, in requests per second, that bounds the time of a trial that ends after a number of
	// requests.
	slowest = 200
)

// Bound returns how long a generator may take.
func (m *Measurement) Bound() time.Duration {
	slowdown := m.Runner.Options.Slowdown()
	if m.Trial.Duration > 0 {
		return m.Trial.Duration + slowdown*m.Runner.Grace
	}
	return slowdown * (time.Duration(m.Trial.Requests/slowest)*time.Second + m.Runner.Grace)
}

// Write adds the measurements to the result.
func (m *Measurement) Write(result *load.Result, reading probe.Reading) {
	got := m.Got
	got.Notes = append(got.Notes, result.Problems...)
	got.Valid = len(result.Problems) == 0 && result.Failed == 0
	m.WriteSaturated(reading)
	got.Notes = append(got.Notes, result.Notes...)
	got.Notes = append(got.Notes, Drops(reading)...)
	if m.Figures == nil {
		m.Figures = requestFigures
	}
	m.Figures(m.Got.Metrics, result)
	m.writeReading(result, reading)
	if m.Runner.Options.Counts() {
		m.WriteInstructions(result, reading)
	}
}

// WriteSaturated writes down which part was the bottleneck, and the subject's notes on its set-up.
func (m *Measurement) WriteSaturated(reading probe.Reading) {
	for i := range reading.Parts {
		if reading.Parts[i].Part == results.SaturatedBalancer {
			reading.Parts[i].Allowed = m.Running.Cores()
		}
	}
	part, why := probe.Saturated(reading.Parts, reading.Idle, float64(m.Runner.Limits.Cores))
	if len(reading.Machines) > 1 {
		part, why = probe.SaturatedMachines(reading.Machines, m.Running.Cores())
	}
	if m.Trial.Alone() {
		part, why = results.SaturatedUnknown, fmt.Sprintf(
			"saturated: unknown, for one connection keeps one core busy with all parts in turn; %.2f of %d cores idled",
			reading.Idle, m.Runner.Limits.Cores)
	}
	if m.Runner.Options.Counts() {
		part, why = results.SaturatedUnknown, "saturated: unknown, for one processor does everybody's work"
	}
	m.Got.Saturated = part
	m.Got.Notes = append(m.Got.Notes, why)
	m.Got.Notes = append(m.Got.Notes, m.Running.Notes()...)
}

// Drops describes the kinds of drops, which may explain failures.
func Drops(reading probe.Reading) []string {
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

// requestFigures writes the figures of a load that makes requests.
func requestFigures(metrics map[string]float64, result *load.Result) {
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

// cpuMetrics maps parts to the two metrics of their CPU use.
var cpuMetrics = map[results.Part]struct{ cores, perRequest string }{
	results.SaturatedBalancer: {results.BalancerCPUCores, results.BalancerCPUUsPerRequest},
	results.SaturatedClient:   {results.ClientCPUCores, results.ClientCPUUsPerRequest},
	results.SaturatedBackend:  {results.BackendCPUCores, results.BackendCPUUsPerRequest},
	probe.PartHost:            {results.BalancerHostCPUCores, results.BalancerHostCPUUsPerRequest},
	probe.PartSwitch:          {results.SwitchCPUCores, results.SwitchCPUUsPerRequest},
}

func (m *Measurement) writeReading(result *load.Result, reading probe.Reading) {
	metrics := m.Got.Metrics
	if !m.Runner.Options.Counts() {
		m.WriteCPU(result, reading)
	}
	metrics[results.IdleCPUCores] = reading.Idle
	metrics[results.ContextSwitchesPerS] = reading.ContextSwitches
	metrics[results.ListenDrops] = float64(reading.ListenDrops)
	metrics[results.ListenOverflows] = float64(reading.ListenOverflows)
	metrics[results.DeviceDrops] = float64(reading.DeviceDrops)
	if m.Datagrams {
		return
	}
	for i, server := range m.Runner.Lab.Servers {
		m.Got.Backends = append(m.Got.Backends, results.Backend{
			Name: server.Name, Address: server.IPv4.String(), Connections: reading.Connections[i]})
	}
	idle := slices.ContainsFunc(reading.Connections, func(n uint64) bool { return n == 0 })
	if idle && m.Trial.Concurrency >= len(reading.Connections) {
		m.Got.Notes = append(m.Got.Notes, "a backend had no connection at all")
	}
}

// WriteCPU writes down the CPU use of each part, in total and per request or per gigabyte (10^9 bytes).
func (m *Measurement) WriteCPU(result *load.Result, reading probe.Reading) {
	metrics := m.Got.Metrics
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

// DeviceDrops returns the number of packets lost on the links of a laboratory since it was built, by their sender.
func DeviceDrops(l *lab.Lab) (map[string]uint64, error) {
	all := map[string]uint64{}
	for _, host := range l.Hosts()[1:] {
		drops, err := host.DeviceDrops()
		if err != nil {
			return nil, err
		}
		all[host.Name] = max(drops.HostTransmit, drops.PortReceive)
		all["the switch to "+host.Name] = max(drops.PortTransmit, drops.HostReceive)
	}
	return all, nil
}

// LastCPU returns the core for the work that a load of one core leaves to other cores.
func LastCPU() int { return allowedCPU(runtime.NumCPU() - 1) }

// FirstCPU returns the core for the work of a load of one core.
func FirstCPU() int { return allowedCPU(0) }

// allowedCPU returns the number of a core of those that the bench may use, counted from 0. Loads that need more cores
// than there are do not run.
func allowedCPU(i int) int {
	all := cpus.Allowed()
	if i >= len(all) {
		return i
	}
	return all[i]
}

// FirstNice is the nice value with precedence over the machine's other programs, as if on a core of its own.
const FirstNice = -20
