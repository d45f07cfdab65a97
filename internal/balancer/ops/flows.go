// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

const (
	// DefaultFlows is how many flows are listed where a query names no limit.
	DefaultFlows = 1000
	// MaxFlows is the largest limit.
	MaxFlows = 10000
)

// FlowQuery selects remembered flows.
type FlowQuery struct {
	// Of are services by name, such as web, and backends, such as web/web01; empty: all.
	Of []string
	// Client is a network that the client's address is in; the zero value: any.
	Client netip.Prefix
	// States are the states that a flow may be in; empty: any.
	States []lb.FlowState
	// Limit is how many are listed at most, 1 to MaxFlows; 0 is DefaultFlows.
	Limit int
}

// Flow is a flow that the data plane remembers.
type Flow struct {
	Service string `json:"service"`
	Backend string `json:"backend"`
	// Client is the address and port of the host that began it.
	Client netip.AddrPort `json:"client"`
	// Source is the address and port from which full NAT sends the flow's packets.
	Source *netip.AddrPort `json:"source,omitempty"`
	State  lb.FlowState    `json:"state"`
	// Proven: its client has sent a packet that a forger of source addresses could not.
	Proven bool `json:"proven"`
	// SilentSeconds is the time since its last packet, to within a second.
	SilentSeconds float64 `json:"silent_seconds"`
}

// FlowList has the remembered flows that match a query.
type FlowList struct {
	Flows []Flow `json:"flows"`
	// Matching is the number of matching flows; if it exceeds the limit, the order of the tables decides which are
	// listed.
	Matching uint64 `json:"matching"`
}
