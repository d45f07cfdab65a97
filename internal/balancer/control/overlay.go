// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
)

// overlay is what operations have laid over a backend of the configuration. What
// its parts point to is never changed, for earlier overlays share it.
type overlay struct {
	drain  *ops.Drained  // nil: as the file says
	weight *ops.Weighted // nil: likewise
	forced *ops.Forced   // nil: as health checks say
	// absent: the backend was discovered, and is not any more; nil: the configuration has it.
	absent *absence
}

func (o overlay) empty() bool { return o.drain == nil && o.weight == nil && o.forced == nil }

// out says whether the backend is out of its service: disabled, or its deadline has passed.
func (o overlay) out() bool { return o.drain != nil && o.drain.Out }

// over returns a backend of the configuration as the operations have it.
func (o overlay) over(b lb.Backend) lb.Backend {
	if o.drain != nil {
		b.Draining = o.drain.On
	}
	if o.weight != nil {
		b.Weight = o.weight.Value
	}
	return b
}

// due says whether the backend is to be taken out of its service by now.
func (o overlay) due(now time.Time) bool {
	return o.drain != nil && o.drain.On && !o.drain.Out && !o.drain.Deadline.IsZero() && !o.drain.Deadline.After(now)
}

// lay puts an overlay among others, or takes the one of its name away.
func lay(overlays map[backendName]overlay, name backendName, o overlay) {
	if o.empty() {
		delete(overlays, name)
		return
	}
	overlays[name] = o
}

// takers counts the backends of service i that may take new flows, and those of
// them that are up; where failing ones are used for want of others, they are not.
func (v *view) takers(i int) (may, up int) {
	s := v.state.Services[i]
	for j := range s.Backends {
		if s.Admits(j) {
			may++
			if reached(s.Service, s.Paths[j]) {
				up++
			}
		}
	}
	if v.selected[i].serving == panicked {
		up = v.selected[i].healthy
	}
	return may, up
}

// lets says whether the operations let a backend of service i take new flows.
func (v *view) lets(i int) bool {
	s := v.cfg.Services[i]
	return slices.ContainsFunc(s.Backends, func(b lb.Backend) bool {
		o := v.overlayOf(s, b)
		return !o.out() && o.over(b).TakesFlows()
	})
}

// A backend that is discovered may be absent for a while: its container restarts, its host reboots. Nobody has decided
// that, so that what operations have changed of it stays with its name, however long the gap is within absentFor. A
// backend that leaves the configuration itself was taken out by whoever owns that, and its operations end.
const (
	// absentFor is how long what is known of an absent backend is kept.
	absentFor = 24 * time.Hour
	// mostAbsent is of how many backends it is kept: names of containers may be new each time.
	mostAbsent = 1000
)

// absence is a backend that was discovered, and is not any more.
type absence struct {
	since time.Time
	// was is the backend as it was found last.
	was lb.Backend
}

// lapsed says whether a backend has been absent for so long that nothing is kept of it any more.
func (a *absence) lapsed(now time.Time) bool { return a != nil && now.Sub(a.since) >= absentFor }

// mayReturn says whether a backend that a configuration does not have may be discovered again.
func (l *layout) mayReturn(name backendName, was lb.Backend) bool {
	i, there := l.named[name.service]
	return there && was.Origin != "" && l.cfg.Services[i].Discovery.On()
}

// dropOldest deletes as many absent backends as there are too many, those that have been absent for longest.
func dropOldest[V any](all map[backendName]V, absent func(V) *absence) (dropped []backendName) {
	for name, v := range all {
		if absent(v) != nil {
			dropped = append(dropped, name)
		}
	}
	if len(dropped) <= mostAbsent {
		return nil
	}
	slices.SortFunc(dropped, func(a, b backendName) int {
		return cmp.Or(absent(all[a]).since.Compare(absent(all[b]).since), cmp.Compare(a.String(), b.String()))
	})
	dropped = dropped[:len(dropped)-mostAbsent]
	for _, name := range dropped {
		delete(all, name)
	}
	return dropped
}

// absentees are the backends of any service that were discovered and are not any more, whether operations have changed
// them or not.
type absentees map[backendName]*absence

// follow takes note of a change of the configuration: who is absent from now on, and who is back.
func (all absentees) follow(before, now *layout) {
	for i := range before.cfg.Services {
		s := &before.cfg.Services[i]
		if now.holdsBackends(s) {
			continue
		}
		for _, b := range s.Backends {
			if name := nameOf(*s, b); now.mayReturn(name, b) {
				all[name] = &absence{time.Now(), b}
			}
		}
	}
	maps.DeleteFunc(all, func(_ backendName, a *absence) bool { return a.lapsed(time.Now()) })
	for name := range now.locate(maps.Keys(all)) {
		delete(all, name)
	}
	dropOldest(all, func(a *absence) *absence { return a })
}

// holdsBackends says whether a configuration has a service of the same name with the same backends.
func (l *layout) holdsBackends(s *lb.Service) bool {
	i, there := l.named[s.Name]
	return there && slices.Equal(l.cfg.Services[i].Backends, s.Backends)
}

// condition judges a backend, as operations have it, by what the data plane has.
func condition(s lb.Service, b appliedBackend, o overlay, e *paths.Entry) lb.Condition {
	if s.Mode.Proxied() { // whose ways are the kernel's
		return lb.ConditionOf(b.Backend, b.Observed, o.out(), lb.Reach{})
	}
	return lb.ConditionOf(b.Backend, b.Observed, o.out(), lb.Reach{
		NoRoute: e.Fault != paths.None || misfit(s, e.Address, e.Route) != "", NoMAC: e.MAC == nil, Reason: reason(s, e)})
}
