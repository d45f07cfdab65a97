// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/bench/load/transact"
	"github.com/jeoul/jeoul/internal/bench/probe"
	"github.com/jeoul/jeoul/internal/bench/subject"
	"github.com/jeoul/jeoul/internal/lab"
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
		fail(at.to("concurrency"), "through a balancer netperf is used with one connection only, for each of its streams needs services of its own; use [1]")
	}
	if l.Duration%time.Second != 0 {
		fail(at.to("duration"), "%v is not possible; netperf knows whole seconds only", l.Duration)
	}
}

// netperfObstacle says that netperf is missing.
func netperfObstacle() string {
	for _, program := range []string{transact.NetperfProgram, transact.NetserverProgram} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not installed (Debian has it in non-free); leave out generator for this program's own"
		}
	}
	return ""
}

// netperfVersion returns netperf's version, by its name; nil where it is missing.
func netperfVersion(ctx context.Context) map[string]string {
	if netperfObstacle() != "" {
		return nil
	}
	version, err := probe.Version(ctx, transact.NetperfProgram, transact.Netperf{}.VersionFlag())
	if err != nil {
		return nil
	}
	return map[string]string{transact.NetperfProgram: version}
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
	asked := slices.ContainsFunc(r.form.Loads, func(l Load) bool { return l.Generator != "" })
	if !asked || r.netservers || netperfObstacle() != "" {
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
	return poll(ctx, readyBound, func() error { return probe.Listening(ctx, m.runner.lab.Clients[0], m.running.Target(0)) })
}
