// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/lb"
)

// Flows bounds what is remembered of flows.
type Flows struct {
	// Limit is how many proven flows are remembered at a time: those whose client
	// has shown that it is where it says. 0, where the file does not say, leaves it to
	// the data plane: DefaultFlowLimit where a service remembers each flow, and less
	// elsewhere.
	Limit uint32
	// Unproven is how many others are, in a table of their own.
	Unproven uint32
	Timeouts Timeouts
}

// Timeouts are how long a flow in each state is remembered after its last packet
// from the client.
type Timeouts struct {
	// Opening: TCP, a SYN was seen, and no answer to the backend's.
	Opening time.Duration
	// First: UDP, one packet was seen.
	First time.Duration
	// Established: TCP, neither end has closed.
	Established time.Duration
	// UDP: more than one packet was seen.
	UDP time.Duration
	// Fin: TCP, one end has closed.
	Fin time.Duration
	// Closed: TCP, both ends have, or one has reset it.
	Closed time.Duration
}

// Transition is how long, after the last change of a service's backends, flows
// that nobody remembers are sent where they went before.
type Transition struct{ TCP, UDP time.Duration }

// What a file that does not say gets. The times for established TCP, for UDP and
// for TCP that one end has closed are the shortest that RFC 5382 (REQ-5) and RFC
// 4787 (REQ-5) allow a NAT.
const (
	DefaultFlowLimit = 1_000_000
	DefaultUnproven  = 1 << 18

	DefaultOpening     = 30 * time.Second
	DefaultFirst       = 30 * time.Second
	DefaultEstablished = 7440 * time.Second
	DefaultUDP         = 2 * time.Minute
	DefaultFin         = 4 * time.Minute
	DefaultClosed      = time.Minute

	DefaultTCPTransition = 15 * time.Minute
	DefaultUDPTransition = 30 * time.Second
)

// Bounds of what is remembered. The longest time leaves room in a clock of 32
// bits that counts milliseconds.
const (
	minFlowLimit   = 1 << 10
	maxFlowLimit   = 1 << 28
	shortest       = time.Second
	longestOpening = 10 * time.Minute
	longestOpen    = 7 * 24 * time.Hour
	longestUDP     = 24 * time.Hour
	longestClosing = time.Hour
	longestWindow  = 24 * time.Hour
	// hastyEstablished is a time that connections are often silent for.
	hastyEstablished = 5 * time.Minute
)

func defaultFlows() Flows {
	return Flows{Unproven: DefaultUnproven, Timeouts: Timeouts{
		Opening: DefaultOpening, First: DefaultFirst, Established: DefaultEstablished,
		UDP: DefaultUDP, Fin: DefaultFin, Closed: DefaultClosed}}
}

const (
	fieldUnproven    = "flows.unproven"
	fieldEstablished = "flows.timeouts.established"
)

func (p *parser) flows(node *yaml.Node, field string) {
	flows := &p.cfg.Flows
	p.mapping(node, field, []key{
		{"limit", false, number(p, &flows.Limit, minFlowLimit, maxFlowLimit)},
		{"unproven", false, number(p, &flows.Unproven, minFlowLimit, maxFlowLimit)},
		{"timeouts", false, p.timeouts(&flows.Timeouts)},
	})
}

func (p *parser) timeouts(to *Timeouts) func(*yaml.Node, string) {
	return func(node *yaml.Node, field string) {
		p.mapping(node, field, []key{
			{"opening", false, p.duration(&to.Opening, shortest, longestOpening)},
			{"first", false, p.duration(&to.First, shortest, longestOpening)},
			{"established", false, p.duration(&to.Established, shortest, longestOpen)},
			{"udp", false, p.duration(&to.UDP, shortest, longestUDP)},
			{"fin", false, p.duration(&to.Fin, shortest, longestClosing)},
			{"closed", false, p.duration(&to.Closed, shortest, longestClosing)},
		})
	}
}

func (p *parser) transition(node *yaml.Node, field string) {
	p.mapping(node, field, []key{
		{"tcp", false, p.duration(&p.cfg.Transition.TCP, shortest, longestWindow)},
		{"udp", false, p.duration(&p.cfg.Transition.UDP, shortest, longestWindow)},
	})
}

// checkFlows looks at the flows as a whole, and gives each service its window.
func (p *parser) checkFlows() {
	flows, limit := &p.cfg.Flows, p.flowLimit()
	_, written := p.cfg.lines[fieldUnproven]
	switch {
	case !written:
		flows.Unproven = min(flows.Unproven, limit)
	case flows.Unproven > limit && !p.bad["flows.limit"]:
		p.warn(fieldUnproven, "%d is more than the limit of %d for proven flows, and each of those begins here; a quarter of it is usual",
			flows.Unproven, limit)
	}
	if flows.Timeouts.Established < hastyEstablished {
		p.warn(fieldEstablished, "a connection that is silent for %s is forgotten, and its next packet may go to another backend, which resets it; %s is what RFC 5382 asks of a NAT",
			show(flows.Timeouts.Established), show(DefaultEstablished))
	}
	for i := range p.cfg.Services {
		s := &p.cfg.Services[i]
		if s.Transition.Window = p.cfg.Transition.TCP; s.Protocol == lb.UDP {
			s.Transition.Window = p.cfg.Transition.UDP
		}
	}
}

// flowLimit is how many proven flows services that remember each can have.
func (p *parser) flowLimit() uint32 { return cmp.Or(p.cfg.Flows.Limit, DefaultFlowLimit) }

// duration returns a reader of a time from shortest to longest.
func (p *parser) duration(to *time.Duration, shortest, longest time.Duration) func(*yaml.Node, string) {
	return func(node *yaml.Node, field string) {
		text, ok := p.scalar(node, field)
		if !ok {
			return
		}
		d, err := time.ParseDuration(text)
		switch _, bare := strconv.ParseFloat(text, 64); {
		case bare == nil && text != "0":
			p.fail(field, "%s has no unit; write seconds as %s, minutes as 5m, hours as 2h", quote(text), quote(text+"s"))
		case err != nil:
			p.fail(field, "%s is not a length of time; write one such as 30s, 5m or 1h30m", quote(text))
		case d < shortest || d > longest:
			p.fail(field, "%s is not from %s to %s", quote(text), show(shortest), show(longest))
		default:
			*to = d
		}
	}
}

// show writes a time as a person does: 2h4m, not 2h4m0s.
func show(d time.Duration) string {
	text := d.String()
	if short, cut := strings.CutSuffix(text, "m0s"); cut {
		text = short + "m"
	}
	if short, cut := strings.CutSuffix(text, "h0m"); cut {
		text = short + "h"
	}
	return text
}
