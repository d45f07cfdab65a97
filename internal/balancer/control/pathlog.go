// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// outage is a period in which a backend gets no packets.
type outage struct {
	since  time.Time
	logged bool // the outage was logged
}

// outages are the present outages. The loop writes them, and Status reads them.
type outages struct {
	mu    sync.Mutex
	byKey map[logKey]outage
}

// set begins an outage, or ends it.
func (o *outages) set(key logKey, out bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !out {
		delete(o.byKey, key)
		return
	}
	if _, already := o.byKey[key]; !already {
		if o.byKey == nil {
			o.byKey = map[logKey]outage{}
		}
		o.byKey[key] = outage{since: time.Now()}
	}
}

// markLogged reports whether an outage has not been logged yet, and marks it as logged.
func (o *outages) markLogged(key logKey) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, out := o.byKey[key]
	if !out || now.logged {
		return false
	}
	now.logged = true
	o.byKey[key] = now
	return true
}

// prune deletes the outages of backends that no configuration has any more.
func (o *outages) prune(l *view.Layout) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.byKey, func(key logKey, _ outage) bool {
		n, ok := l.Number[key.address]
		return !ok || !slices.ContainsFunc(l.Uses[n], func(at view.Use) bool {
			return l.Config.Services[at.I].Mode == key.mode
		})
	})
}

// fillSince writes the beginnings of outages into the backends of a status.
func (o *outages) fillSince(s *ops.Service) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for j, b := range s.Backends {
		if b.Reason != "" {
			s.Backends[j].Since = o.byKey[logKey{b.Address, s.Mode}].since
		}
	}
}

// pathLog logs which backends have a path, and which have lost it.
type pathLog struct {
	*core
	outages outages // has its own lock
	// unreachable are the services that were logged as having no reachable backend.
	unreachable map[lb.ServiceKey]bool
	// absent are backends that were discovered before, and are no longer.
	absent      view.Absentees
	silenceTask *loop.Task
}

// markOutagesLogged marks the outages of backends without a usable route as logged: the configuration's warnings have
// named them.
func (p *pathLog) markOutagesLogged() {
	eachBackend(p.view.Layout, p.view.All(), func(key logKey, n int, s lb.Service, _ lb.Backend) {
		e := p.view.Known[n]
		if (e.Fault != paths.None || view.RouteProblem(s, e.Address, e.Route) != "") && !p.excusedByLink(e) {
			p.outages.markLogged(key)
		}
	})
}

// logWarnings logs the warnings of a configuration.
func (p *pathLog) logWarnings(warnings yamlfile.Problems) {
	lines := loglines.New(p.opt.Log.Warn)
	for _, warning := range warnings {
		lines.Logf(events.About{Kind: events.KindConfiguration}, "%s", warning)
	}
	lines.Flush("%d more warnings of this kind: `jeoul status` shows the backends that get no packets, and why")
}

// logServices logs which services have lost their last reachable backend, and which have one again, among the services
// that have backends with these numbers. before is nil once the backends have had time to be resolved.
func (p *pathLog) logServices(before *view.View, numbers []int) {
	lost, back := loglines.New(p.opt.Log.Warn), loglines.New(p.opt.Log.Info)
	seen := make([]bool, len(p.view.Config.Services))
	for _, n := range numbers {
		for _, at := range p.view.Uses[n] {
			if seen[at.I] {
				continue
			}
			seen[at.I] = true
			s := p.view.Service(at)
			switch key, bare := s.Key(), p.view.Unreachable(at.I); {
			case !bare && p.unreachable[key]:
				delete(p.unreachable, key)
				back.Logf(events.About{Kind: events.KindPath, Service: s.Name},
					"service %s has a backend again that can take packets", s.Name)
			case bare && !p.unreachable[key] && (before == nil || !before.Unreachable(at.I)) &&
				!p.allExcusedByLink(at.I):
				p.unreachable[key] = true
				lost.Logf(events.About{Kind: events.KindPath, Service: s.Name},
					"service %s has no backend that can take packets until that changes", s.Name)
			}
		}
	}
	back.Flush("%d more services have a backend again")
	lost.Flush("%d more services have no backend that can take packets: `jeoul status` shows them")
}

// allExcusedByLink reports whether an interface that is down explains all missing paths of service i.
func (p *pathLog) allExcusedByLink(i int) bool {
	for _, n := range p.view.At[i] {
		if !p.excusedByLink(p.view.Known[n]) {
			return false
		}
	}
	return true
}

