// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/keytable"
)

// The bounds of the tables of flows and of their timeouts. The longest time leaves room in a clock of 32 bits that
// counts milliseconds.
const (
	minFlowLimit          = 1 << 10
	maxFlowLimit          = 1 << 28
	minFlowTimeout        = time.Second
	maxOpeningTimeout     = 10 * time.Minute
	maxEstablishedTimeout = 7 * 24 * time.Hour
	maxUDPTimeout         = 24 * time.Hour
	maxClosingTimeout     = time.Hour
	maxWindow             = 24 * time.Hour
	// shortEstablished is a timeout below which established connections are often silent.
	shortEstablished = 5 * time.Minute
)

const (
	fieldUnproven    = "flows.unproven"
	fieldEstablished = "flows.timeouts.established"
)

// checkFlows checks the settings of flows, and sets each service's transition time.
func (p *parser) checkFlows() {
	flows, limit := &p.cfg.Flows, p.flowLimit()
	switch {
	case !p.Written(fieldUnproven) || p.Bad(fieldUnproven):
		flows.Unproven = flows.defaultUnproven()
	case flows.Unproven > limit && !p.Bad("flows.limit"):
		p.warn(fieldUnproven,
			"%d is more than the limit of %d for proven flows, and each of those begins here; a quarter of it is usual",
			flows.Unproven, limit)
	}
	if flows.Timeouts.Established < shortEstablished {
		p.warn(fieldEstablished,
			"a connection that is silent for %s is forgotten, and its next packet may go to another backend, which resets it; %s is what RFC 5382 asks of a NAT",
			keytable.ShowDuration(flows.Timeouts.Established), keytable.ShowDuration(lb.DefaultTimeouts.Established))
	}
	for i := range p.cfg.Services {
		s := &p.cfg.Services[i]
		if s.Transition.Window = p.cfg.Transition.TCP; s.Protocol == lb.UDP {
			s.Transition.Window = p.cfg.Transition.UDP
		}
	}
}

func (p *parser) flowLimit() uint32 { return p.cfg.Flows.limit() }
