// SPDX-License-Identifier: Apache-2.0

package control

import (
	"maps"
	"sync"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// scarcity remembers for which endpoints ports are scarce. The loop writes it, and Status
// reads it.
type scarcity struct {
	mu sync.Mutex
	of map[endpoint]bool
}

// judge takes a new count, and says whether ports have become scarce for an endpoint, or have
// ceased to be.
func (s *scarcity) judge(e endpoint, held, limit uint64) (begins, ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch scarce := s.of[e]; {
	case !scarce && held*100 >= limit*scarceFrom:
		if s.of == nil {
			s.of = map[endpoint]bool{}
		}
		s.of[e] = true
		return true, false
	case scarce && held*100 < limit*scarceUntil:
		delete(s.of, e)
		return false, true
	}
	return false, false
}

// keep forgets the endpoints that are in no configuration any more.
func (s *scarcity) keep(l *layout) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.of, func(e endpoint, _ bool) bool { _, there := l.pooledAt[e]; return !there })
}

// poolWatch says where full NAT is short of ports.
type poolWatch struct {
	*core
	scarcity scarcity
	// ports is nil where the data plane does not count them.
	ports portCounter
}

// watchPool says for which backends ports have become scarce, and for which no longer are. It
// costs a look at each backend of full NAT, every few seconds.
func (w *poolWatch) watchPool() {
	l := w.view.layout
	var keys []lb.BackendKey
	for _, p := range l.pooled {
		for _, at := range p.uses {
			keys = append(keys, l.keyOf(at))
		}
	}
	counts := w.ports.PortsHeld(keys)
	scarce, enough := loglines.To(w.opt.Log.Warn), loglines.To(w.opt.Log.Info)
	for _, p := range l.pooled {
		held := uint64(0)
		for range p.uses {
			held, counts = held+uint64(counts[0]), counts[1:]
		}
		limit := l.portsFor(p.address)
		switch begins, ends := w.scarcity.judge(p.endpoint, held, limit); {
		case begins:
			scarce.Say(events.About{}, "%s", l.scarceText(p, held))
		case ends:
			enough.Say(events.About{}, "%s: full NAT has ports enough for it again, with %d of %d held", l.whose(p),
				held, limit)
		}
	}
	enough.End("full NAT has ports enough for %d more backends again")
	scarce.End("full NAT is short of ports for %d more backends: `jeoul status` shows them")
}

// show fills in the ports of the backends of service i.
func (s *scarcity) show(l *layout, i int, counters lb.Counters, status *ops.Service) {
	if !status.Mode.UsesPool() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for j, b := range l.cfg.Services[i].Backends {
		p := l.pooled[l.pooledAt[endpointOf(l.cfg.Services[i], b)]]
		status.Backends[j].Ports = &ops.Ports{Held: l.heldOf(p, counters), Limit: l.portsFor(p.address),
			Scarce: s.of[p.endpoint]}
	}
}

// problems lists the backends that ports are scarce for.
func (s *scarcity) problems(l *layout, counters lb.Counters) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.of) == 0 {
		return nil
	}
	for _, p := range l.pooled {
		if s.of[p.endpoint] {
			list = append(list, l.scarceText(p, l.heldOf(p, counters)))
		}
	}
	return list
}
