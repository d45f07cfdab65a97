// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Bounds of persistence and limits.
const (
	maxPersistence = 24 * time.Hour
	// maxRate leaves 100 ns between two connections, which are counted in whole ones.
	maxRate = 10_000_000
	// maxConnections is as many connections as can be remembered.
	maxConnections = maxFlowLimit
	// burstTime is the divisor of the rate that gives the default burst.
	burstTime = 10
)

// checkLimits checks the limits of a service and of its backends.
func (p *parser) checkLimits(i int) {
	s := &p.cfg.Services[i]
	for j := range s.Backends {
		p.checkThresholds(i, j)
	}
	p.checkRate(i)
	if s.Limits.Refuse == "" {
		s.Limits.Refuse = lb.RefuseByDrop
	}
	p.checkPersistence(i)
	if !s.Mode.Proxied() { // whose connections are no flows
		p.checkRoom(ServiceField(i, "limits.connections"), s.Limits.Connections)
	}
}

// checkThresholds checks a backend's thresholds.
func (p *parser) checkThresholds(i, j int) {
	b := p.cfg.Services[i].Backends[j]
	switch {
	case b.Lower == 0 && b.Upper == 0, p.hasProblem(i, j, "upper"):
	case b.Upper == 0:
		p.Fail(BackendField(i, j, "lower"),
			"says when a full backend takes new flows again, and without upper it is never full; add upper or remove the line")
	case b.Lower > b.Upper:
		p.Fail(BackendField(i, j, "lower"),
			"%d is above upper, %d: a backend that is full at %d takes new ones again when it has fewer than lower; write a number up to %d",
			b.Lower, b.Upper, b.Upper, b.Upper)
	case b.Upper > p.flowLimit() && !p.cfg.Services[i].Mode.Proxied():
		p.checkRoom(BackendField(i, j, "upper"), b.Upper)
	}
}

// checkRoom warns of a limit of flows that is never reached.
func (p *parser) checkRoom(field string, flows uint32) {
	if flows > p.flowLimit() && !p.Bad(field) {
		p.warn(field,
			"%d is more than the %d flows that are remembered (flows.limit), and what cannot be remembered is not let in; raise that or lower this",
			flows, p.flowLimit())
	}
}

// defaultBurst is the burst, in flows, of a rate that has none in the file.
func defaultBurst(rate uint32) uint32 { return (rate + burstTime - 1) / burstTime }

// checkRate refuses a burst without a rate, and sets the default burst.
func (p *parser) checkRate(i int) {
	limits, field := &p.cfg.Services[i].Limits, ServiceField(i, "limits.burst")
	written := p.Written(field)
	switch {
	case p.Bad(ServiceField(i, "limits.rate")) || p.Bad(field):
	case written && limits.Rate == 0:
		p.Fail(field, "there is no rate for it to go beyond; add rate or remove the line")
	case !written && limits.Rate > 0:
		limits.Burst = defaultBurst(limits.Rate)
	}
}

// checkPersistence checks the prefix against the VIP's family, which is that of the clients.
func (p *parser) checkPersistence(i int) {
	s, field := &p.cfg.Services[i], ServiceField(i, "persistence.prefix")
	if !s.VIP.IsValid() || p.Bad(field) {
		return
	}
	bits := uint8(s.VIP.BitLen())
	switch {
	case s.Persistence.Prefix == 0 && s.Persistence.On():
		s.Persistence.Prefix = bits
	case s.Persistence.Prefix > bits:
		p.Fail(field,
			"%d is more than the %d bits of an %s address, which clients of %s have; write a number from 1 to %d",
			s.Persistence.Prefix, bits, family(s.VIP), s.VIP, bits)
	}
}
