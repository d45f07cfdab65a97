// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// dnsMostLost is the maximum loss of queries in a valid trial, in per cent.
const dnsMostLost = 1.0

// dnsTry is how long a query may take when a program on the balancer's host tries a subject.
const dnsTry = time.Second

// dnsTrial is one trial of the DNS experiment while its subject runs.
type dnsTrial struct {
	runner  *bench.Runner
	trial   bench.Trial
	running subject.Running
	got     *results.Trial
	// servers are the name servers that serve in this trial.
	servers []*NameServer
	// used is the CPU time of their processes while the load ran, and relayed that of the subject's relays, if it has
	// any.
	used, relayed cpuTimes
}

func (d *dnsTrial) conduct(ctx context.Context) error {
	if err := d.ready(ctx); err != nil {
		return fmt.Errorf("the subject came up, but does not serve: %w", err)
	}
	if err := d.measurement().Quiet(ctx); err != nil {
		return err
	}
	by := settingsOf(d.trial.By)
	probing := probe.New(d.runner.Lab)
	drive := load.Drive{
		Kind: by.kind(), Clients: d.clients(), Bound: d.trial.Duration + by.timeout() + d.runner.Grace,
		// The readings of the processes' times enclose the interval that the times are divided by.
		Before: func() error { return errors.Join(d.readUsed(), probing.Begin()) },
		After:  func() error { return errors.Join(probing.End(), d.readUsed()) },
	}
	result, err := drive.Run(ctx)
	if err != nil {
		return err
	}
	d.writeCounts(result)
	d.writeReading(result, d.trial.Read(probing))
	return nil
}

// measurement returns the trial as the measurement of other kinds.
func (d *dnsTrial) measurement() *bench.Measurement {
	return &bench.Measurement{Runner: d.runner, Trial: d.trial, Running: d.running, Got: d.got}
}

// ready returns nil once every server answers at its present addresses, and every generator's host gets an answer
// through the subject.
func (d *dnsTrial) ready(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, server := range d.servers {
		group.Go(func() error {
			has, err := hasTask.On(ctx, server.host, d.runner.Lab.VIP4)
			if err != nil || !has {
				return err
			}
			return server.WaitFor(ctx, server.host, netip.AddrPortFrom(d.runner.Lab.VIP4, Port))
		})
	}
	for i, client := range d.runner.Generators(d.trial.Point, settingsOf(d.trial.By).Generators[0]) {
		if d.trial.Local() && i > 0 {
			break // the generators of the host share one address
		}
		group.Go(func() error {
			return bench.Poll(ctx, nameServerTimeout, func() error {
				if d.trial.Local() {
					return d.runner.TryFromBalancer(ctx,
						load.DNSPerf{Question: dnsQuestion, Once: true, Timeout: dnsTry},
						load.Share{Target: d.running.Target(i), Concurrency: 1})
				}
				return askName(ctx, client, d.running.Target(i))
			})
		})
	}
	return group.Wait()
}

// hasTask reports whether a host has an address.
var hasTask = lab.NewTask("has-address", func(_ context.Context, h *lab.Host, address netip.Addr) (has bool,
	err error) {
	err = h.Do(func() error {
		all, err := netdump.Consistent(func() ([]netlink.Addr, error) {
			return netlink.AddrList(nil,
				netlink.FAMILY_V4)
		})
		has = slices.ContainsFunc(all, func(a netlink.Addr) bool { return a.IP.Equal(address.AsSlice()) })
		return err
	})
	if err != nil {
		return false, fmt.Errorf("listing the addresses of %s: %w", h.Name, err)
	}
	return has, nil
})

func (d *dnsTrial) clients() []load.Client {
	by := settingsOf(d.trial.By)
	var clients []load.Client
	for i, host := range d.runner.Generators(d.trial.Point, by.Generators[0]) {
		share := load.Share{Target: d.running.Target(i), Concurrency: by.Clients[0], Duration: d.trial.Duration}
		clients = append(clients, d.runner.Client(i, host, share))
	}
	return clients
}

// cpuTimes holds the CPU time of processes after the first reading, and their use between the two readings after the
// second.
type cpuTimes []time.Duration

func (s *cpuTimes) read(now []time.Duration) {
	first := *s
	*s = now
	for i := range first {
		(*s)[i] -= first[i]
	}
}

// readUsed reads the CPU time of the name servers, and of the subject's relays.
func (d *dnsTrial) readUsed() error {
	used := make([]time.Duration, len(d.servers))
	err := lab.Each(d.runner.Lab.Servers[:len(d.servers)], func(h *lab.Host) (err error) {
		i := slices.Index(d.runner.Lab.Servers, h)
		used[i], err = d.servers[i].Process.CPUTime()
		return err
	})
	if err != nil {
		return err
	}
	d.used.read(used)
	relaying, ok := d.running.(subject.Relaying)
	if !ok {
		return nil
	}
	relayed, err := relaying.CPUTimes()
	if err == nil {
		d.relayed.read(relayed)
	}
	return err
}

