// SPDX-License-Identifier: Apache-2.0

package datapath

import "github.com/jeoul/jeoul/internal/balancer/lb"

// Penalties of backends for refused connections: docs/guides/schedulers.md has the rules.

// refusalLasts are the seconds for which a backend that has refused is not taken for idler
// than the others; refusalMost bounds a penalty before it doubles.
const refusalLasts, refusalMost = 60, 1 << 30

// penalise: the backend has refused a connection.
func (m *model) penalise(s *lb.RoutedService, backend int) {
	load := m.lives[backendKeyOf(s, backend)].load
	weight := uint64(0)
	if b := s.Backends[backend]; b.Weight > 0 && !b.Draining && s.Observed.Of(backend).Unhealthy == "" {
		weight = m.share(s, backend)
	}
	load.quiet = 0
	if load.penalty <= (uint64(m.standings[s.Key()].active)+1)*weight && load.penalty < refusalMost {
		load.penalty = max(1, 2*load.penalty)
	}
}

// forgive: a connection of a flow's backend has come about.
func (m *model) forgive(e *remembered) {
	if load := e.life.load; load.penalty != 0 {
		m.met["forgiven"]++
		load.penalty /= 2
		load.quiet = refusalLasts
	}
}

// decayPenalties lets a second pass for all penalties. Those of backends that are not configured
// have no service to be level with.
func (m *model) decayPenalties() {
	penalised := false
	for _, load := range m.loads {
		penalised = penalised || load.penalty != 0
	}
	if !penalised {
		return
	}
	levels := map[*modelLoad]uint64{}
	for _, s := range m.services {
		for _, i := range takersOf(s) {
			if load := m.lives[backendKeyOf(s, i)].load; load.penalty != 0 {
				levels[load] = m.penaltyFor(s, i)
			}
		}
	}
	for _, load := range m.loads {
		if load.penalty == 0 {
			continue
		}
		load.quiet++
		load.penalty /= 2
		if load.quiet < refusalLasts {
			load.penalty = max(load.penalty, levels[load])
		}
	}
}

// penaltyFor is the penalty with which a backend has no fewer flows for its weight than the idlest
// of those of its service without a penalty.
func (m *model) penaltyFor(s *lb.RoutedService, backend int) (penalty uint64) {
	own := m.lives[backendKeyOf(s, backend)].load
	best := -1
	for _, i := range takersOf(s) {
		if m.lives[backendKeyOf(s, i)].load.penalty == 0 &&
			(best < 0 || m.loadOf(s, i)*m.share(s, best) < m.loadOf(s, best)*m.share(s, i)) {
			best = i
		}
	}
	if best < 0 {
		return 0
	}
	for (uint64(own.active)+penalty+1)*m.share(s, best) < m.loadOf(s, best)*m.share(s, backend) {
		penalty++
	}
	return penalty
}
