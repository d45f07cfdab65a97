// SPDX-License-Identifier: Apache-2.0

// Package flood is the load of open connections, and some new ones, while a subject is flooded.
package flood

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/web"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/flood"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Kind is the load.
var Kind bench.Experiment = kind{}

func (kind) Name() string { return "synflood" }

func (kind) Check(l bench.Load, form bench.Form, at bench.Path, fail bench.FailFunc) {
	l.CheckConcurrency(at, form.Lab.Clients, fail)
	l.CheckRepeats(at, fail)
	if l.Requests != 0 || l.RequestsEach != 0 || l.MinRequests != 0 || l.Pinned || l.Offloads {
		fail(at, "a flood takes no requests, requests_each, min_requests, pinned or offloads")
	}
	if l.Duration < floodMinPhase || l.Duration > floodMaxPhase {
		fail(at.To("duration"), "%v is not possible; use %v to %v, for each of the two phases", l.Duration,
			floodMinPhase, floodMaxPhase)
	}
	if form.Lab.Clients != 1 {
		fail(at, "a flood has one client, which shares one core with the servers: set clients in lab to 1")
	}
	if form.Web.FileBytes < 1 || form.Web.FileBytes > load.SteadyMaxFile {
		fail(at, "a flood's client asks for a small file: set file_bytes in web to 1 to %d", load.SteadyMaxFile)
	}
	if slices.ContainsFunc(form.Loads, func(other bench.Load) bool { return other.Kind != l.Kind }) {
		fail(at.To("kind"), "a flood's laboratory is not that of other loads; give it a suite of its own")
	}
	of := settingsOf(l)
	if of == nil {
		fail(at.To("flood"), "missing; say at least packets and every")
		return
	}
	checkFlood(l, *of, at.To("flood"), fail)
}

func checkFlood(l bench.Load, f Flood, at bench.Path, fail bench.FailFunc) {
	if !slices.Contains(flood.Kinds(), f.Packets) {
		fail(at.To("packets"), "%q is not possible; use one of %v", f.Packets, flood.Kinds())
	}
	if f.Rate < 0 || f.Rate > flood.MaxRate {
		fail(at.To("rate"), "%d is not possible; use 1 to %d packets a second, or 0 for as many as one core sends",
			f.Rate, flood.MaxRate)
	}
	if f.beyond() != beyondDrop && f.Beyond != beyondPass {
		fail(at.To("beyond"), "%q is not possible; use %s or %s", f.Beyond, beyondDrop, beyondPass)
	}
	if f.Packets == flood.UDP && f.beyond() != beyondDrop {
		fail(at.To("beyond"), "no server answers the datagrams of a flood; use %s", beyondDrop)
	}
	if f.New < 0 || f.New > floodMaxNew {
		fail(at.To("new"), "%d is not possible; use 0 to %d", f.New, floodMaxNew)
	}
	if f.Timeout < 0 || f.Timeout > load.SteadyMaxTimeout {
		fail(at.To("patience"), "%v is not possible; use up to %v, or nothing for %v", f.Timeout,
			load.SteadyMaxTimeout, load.SteadyTimeout)
	}
	for i, connections := range l.Concurrency {
		s := load.Steady{
			Target: netip.AddrPortFrom(netip.IPv4Unspecified(), web.Port), Path: "/", FileBytes: 1,
			Connections: connections, Every: f.Every, New: f.New, Phases: floodPhases(l.Duration),
		}
		if err := s.Check(); err != nil {
			fail(at.To("every"), "%v (concurrency[%d])", err, i)
		}
	}
}

func (kind) SkipReason(p bench.Point, limits probe.Limits) string {
	if reason := p.Subject.SkipReason(p.Params, p.Concurrency, limits); reason != "" {
		return reason
	}
	files := uint64(p.Concurrency + 64)
	switch {
	case limits.Cores < 2:
		return "the flood and the connections need a core each, and this machine has one"
	case files > limits.OpenFiles:
		return fmt.Sprintf("%d connections: a client needs %d open files, and a process may have %d here",
			p.Concurrency, files, limits.OpenFiles)
	case settingsOf(p.By).Packets == flood.UDP && slices.Contains([]string{"haproxy-tcp", "haproxy-http"}, p.Subject.Name()):
		return "HAProxy balances no UDP"
	}
	return ""
}

func (kind) Params(p bench.Point) map[string]any {
	all := map[string]any{
		"concurrency":      p.Concurrency,
		"duration_seconds": p.Duration.Seconds(),
		"flood":            string(settingsOf(p.By).Packets),
		"beyond":           settingsOf(p.By).beyond(),
		"every_ms":         float64(settingsOf(p.By).Every) / float64(time.Millisecond),
		"new_per_second":   settingsOf(p.By).New,
	}
	if settingsOf(p.By).Rate > 0 {
		all["rate"] = settingsOf(p.By).Rate
	}
	if settingsOf(p.By).Timeout > 0 {
		all["patience_seconds"] = settingsOf(p.By).Timeout.Seconds()
	}
	return all
}

func (kind) Programs() bench.Programs { return bench.Programs{Servers: []bench.Program{web.Program}} }
func (f kind) OnMachines() string     { return bench.NamespacesOnly(f) }

// floodNotes replace frameNotes.
var floodNotes = []string{
	"every device has a queue for each core, and each core its own (XPS; XDP does so by itself), and no queueing discipline: what one core sends is worked on " +
		"by it from device to device. TSO is off everywhere, transmit checksum offload on all hosts and towards the balancer",
	"core 0 has the flood: its sender, the switch's part of it, the balancer's packet work for it, and where it passes the servers'. The last core has the client, " +
		"the servers, the processes of the balancer (HAProxy, nginx, jeoul's daemon) and all packet work for the connections. All of them have the nice value -20, so that what else runs on the machine waits",
	"the client is an open loop: a request's latency counts from when it was to be sent (HdrHistogram, three digits). Losing none and a p99 under flood of at most twice the quiet one is the target",
	"a flood's packets are made and sent in the kernel (BPF_PROG_TEST_RUN with live frames), from sources taken by chance from " + "198.19.0.0/16" +
		", which is routed to the attacker and dropped there: none of it leaves the laboratory",
	"with beyond = drop, what the balancer sends on or answers is counted and dropped at the switch's port behind it, so that it is the balancer that is weighed; " +
		"with beyond = pass it goes on, and servers answer SYNs with cookies (tcp_syncookies = 2), on core 0",
}

func (kind) Notes(bench.Form) []string { return nil }

// Demand requests an attacker, and a queue of each device for each core.
func (kind) Demand(_ bench.Form, spec *lab.Spec) { spec.Attacker, spec.CoreQueues = true, true }

func (kind) FrameNotes() []string { return floodNotes }

func (kind) Prepare(ctx context.Context, r *bench.Runner) error { return web.Start(ctx, r) }

func (kind) Services(l *lab.Lab, p bench.Point) []subject.Service {
	services := web.Services(l)
	services[0].UDP = settingsOf(p.By).Packets == flood.UDP
	return services
}

func (kind) Line(got []results.Trial) string {
	if t := got[0]; t.Valid {
		m := t.Metrics
		return fmt.Sprintf(
			"%.0f of %.0f connections lost, p99 %.2f → %.2f ms, %.0f new failed, %.0f packets/s offered, %.0f handled",
			m[results.EstablishedLost], m[results.Established], m[results.QuietLatencyMsP99],
			m[results.FloodLatencyMsP99],
			m[results.FloodNewFailed], m[results.FloodOfferedPerSecond], m[results.FloodHandledPerSecond])
	}
	return "not valid: " + got[0].Notes[0]
}
