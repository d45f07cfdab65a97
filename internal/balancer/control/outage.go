// SPDX-License-Identifier: Apache-2.0

package control

import (
	"maps"
	"slices"
	"sync"
	"time"

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

// outages are those under way. The loop writes them, and Status reads them.
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

// say reports whether an outage is still to be logged, and takes note that it is.
func (o *outages) say(t told) bool {
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

// keep ends the outages of what is in no configuration any more.
func (o *outages) keep(l *layout) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.of, func(t told, _ outage) bool {
		n, there := l.number[t.address]
		return !there || !slices.ContainsFunc(l.uses[n], func(at use) bool { return l.service(at).Mode == t.mode })
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

// warned takes note of the backends whose routes do not do, which the warnings of a
// configuration have named: their outages need not be logged again.
func (c *Controller) warned() {
	c.view.eachBackend(c.view.all(), func(t told, n int, s lb.Service, _ lb.Backend) {
		if e := c.view.known[n]; (e.Fault != paths.None || misfit(s, e.Address, e.Route) != "") && !c.excused(e) {
			c.outages.say(t)
		}
	})
}

// tellWarnings says what is odd about a configuration.
func (c *Controller) tellWarnings(warnings yamlfile.Problems) {
	lines := tale{log: c.opt.Log.Warn}
	for _, warning := range warnings {
		lines.say(events.About{Kind: events.KindConfiguration}, "%s", warning)
	}
	lines.end("%d more warnings of this kind: `jeoul status` shows the backends that get no packets, and why")
}

// tellServices says which services have lost their last backend that can take packets,
// and which have one again, of those that have backends with these numbers. Before is
// nil where backends have had their time to be found.
func (c *Controller) tellServices(before *view, numbers []int) {
	lost, back := tale{log: c.opt.Log.Warn}, tale{log: c.opt.Log.Info}
	seen := map[int]bool{}
	for _, n := range numbers {
		for _, at := range c.view.uses[n] {
			if seen[at.i] {
				continue
			}
			seen[at.i] = true
			s := c.view.service(at)
			switch key, bare := s.Key(), c.view.bare(at.i); {
			case !bare && c.bare[key]:
				delete(c.bare, key)
				back.say(events.About{Kind: events.KindPath, Service: s.Name}, "service %s has a backend again that can take packets", s.Name)
			case bare && !c.bare[key] && (before == nil || !before.bare(at.i)) && !c.allExcused(at.i):
				c.bare[key] = true
				lost.say(events.About{Kind: events.KindPath, Service: s.Name}, "service %s has no backend that can take packets until that changes", s.Name)
			}
		}
	}
	back.end("%d more services have a backend again")
	lost.end("%d more services have no backend that can take packets: `jeoul status` shows them")
}

// bare says whether no backend of service i can take packets.
func (v *view) bare(i int) bool {
	s := v.state.Services[i]
	for _, p := range s.Paths {
		if reached(s.Service, p) {
			return false
		}
	}
	return true
}

// allExcused says whether an interface that is down is the reason for all that service
// i lacks.
func (c *Controller) allExcused(i int) bool {
	for _, n := range c.view.at[i] {
		if !c.excused(c.view.known[n]) {
			return false
		}
	}
	return true
}
