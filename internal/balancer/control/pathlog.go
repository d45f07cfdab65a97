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

// outage is a time in which a backend gets no packets.
type outage struct {
	since time.Time
	told  bool // in the log
}

// outages are the outages under way. The loop writes them, and Status reads them.
type outages struct {
	mu sync.Mutex
	of map[told]outage
}

// note begins an outage, or ends it.
func (o *outages) note(t told, out bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !out {
		delete(o.of, t)
		return
	}
	if _, already := o.of[t]; !already {
		if o.of == nil {
			o.of = map[told]outage{}
		}
		o.of[t] = outage{since: time.Now()}
	}
}

// markLogged reports whether an outage is still to be logged, and takes note that it is.
func (o *outages) markLogged(t told) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, out := o.of[t]
	if !out || now.told {
		return false
	}
	now.told = true
	o.of[t] = now
	return true
}

// keep ends the outages of backends that are in no configuration any more.
func (o *outages) keep(l *view.Layout) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.of, func(t told, _ outage) bool {
		n, there := l.Number[t.address]
		return !there || !slices.ContainsFunc(l.Uses[n], func(at view.Use) bool {
			return l.Config.Services[at.I].Mode == t.mode
		})
	})
}

// date fills in since when the backends of a status get no packets.
func (o *outages) date(s *ops.Service) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for j, b := range s.Backends {
		if b.Reason != "" {
			s.Backends[j].Since = o.of[told{b.Address, s.Mode}].since
		}
	}
}

// pathLog logs which backends packets reach, and which they do not.
type pathLog struct {
	*core
	outages outages // has a lock of its own
	// bare are services of which it was logged that they have no backend.
	bare map[lb.ServiceKey]bool
	// absentees are backends that were discovered and are not any more.
	absentees   view.Absentees
	silenceTask *loop.Task
}

// markOutagesLogged takes note of the backends whose routes do not do, which the warnings of a
// configuration have named: their outages need not be logged again.
func (p *pathLog) markOutagesLogged() {
	eachBackend(p.view.Layout, p.view.All(), func(t told, n int, s lb.Service, _ lb.Backend) {
		e := p.view.Known[n]
		if (e.Fault != paths.None || view.Misfit(s, e.Address, e.Route) != "") && !p.excusedByLink(e) {
			p.outages.markLogged(t)
		}
	})
}

// logWarnings logs the warnings of a configuration.
func (p *pathLog) logWarnings(warnings yamlfile.Problems) {
	lines := loglines.To(p.opt.Log.Warn)
	for _, warning := range warnings {
		lines.Say(events.About{Kind: events.KindConfiguration}, "%s", warning)
	}
	lines.End("%d more warnings of this kind: `jeoul status` shows the backends that get no packets, and why")
}

// logServices says which services have lost their last backend that can take packets,
// and which have one again, of those that have backends with these numbers. Before is
// nil where backends have had their time to be found.
func (p *pathLog) logServices(before *view.View, numbers []int) {
	lost, back := loglines.To(p.opt.Log.Warn), loglines.To(p.opt.Log.Info)
	seen := make([]bool, len(p.view.Config.Services))
	for _, n := range numbers {
		for _, at := range p.view.Uses[n] {
			if seen[at.I] {
				continue
			}
			seen[at.I] = true
			s := p.view.Service(at)
			switch key, bare := s.Key(), p.view.Bare(at.I); {
			case !bare && p.bare[key]:
				delete(p.bare, key)
				back.Say(events.About{Kind: events.KindPath, Service: s.Name},
					"service %s has a backend again that can take packets", s.Name)
			case bare && !p.bare[key] && (before == nil || !before.Bare(at.I)) && !p.allExcused(at.I):
				p.bare[key] = true
				lost.Say(events.About{Kind: events.KindPath, Service: s.Name},
					"service %s has no backend that can take packets until that changes", s.Name)
			}
		}
	}
	back.End("%d more services have a backend again")
	lost.End("%d more services have no backend that can take packets: `jeoul status` shows them")
}

// allExcused says whether an interface that is down is the reason for all that service
// i lacks.
func (p *pathLog) allExcused(i int) bool {
	for _, n := range p.view.At[i] {
		if !p.excusedByLink(p.view.Known[n]) {
			return false
		}
	}
	return true
}