// writeCounts writes down the generators' counts, and whether the trial is valid.
func (d *dnsTrial) writeCounts(result *load.Result) {
	got, metrics := d.got, d.got.Metrics
	metrics[results.Queries] = float64(result.Requests)
	metrics[results.QueriesPerSecond] = result.PerSecond
	metrics[results.Failed] = float64(result.Failed)
	metrics[results.Lost] = float64(result.Lost)
	metrics[results.DurationSeconds] = result.Duration.Seconds()
	lost := 0.0
	if all := result.Requests + result.Failed + result.Lost; all > 0 {
		lost = float64(result.Lost) / float64(all) * 100
		metrics[results.LostPercent] = lost
	}
	if result.Requests > 0 {
		milliseconds := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
		metrics[results.LatencyMsMin] = milliseconds(result.Waits.Min)
		metrics[results.LatencyMsMean] = milliseconds(result.Waits.Mean)
		metrics[results.LatencyMsMax] = milliseconds(result.Waits.Max)
	}
	got.Notes = append(got.Notes, result.Problems...)
	if lost > dnsMostLost {
		got.Notes = append(got.Notes, fmt.Sprintf("%d queries, %.1f %% of all, had no answer within %v", result.Lost,
			lost, settingsOf(d.trial.By).timeout()))
	}
	got.Valid = len(result.Problems) == 0 && result.Failed == 0 && lost <= dnsMostLost
}

// writeReading writes down the use of the machine, and how many queries reached each backend.
func (d *dnsTrial) writeReading(result *load.Result, reading probe.Reading) {
	got, metrics := d.got, d.got.Metrics
	m := d.measurement()
	m.WriteSaturated(reading)
	if d.runner.Options.Counts() {
		m.WriteInstructions(result, reading)
	} else {
		m.WriteCPU(result, reading)
	}
	if reading.DatagramDrops > 0 {
		got.Notes = append(got.Notes, fmt.Sprintf("%d datagrams found a full socket (UdpRcvbufErrors)",
			reading.DatagramDrops))
	}
	got.Notes = append(got.Notes, bench.Drops(reading)...)
	metrics[results.IdleCPUCores] = reading.Idle
	metrics[results.ContextSwitchesPerS] = reading.ContextSwitches
	metrics[results.DeviceDrops] = float64(reading.DeviceDrops)
	metrics[results.DatagramDrops] = float64(reading.DatagramDrops)
	maps.Copy(metrics, hostShares(reading.Machine, reading.Cores()))
	d.writeBackends(reading)
}

// hostShares returns the machines' CPU use, in per cent of all their cores. The kernel counts some of it by ticks and
// idle time by the clock, so the sum may differ from 100.
func hostShares(machine probe.Machine, cores float64) map[string]float64 {
	return map[string]float64{
		results.HostUserPercent: machine.User / cores * 100, results.HostSystemPercent: machine.System / cores * 100,
		results.HostSoftirqPercent: machine.Softirq / cores * 100, results.HostIdlePercent: machine.Idle / cores * 100,
	}
}

func (d *dnsTrial) writeBackends(reading probe.Reading) {
	all := 0.0
	for i, server := range d.servers {
		percent := d.used[i].Seconds() / reading.Interval.Seconds() * 100
		all += percent
		d.got.Backends = append(d.got.Backends, results.Backend{
			Name: server.host.Name, Address: server.host.IPv4.String(), Queries: reading.Datagrams[i],
			CPUPercent: percent})
		if reading.Datagrams[i] == 0 {
			d.got.Notes = append(d.got.Notes, fmt.Sprintf("no query reached %s", server.host.Name))
		}
	}
	d.got.Metrics[results.NameServerCPUPercent] = all / float64(len(d.servers))
	if percent, ok := d.relayed.busyPercent(reading.Interval); ok {
		d.got.Metrics[results.RelayCPUPercent] = percent
	}
}

// idleProcess is the share of a core below which a process counts as idle: each server also has a relay for TCP.
const idleProcess = 0.005

// busyPercent returns the mean CPU use of the processes that were not idle, in per cent of one core; ok is false if all
// were.
func (s cpuTimes) busyPercent(interval time.Duration) (percent float64, ok bool) {
	busy := 0
	for _, used := range s {
		if share := used.Seconds() / interval.Seconds(); share >= idleProcess {
			percent += share * 100
			busy++
		}
	}
	if busy == 0 {
		return 0, false
	}
	return percent / float64(busy), true
}
