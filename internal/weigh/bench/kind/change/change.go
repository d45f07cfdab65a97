// SPDX-License-Identifier: Apache-2.0

// Package change is the load that holds connections through a balancer while its backends or the balancer itself
// change, and counts the losses of each event.
package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjects"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/numbered"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Kind is the load.
var Kind bench.Experiment = kind{}

func (kind) Name() string { return "change" }

func (kind) Check(l bench.Load, form bench.Form, at bench.Path, fail bench.FailFunc) {
	l.CheckConcurrency(at, form.Lab.Clients, fail)
	l.CheckRepeats(at, fail)
	if l.Duration != 0 || l.Requests != 0 || l.RequestsEach != 0 || l.MinRequests != 0 || l.Pinned || l.Offloads {
		fail(at, "change ends when its events are over; it has none of duration, requests, requests_each, min_requests, pinned and offloads")
	}
	checkEvents(l, form, at, fail)
	settingsOf(l).checkValues(at, fail)
	checkBackends(l, form, at, fail)
	for _, s := range form.Subjects {
		if known, ok := subjects.Find(s.Name); ok && !known.Can().Changes {
			fail(at, "%s has no backends that could change, or speaks HTTP only", s.Name)
		}
	}
}

// checkValues checks the values for the events, and for the other traffic.
func (c Changes) checkValues(at bench.Path, fail bench.FailFunc) {
	for i, name := range c.Events {
		if !slices.Contains(eventNames(), name) {
			fail(at.To("changes", "events", i), "unknown event %q: use some of %s", name,
				strings.Join(eventNames(), ", "))
		}
	}
	happen := c.Events
	if len(happen) == 0 {
		happen = eventNames()
	}
	needed := func(event string) bool { return event == "" || slices.Contains(happen, event) }
	for _, v := range []struct {
		name, event string
		value, most int
	}{
		{"flaps", "flap", c.Flaps, 10_000}, {"reloads", "reload", c.Reloads, 10_000},
		{"new_per_second", "", c.NewPerSecond, 10_000},
		{"ports", "share", c.Ports, maxPorts}, {"reused", "", c.Reused, maxReused},
		{"restarts", "restart", c.Restarts, 1000}, {"upgrades", "upgrade", c.Upgrades, 1000},
		{"kills", "kill", c.Kills, 1000},
	} {
		if needed(v.event) && (v.value < 1 || v.value > v.most) {
			fail(at.To("changes", v.name), "%d is not possible; use 1 to %d", v.value, v.most)
		}
	}
	c.checkProxied(happen, at, fail)
	if c.NumberedPerSecond < 0 || c.NumberedPerSecond > numbered.MaxRate {
		fail(at.To("changes", "numbered_per_second"), "%d is not possible; use 0 to %d", c.NumberedPerSecond,
			numbered.MaxRate)
	}
	for _, v := range []struct {
		name, event string
		value       time.Duration
	}{{"lap", "", c.Lap}, {"quiet", "quiet", c.Quiet}, {"silence", "silent", c.Silence}, {"dead", "kill", c.Dead},
		{"fault", "dies", c.Fault}, {"fault", "hangs", c.Fault}} {
		if needed(v.event) && (v.value < minTime || v.value > maxTime) {
			fail(at.To("changes", v.name), "%v is not possible; use %v to %v", v.value, minTime, maxTime)
		}
	}
	for name, value := range map[string]time.Duration{"pace": c.pace(), "patience": c.timeout()} {
		if value < minTime || value > maxTime {
			fail(at.To("changes", name), "%v is not possible; use %v to %v", value, minTime, maxTime)
		}
	}
	if c.Check.on() || needed("dies") || needed("hangs") {
		c.Check.checkValues(at.To("changes", "check"), fail)
	}
}

// SkipReason accepts every point of which the subject can carry a part: see connections.
func (e kind) SkipReason(p bench.Point, limits probe.Limits) string {
	if reason := cmp.Or(p.Form.RouterSkipReason(), p.Subject.SkipReason(p.Params, 1, limits)); reason != "" {
		return reason
	}
	const spare = 200
	each := bench.Part(p.Concurrency, p.Form.Lab.Clients, 0)
	switch files := uint64(each + settingsOf(p.By).Reused + spare); {
	case files > limits.OpenFiles:
		return fmt.Sprintf("%d connections per client: it needs %d open files, and a process may have %d here", each,
			files, limits.OpenFiles)
	case each+settingsOf(p.By).Ports > limits.LocalPorts:
		return fmt.Sprintf("%d connections and %d ports per client: a client has %d local ports here", each,
			settingsOf(p.By).Ports, limits.LocalPorts)
	}
	return ""
}

func (kind) Params(p bench.Point) map[string]any {
	return map[string]any{"concurrency": p.Concurrency}
}

// Programs returns none: servers and clients are parts of jeoul.
func (kind) Programs() bench.Programs { return bench.Programs{} }
func (e kind) OnMachines() string     { return bench.NamespacesOnly(e) }