// logReaddressed logs which names of backends have another address or port than in the view before or, of those
// that are discovered, than when they were found last: flows that are remembered stay with the address, and operations
// with the name.
func (p *pathLog) logReaddressed(before *view.View, kind events.Kind) {
	lines := loglines.To(p.opt.Log.Info)
	for i := range p.view.Config.Services {
		s := &p.view.Config.Services[i]
		if before.HoldsBackends(s) {
			continue
		}
		previous := before.AddressesIn(s.Name)
		for _, b := range s.Backends {
			name := view.NameOf(*s, b)
			was, known := previous[b.Name]
			if a := p.absentees[name]; !known && a != nil && !a.Lapsed(time.Now()) {
				was, known = view.AddressText(*s, a.Was), true
			}
			if is := view.AddressText(*s, b); known && was != is {
				about := events.About{Kind: kind, Service: s.Name, Backend: b.Name}
				lines.Say(about, "%s has another address: %s → %s%s", name, was, is, p.view.Stays(*s, b))
			}
		}
	}
	lines.End("%d more backends have another address")
}

// describe logs the new services of a configuration, compared with the previous view, nil at the start, and its
// warnings on this host.
func (p *pathLog) describe(previous *view.View, warnings yamlfile.Problems) {
	cfg, services := p.view.Config, loglines.To(p.opt.Log.Info)
	for _, s := range cfg.Services {
		if previous.Holds(s) {
			continue
		}
		mode := string(s.Mode)
		if s.DSCP != 0 {
			mode = fmt.Sprintf("%s %d", s.Mode, s.DSCP)
		}
		services.Say(events.About{Kind: events.KindConfiguration, Service: s.Name},
			"service %s: %s, %s, %s, backends: %d", s.Name, s.Key(), mode, s.Scheduler, len(s.Backends))
	}
	services.End("%d more services: `jeoul status` shows them")
	p.logWarnings(slices.Concat(cfg.Warnings, warnings))
}

// logMoves says which backends of these numbers were found, lost or moved since a
// view before, which may be nil.
func (p *pathLog) logMoves(before *view.View, numbers iter.Seq[int]) {
	found, lost := loglines.To(p.opt.Log.Info), loglines.To(p.opt.Log.Warn)
	eachBackend(p.view.Layout, numbers, func(t told, n int, s lb.Service, b lb.Backend) {
		old, now := before.Entry(t.address), p.view.Known[n]
		p.outages.note(t, view.WhyUnreachable(s, now) != "")
		if old == now {
			return
		}
		if old == nil {
			old = &paths.Entry{}
		}
		was, is := p.nextHopText(s, old), p.nextHopText(s, now)
		switch {
		case was == is:
		case was == "":
			found.Say(loglines.AboutBackend(events.KindPath, s, b), "%s is at %s", loglines.Who(s, b), is)
		case is == "":
			p.outages.markLogged(t)
			p.logLost(lost, s, b, now)
		default:
			found.Say(loglines.AboutBackend(events.KindPath, s, b), "%s has moved from %s to %s", loglines.Who(s, b), was, is)
		}
	})
	found.End("%d more backends were found or have moved: `jeoul status` shows them")
	lost.End(moreLost)
}

func (p *pathLog) logLost(lost *loglines.Lines, s lb.Service, b lb.Backend, e *paths.Entry) {
	lost.Say(loglines.AboutBackend(events.KindPath, s, b), "%s %s: no packets until that changes", loglines.Who(s, b), view.WhyUnreachable(s, e))
}

// logSilent says, once each, which backends have not been found in a while, and
// which services have none.
func (p *pathLog) logSilent() {
	lost := loglines.To(p.opt.Log.Warn)
	eachBackend(p.view.Layout, p.view.All(), func(t told, n int, s lb.Service, b lb.Backend) {
		e := p.view.Known[n]
		if view.WhyUnreachable(s, e) == "" || p.excusedByLink(e) || !p.outages.markLogged(t) {
			return
		}
		p.logLost(lost, s, b, e)
	})
	lost.End(moreLost)
	p.logServices(nil, slices.Collect(p.view.All()))
}

const moreLost = "%d more backends get no packets: `jeoul status` says why"

// told is the key of a line about a backend that is logged once: another mode may reach the same address, or not.
type told struct {
	address netip.Addr
	mode    lb.Mode
}

// eachBackend calls f once for each address of these numbers and each mode, with
// the first backend that has them.
func eachBackend(l *view.Layout, numbers iter.Seq[int], f func(told, int, lb.Service, lb.Backend)) {
	for n := range numbers {
		var seen []lb.Mode
		for _, at := range l.Uses[n] {
			mode := l.Config.Services[at.I].Mode
			if slices.Contains(seen, mode) {
				continue
			}
			seen = append(seen, mode)
			f(told{l.Backends[n], mode}, n, l.Service(at), l.Backend(at))
			if len(seen) == len(lb.Modes) {
				break
			}
		}
	}
}
