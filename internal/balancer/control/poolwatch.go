// SPDX-License-Identifier: Apache-2.0

package control

import (
	"maps"
	"sync"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// scarcity is the set of endpoints for which ports are scarce. The loop writes it, and Status reads it.
type scarcity struct {
	mu        sync.Mutex
	endpoints map[view.Endpoint]bool
}

// evaluate applies a new count, and reports whether ports have become scarce for an endpoint, or are no longer.
func (s *scarcity) evaluate(e view.Endpoint, held, limit uint64) (begins, ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch scarce := s.endpoints[e]; {
	case !scarce && held*100 >= limit*scarceFrom:
		if s.endpoints == nil {
			s.endpoints = map[view.Endpoint]bool{}
		}
		s.endpoints[e] = true
		return true, false
	case scarce && held*100 < limit*scarceUntil:
		delete(s.endpoints, e)
		return false, true
	}
	return false, false
}

// prune deletes the endpoints that no configuration has any more.
func (s *scarcity) prune(l *view.Layout) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.endpoints, func(e view.Endpoint, _ bool) bool { _, ok := l.PooledAt[e]; return !ok })
}

// poolWatch logs where full NAT runs short of ports.
type poolWatch struct {
	*core
	scarcity scarcity
	// ports is nil if the data plane does not count them.
	ports portCounter
}

// watchPool logs for which backends ports have become scarce, and for which they no longer are. It reads the count of
// each backend of full NAT every few seconds.
func (w *poolWatch) watchPool() {
	l := w.view.Layout
	var keys []lb.BackendKey
	for _, p := range l.Pooled {
		for _, at := range p.Uses {
			keys = append(keys, l.KeyOf(at))
		}
	}
	counts := w.ports.PortsHeld(keys)
	scarce, recovered := loglines.New(w.opt.Log.Warn), loglines.New(w.opt.Log.Info)
	for _, p := range l.Pooled {
		held := uint64(0)
		for range p.Uses {
			held, counts = held+uint64(counts[0]), counts[1:]
		}
		limit := l.PortsFor(p.Address)
		switch begins, ends := w.scarcity.evaluate(p.Endpoint, held, limit); {
		case begins:
			scarce.Logf(events.About{}, "%s", l.ScarceText(p, held))
		case ends:
			recovered.Logf(events.About{}, "%s: full NAT has ports enough for it again, with %d of %d held", l.EndpointText(p),
				held, limit)
		}
	}
	recovered.Flush("full NAT has ports enough for %d more backends again")
	scarce.Flush("full NAT is short of ports for %d more backends: `jeoul status` shows them")
}

// fillStatus writes the ports in use by the backends of service i into its status.
func (s *scarcity) fillStatus(l *view.Layout, i int, counters lb.Counters, status *ops.Service) {
	if !status.Mode.UsesPool() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for j, b := range l.Config.Services[i].Backends {
		p := l.Pooled[l.PooledAt[view.EndpointOf(l.Config.Services[i], b)]]
		status.Backends[j].Ports = &ops.Ports{Held: l.PortsHeld(p, counters), Limit: l.PortsFor(p.Address),
			Scarce: s.endpoints[p.Endpoint]}
	}
}

// problems lists the backends for which ports are scarce.
func (s *scarcity) problems(l *view.Layout, counters lb.Counters) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.endpoints) == 0 {
		return nil
	}
	for _, p := range l.Pooled {
		if s.endpoints[p.Endpoint] {
			list = append(list, l.ScarceText(p, l.PortsHeld(p, counters)))
		}
	}
	return list
}

// Ports of full NAT's pool are scarce for a backend from scarceFrom per cent in use on, until
// less than scarceUntil are. A new flow tries 32 ports (PORT_ATTEMPTS in bpf/balancer/flow/poolport.h): with
// 80 % in use, one in 1,300 finds none; with 90 %, one in 30.
const scarceFrom, scarceUntil = 80, 70
