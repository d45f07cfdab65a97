// SPDX-License-Identifier: Apache-2.0

// Package wire is the load of packets: client ports and server ports without sockets, and a subject between them.
package wire

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// servicePort is the destination port of connections.
const servicePort = 80

// Kind is the load.
var Kind bench.Experiment = kind{}

func (kind) Name() string { return "wire" }

func (kind) SkipReason(p bench.Point, limits probe.Limits) string {
	// How many connections a subject can hold is the figure of a capacity load, and no reason to skip it. Connections
	// that a load sets up also stay open, until their rate has been measured.
	open := 1
	if settingsOf(p.By).Load == wire.Setup {
		open = max(settingsOf(p.By).connections(), 1)
	}
	if reason := p.Subject.SkipReason(p.Params, open, limits); reason != "" {
		return reason
	}
	switch {
	case limits.Cores < 2:
		return "packets, with the tester's sender, and the processes of what is weighed need a core each, and this machine has one"
	case settingsOf(p.By).udp() && !p.Subject.Can().UDP:
		return p.Subject.Name() + " balances no UDP"
	}
	return ""
}

func (kind) Params(p bench.Point) map[string]any {
	w := settingsOf(p.By)
	all := map[string]any{paramWire: string(w.Load), "clients": p.Form.Lab.Clients}
	switch {
	case w.Ladder != nil:
		// Each step has its own rate as another parameter.
		all[paramSteps] = fmt.Sprintf("%d to %d by %d", w.Ladder.From, w.Ladder.To, w.Ladder.Step)
	case w.Search != nil:
		all[paramOffered] = offeredSearch
	case w.Rate > 0:
		all[paramOffered] = w.Rate
	default:
		all[paramOffered] = offeredMost
	}
	if n := w.connections(); n > 0 {
		all["connections"] = n
	}
	if w.Bursts > 1 {
		all["bursts"] = w.Bursts
	}
	if w.Pause > 0 {
		all["pause_seconds"] = w.Pause.Seconds()
	}
	for name, value := range map[string]int{"request_bytes": w.Request, "response_bytes": w.Response,
		"frame_bytes": w.Frame} {
		if value > 0 {
			all[name] = value
		}
	}
	if w.SYNFlood != nil {
		all["beside"] = "a SYN flood"
	}
	return all
}

// Noun returns the noun of the concurrency.
func (kind) Noun() string { return "connections" }

func (kind) Programs() bench.Programs { return bench.Programs{} }
func (w kind) OnMachines() string     { return bench.NamespacesOnly(w) }

// wireNotes replace frameNotes.
var wireNotes = []string{
	"clients and servers are eBPF programs on the hosts' devices (jeoul wire): packets without sockets. The switch forwards in native XDP, " +
		"by MAC address, so every subject's packets have the same way: client, switch, balancer, switch, server, and, where it answers directly, switch, client",
	"a subject that works in XDP gets frames; one that works in the kernel, or is a process, gets socket buffers, which the devices make of them, and make frames of what it sends",
	"neighbours are real: the kernel behind each port answers ARP, nothing is preset. What clients send, they send to the balancer's MAC address, or, as direct, to the servers' in turn",
	"client number N has the addresses 198.19.N.1 to 198.19.N.254, to which the balancer has a route through it",
	"the sender is tied to core 0, and all packet work follows it there, the tester's, the switch's and the balancer's; the balancer's processes have the last core, " +
		"with the nice value -20. A rate is of one core that does everything; the balancer's CPU is its own, as the kernel polls its device (tracepoint napi_poll)",
	"offered is the rate that the tester was asked for, begun what it did; established are completed handshakes. What came late, twice, or from nobody is counted apart",
	"the kernel sends at most 256 frames into a device's queue before it drops them; what does not fit there is lost, and sent again by the tester after a second",
	"jeoul's tables have room for a quarter more flows than the longest step begins (flows.limit), so that what a step leaves behind is not the limit of the next",
}

func (kind) Notes(bench.Form) []string { return nil }

func (kind) Demand(_ bench.Form, spec *lab.Spec) { spec.Wire = true }

func (kind) FrameNotes() []string { return wireNotes }

// Complete sets the number of connections of a load without one: a packet-level load has one point.
func (kind) Complete(l *bench.Load) {
	if settingsOf(*l) != nil && len(l.Concurrency) == 0 {
		l.Concurrency = []int{settingsOf(*l).connections()}
	}
}

// Prepare routes the clients' addresses. The routes end with the laboratory.
func (kind) Prepare(_ context.Context, r *bench.Runner) error {
	for i, client := range r.Lab.Clients {
		if err := r.Lab.Balancer.RouteThrough(client, wireSources(i), true); err != nil {
			return err
		}
	}
	return nil
}

func (kind) Services(l *lab.Lab, p bench.Point) []subject.Service {
	return []subject.Service{{Port: servicePort, UDP: settingsOf(p.By).udp(), Servers: l.Servers}}
}

// ChangeSetup gives a subject that stores flows room for those of its longest step and a quarter more, because closed
// flows stay stored for a while. The room is never less than the subject's default.
func (kind) ChangeSetup(_ *bench.Runner, p bench.Point, setup *subject.Setup) {
	room := maxFlows(p.Form)
	setup.Flows = max(lb.DefaultFlowLimit, room+room/4)
}

func (kind) Line(got []results.Trial) string {
	var valid []results.Trial
	for _, t := range got {
		if t.Valid {
			valid = append(valid, t)
		}
	}
	if len(valid) == 0 {
		return "not valid: " + got[0].Notes[0]
	}
	best := slices.MaxFunc(valid, func(a, b results.Trial) int {
		return int(a.Metrics[wireRate(a)] - b.Metrics[wireRate(b)])
	})
	failed := 0.0
	for _, t := range valid {
		failed += t.Metrics[results.Failed]
	}
	return fmt.Sprintf("%d of %d steps, at most %.0f %s/s (offered %.0f), %.0f failed, balancer %.2f µs for each",
		len(valid), len(got), best.Metrics[wireRate(best)], strings.TrimSuffix(wireRate(best), "_per_second"),
		best.Metrics[results.OfferedPerSecond], failed,
		best.Metrics[results.BalancerCPUUsPerConnection])
}

// wireKinds lists the loads that a suite can request. A mix needs a distribution of sizes, which a suite cannot have
// yet.
func wireKinds() []wire.Kind {
	return slices.DeleteFunc(wire.Kinds(), func(k wire.Kind) bool { return k == wire.Mix })
}