// logNewAddresses logs the names of backends whose address or port has changed since the previous view, or, for a
// discovered backend that was absent, since it was last found: known flows stay with the address, and operations with
// the name.
func (p *pathLog) logNewAddresses(before *view.View, kind events.Kind) {
	lines := loglines.New(p.opt.Log.Info)
	for i := range p.view.Config.Services {
		s := &p.view.Config.Services[i]
		if before.HasSameBackends(s) {
			continue
		}
		previous := before.AddressesIn(s.Name)
		for _, b := range s.Backends {
			name := view.NameOf(*s, b)
			from, known := previous[b.Name]
			if a := p.absent[name]; !known && a != nil && !a.Expired(time.Now()) {
				from, known = view.AddressText(*s, a.Was), true
			}
			if to := view.AddressText(*s, b); known && from != to {
				about := events.About{Kind: kind, Service: s.Name, Backend: b.Name}
				lines.Logf(about, "%s has another address: %s → %s%s", name, from, to,
					p.view.RetainedOperations(*s, b))
			}
		}
	}
	lines.Flush("%d more backends have another address")
}

// describe logs the services that are new since the previous view (nil at the start), and the configuration's warnings
// on this host.
func (p *pathLog) describe(previous *view.View, warnings yamlfile.Problems) {
	cfg, services := p.view.Config, loglines.New(p.opt.Log.Info)
	for i := range cfg.Services {
		s := &cfg.Services[i]
		if _, ok := previous.HasService(i, s); ok {
			continue
		}
		mode := string(s.Mode)
		if s.DSCP != 0 {
			mode = fmt.Sprintf("%s %d", s.Mode, s.DSCP)
		}
		services.Logf(events.About{Kind: events.KindConfiguration, Service: s.Name},
			"service %s: %s, %s, %s, backends: %d", s.Name, s.Key(), mode, s.Scheduler, len(s.Backends))
	}
	services.Flush("%d more services: `jeoul status` shows them")
	p.logWarnings(slices.Concat(cfg.Warnings, warnings))
}

// logMoves logs which backends of these numbers were resolved, were lost, or have another next hop since the previous
// view, which may be nil.
func (p *pathLog) logMoves(before *view.View, numbers iter.Seq[int]) {
	found, lost := loglines.New(p.opt.Log.Info), loglines.New(p.opt.Log.Warn)
	eachBackend(p.view.Layout, numbers, func(key logKey, n int, s lb.Service, b lb.Backend) {
		previous, now := before.Entry(key.address), p.view.Known[n]
		p.outages.set(key, view.WhyUnreachable(s, now) != "")
		if previous == now {
			return
		}
		if previous == nil {
			previous = &paths.Entry{}
		}
		from, to := p.nextHopText(s, previous), p.nextHopText(s, now)
		switch {
		case from == to:
		case from == "":
			found.Logf(loglines.AboutBackend(events.KindPath, s, b), "%s is at %s", loglines.BackendText(s, b), to)
		case to == "":
			p.outages.markLogged(key)
			p.logLost(lost, s, b, now)
		default:
			found.Logf(loglines.AboutBackend(events.KindPath, s, b), "%s has moved from %s to %s",
				loglines.BackendText(s, b), from, to)
		}
	})
	found.Flush("%d more backends were found or have moved: `jeoul status` shows them")
	lost.Flush(moreLost)
}

func (p *pathLog) logLost(lost *loglines.Lines, s lb.Service, b lb.Backend, e *paths.Entry) {
	lost.Logf(loglines.AboutBackend(events.KindPath, s, b), "%s %s: no packets until that changes", loglines.BackendText(s, b), view.WhyUnreachable(s, e))
}

// logSilent logs, once each, the backends that have had no path for a while, and the services without a reachable
// backend.
func (p *pathLog) logSilent() {
	lost := loglines.New(p.opt.Log.Warn)
	eachBackend(p.view.Layout, p.view.All(), func(key logKey, n int, s lb.Service, b lb.Backend) {
		e := p.view.Known[n]
		if view.WhyUnreachable(s, e) == "" || p.excusedByLink(e) || !p.outages.markLogged(key) {
			return
		}
		p.logLost(lost, s, b, e)
	})
	lost.Flush(moreLost)
	p.logServices(nil, slices.Collect(p.view.All()))
}

const moreLost = "%d more backends get no packets: `jeoul status` says why"

// logKey identifies a line about a backend that is logged once. The mode is part of it: the same address may be
// reachable in one mode and not in another.
type logKey struct {
	address netip.Addr
	mode    lb.Mode
}

// eachBackend calls f once for each address of these numbers and each mode, with the first such backend.
func eachBackend(l *view.Layout, numbers iter.Seq[int], f func(logKey, int, lb.Service, lb.Backend)) {
	modes := countModes(l)
	for n := range numbers {
		var seen []lb.Mode
		for _, at := range l.Uses[n] {
			mode := l.Config.Services[at.I].Mode
			if slices.Contains(seen, mode) {
				continue
			}
			seen = append(seen, mode)
			f(logKey{l.Backends[n], mode}, n, l.Service(at), l.Backend(at))
			if len(seen) == modes {
				break // of thousands of services, each may use the address
			}
		}
	}
}

// countModes returns the number of different modes of the services.
func countModes(l *view.Layout) int {
	var seen []lb.Mode
	for i := range l.Config.Services {
		if mode := l.Config.Services[i].Mode; !slices.Contains(seen, mode) {
			seen = append(seen, mode)
		}
	}
	return len(seen)
}
