// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load/transact"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// netperf's own port, where it takes orders, and the one of the connections that are
// measured. Behind a VIP both must lead to the same server.
const (
	netperfControlPort = 12865
	netperfDataPort    = 12866
)

// knownTransactions returns the experiment of the kind, and false if it is none of
// transactions.
func knownTransactions(kind string) (transactions, bool) {
	e, _ := findExperiment(kind)
	x, ok := e.(transactions)
	return x, ok
}

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

// byNetperf says whether a load of the form has netperf for its generator.
func (f Form) byNetperf() bool {
	return slices.ContainsFunc(f.Loads, func(l Load) bool { return l.Generator == transact.NetperfProgram })
}

// netperfPrograms are its client and its server, which both tell a version.
var netperfPrograms = programs{
	clients: []askedProgram{{transact.NetperfProgram, transact.Netperf{}.VersionFlag()}},
	servers: []askedProgram{{transact.NetserverProgram, transact.Netperf{}.VersionFlag()}},
}

// netperfMissing is why there is no netperf.
func netperfMissing(program string) string {
	return program + " is not installed (Debian has it in non-free); leave out generator for this program's own"
}

// netperfHere returns netperf's version on this machine, or why there is none.
func netperfHere(ctx context.Context) (version, missing string, err error) {
	for _, program := range slices.Concat(netperfPrograms.servers, netperfPrograms.clients) {
		version, err = program.version(ctx)
		if errors.Is(err, probe.ErrNotInstalled) {
			return "", netperfMissing(program.Name), nil
		}
		if err != nil {
			return "", "", err
		}
	}
	return version, "", nil
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