func (kind) Notes(f bench.Form) []string {
	notes := []string{
		fmt.Sprintf("an event is over when every connection was answered since its last change, or broke; %d UDP sockets a client are kept and ask every %v, other queries have a socket of their own, and an answer may take %v",
			udpFlowsEach, udpPace, udpTimeout),
		"backends that leave go on running: a balancer that sends them what they are used to get breaks nothing by that",
		"a process that is killed gets SIGKILL, and another one is started after the time that the suite says; addresses and rules that the laboratory has set up for it stay",
		"a host that falls silent has its link taken down at the switch, and none of its connections when it is back, as after a crash",
	}
	for _, l := range f.Loads {
		asked := fmt.Sprintf(
			"each connection is held open and asked over every %v; it must be answered within %v by the same server over the same connection, or it is broken, and another is opened in its place",
			settingsOf(l).pace(), settingsOf(l).timeout())
		reused := fmt.Sprintf(
			"connections from ports that are used again are ended by the client's reset, the server's reset and FIN in turn; a SYN counts as lost if the kernel had to send another, or none was answered within %v", settingsOf(l).timeout())
		for _, note := range []string{asked, reused} {
			if !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
		notes = append(notes, settingsOf(l).Check.notes()...)
		notes = append(notes, settingsOf(l).proxyNotes()...)
		if settingsOf(l).NumberedPerSecond > 0 {
			notes = append(notes,
				fmt.Sprintf("numbered packets are UDP datagrams of the first client, from %d ports; each server's device counts them by their numbers where they come in (TC ingress), and drops them; their sender has the CPU first (nice -20), and leaves out what it could not send for 50 ms", numberedFlows),
				"the switch's port to the balancer counts which numbered packets go to the balancer and come back (TC egress and ingress), so that each that is missing has a place")
		}
	}
	return notes
}

// Prepare starts the servers and the proxies in front of them, and waits until each answers.
func (kind) Prepare(ctx context.Context, r *bench.Runner) (err error) {
	proxies, servers := proxied(r.Form, r.Lab.Servers)
	kept := bench.LabState[kept](r, "live servers")
	kept.live, err = live.StartServers(ctx, servers, proxies, r.Options.Executable, changePort, checkPort)
	if err != nil {
		return err
	}
	if err := startProxies(ctx, r, proxies, servers); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, server := range r.Lab.Servers {
		group.Go(func() error {
			return awaitLive(ctx, r, server)
		})
	}
	return group.Wait()
}

// Services returns one service, with all backends but the last. An event adds that one.
func (kind) Services(l *lab.Lab, p bench.Point) []subject.Service {
	backends := settingsOf(p.By).backends(l.Servers)
	return []subject.Service{{Port: changePort, UDP: settingsOf(p.By).Proxies == 0,
		Servers: slices.Clone(backends[:len(backends)-1]), Check: settingsOf(p.By).Check.subject()}}
}

func (kind) Line(got []results.Trial) string {
	var words []string
	for _, t := range got {
		word := fmt.Sprint(t.Params[paramEvent], " ")
		switch beyond, ok := t.Metrics[results.FlowsMovedBeyondPercent]; {
		case !t.Valid && len(got) == 1:
			word = "not valid: " + t.Notes[0]
		case !t.Valid:
			word += "not valid"
		case ok:
			word += fmt.Sprintf("%.2f %%", beyond)
		case t.Metrics[results.FaultSeconds] > 0:
			word += fmt.Sprintf("%.0f (%.0f new ones failed)", t.Metrics[results.Broken],
				t.Metrics[results.InFlight]+t.Metrics[results.NewFailedBefore]+t.Metrics[results.NewFailedAfter])
		case t.Metrics[results.LostSYNs] > 0:
			word += fmt.Sprintf("%.0f (%.0f SYNs lost)", t.Metrics[results.Broken], t.Metrics[results.LostSYNs])
		default:
			word += fmt.Sprintf("%.0f", t.Metrics[results.Broken])
		}
		words = append(words, word)
	}
	return "broken by " + strings.Join(words, ", ")
}

// Conduct opens the connections and runs one event after another.
func (kind) Conduct(ctx context.Context, r *bench.Runner, t bench.Trial, running subject.Running,
	blank results.Trial) (all []results.Trial, err error) {
	changing, ok := running.(subject.Changing)
	if !ok {
		return nil, fmt.Errorf("%s cannot be changed while it runs", t.Subject.Name())
	}
	group, err := live.NewClientGroup(ctx, r.Lab, r.Options.Executable)
	if err != nil {
		return nil, err
	}
	c := &changeTrial{runner: r, trial: t, changing: changing, group: group, blank: blank,
		service: kind{}.Services(r.Lab, t.Point)[0], left: map[string]bool{}, lastRemoved: map[string]time.Time{}}
	defer func() { err = errors.Join(err, c.close(context.WithoutCancel(ctx))) }()
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	if err := c.startNumbered(ctx); err != nil {
		return nil, err
	}
	for _, e := range changeEvents {
		if !e.happens(t) {
			continue
		}
		got, err := c.event(ctx, e)
		all = append(all, got)
		if err != nil {
			// Results of previous events stay valid. Later events do not run.
			return all, ctx.Err()
		}
	}
	return all, nil
}
