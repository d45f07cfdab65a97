// SPDX-License-Identifier: Apache-2.0

// Package bulk is the load that transfers as many bytes as possible, by iperf3.
package bulk

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// firstPort is the port of the first iperf3 server. Each client has a service of its own, at the port after that of the
// previous client: an iperf3 server serves one client at a time, and a client's connections (one for control, the
// others for data) must all reach the same server.
const firstPort = 5201

// services returns one service for each client, with one server each.
func services(l *lab.Lab) []subject.Service {
	var services []subject.Service
	for i := range l.Clients {
		n := i % len(l.Servers)
		services = append(services, subject.Service{Port: uint16(firstPort + i), Servers: l.Servers[n : n+1]})
	}
	return services
}

// Kind is the load.
var Kind bench.Experiment = kind{}

type kind struct{ load.IPerf3 }

func (k kind) Check(l bench.Load, _ bench.Form, at bench.Path, fail bench.FailFunc) {
	l.CheckConcurrency(at, 1, fail) // with less, some clients stay idle
	l.CheckEnd(at, k.IPerf3, fail)
	l.CheckRepeats(at, fail)
}

func (k kind) SkipReason(p bench.Point, limits probe.Limits) string {
	// The first client has the most connections if the concurrency does not divide evenly.
	reason := cmp.Or(p.Subject.SkipReason(p.Params, p.Concurrency, limits), k.IPerf3.SkipReason(p.Share(0), limits))
	if need := 2 * p.Participants(); reason == "" && p.Pinned && limits.Cores < need {
		reason = fmt.Sprintf("pinned: a core for each client and each server are %d, and this machine has %d", need,
			limits.Cores)
	}
	return reason
}

func (kind) Params(p bench.Point) map[string]any {
	all := p.EndParams()
	maps.Copy(all, map[string]any{"streams": p.Concurrency, "pinned": bench.YesNo(p.Pinned),
		"offloads": bench.YesNo(p.Offloads)})
	return all
}

func (k kind) Programs() bench.Programs {
	program := []bench.Program{{Name: k.Name(), Flag: k.VersionFlag()}}
	return bench.Programs{Clients: program, Servers: program}
}

func (kind) OnMachines() string { return "" }
func (kind) Noun() string       { return "streams" }

// bulkNotes are the notes on bulk loads.
var bulkNotes = []string{
	"Gbit/s are what iperf3's servers received, the sum of all clients'; each client sends over all its streams to one server, " +
		"behind a port of its own. Retransmits are the clients' (TCP segments)",
}

func (kind) Notes(bench.Form) []string { return bulkNotes }

func (kind) Services(l *lab.Lab, _ bench.Point) []subject.Service { return services(l) }

// Prepare starts an iperf3 server for each client and waits until it serves. The servers are stopped with the
// laboratory.
func (kind) Prepare(ctx context.Context, r *bench.Runner) error {
	for _, service := range services(r.Lab) {
		server := service.Servers[0]
		at := netip.AddrPortFrom(server.IPv4, service.Port)
		command := load.IPerf3{}.Server(service.Port)
		process, err := server.Start(context.WithoutCancel(ctx), lab.Command{Path: command[0], Args: command[1:]})
		if err != nil {
			return err
		}
		err = bench.PollAlive(ctx, process, func() error { return transfer(ctx, server, at) })
		if err != nil {
			return fmt.Errorf("starting iperf3 on %s: %w", server.Name, err)
		}
	}
	return nil
}

// transfer sends a little data from a host of the laboratory to an iperf3 server, and checks that it arrived.
func transfer(ctx context.Context, from *lab.Host, to netip.AddrPort) error {
	var stdout bytes.Buffer
	command := load.IPerf3{}.Trial(to)
	process, err := from.Start(ctx, lab.Command{Path: command[0], Args: command[1:], Stdout: &stdout})
	if err != nil {
		return bench.GiveUp(err)
	}
	select {
	case <-process.Done():
	case <-ctx.Done():
		return errors.Join(ctx.Err(), process.Stop(context.WithoutCancel(ctx)))
	}
	if err := (load.IPerf3{}).Arrived(stdout.Bytes()); err != nil {
		return fmt.Errorf("%s sending to %s: %w", from.Name, to, err)
	}
	return nil
}

func (k kind) Conduct(ctx context.Context, r *bench.Runner, t bench.Trial, running subject.Running,
	blank results.Trial) ([]results.Trial, error) {
	m := &bench.Measurement{Runner: r, Trial: t, Running: running, Got: &blank, Kind: k.IPerf3, Figures: figures}
	err := m.Measure(ctx, func(ctx context.Context) error {
		return m.EachClient(ctx, func(ctx context.Context, client *lab.Host, i int) error {
			return transfer(ctx, client, running.Target(i))
		})
	})
	return []results.Trial{blank}, err
}

// figures writes the generators' measurements to metrics.
func figures(metrics map[string]float64, result *load.Result) {
	metrics[results.GigabitsPerSecond] = result.Transfer.BitsPerSecond / 1e9
	metrics[results.TransferredGigabytes] = float64(result.Transfer.Bytes) / 1e9
	metrics[results.Retransmits] = float64(result.Transfer.Retransmits)
	metrics[results.DurationSeconds] = result.Duration.Seconds()
}

func (kind) Line(got []results.Trial) string {
	return bench.LineOf(got, func(m map[string]float64) string {
		return fmt.Sprintf("%.2f Gbit/s, %.0f retransmits", m[results.GigabitsPerSecond], m[results.Retransmits])
	})
}
