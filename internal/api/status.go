// SPDX-License-Identifier: Apache-2.0

// Package api is how other processes look at a running balancer: HTTP over a
// unix socket. GET /v1/status answers with a Status as JSON, POST /v1/explain with
// what would become of a packet, and POST /v1/trace with real packets, a line each.
package api

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/lb"
)

// Status is a balancer at one moment.
type Status struct {
	// Version is that of the program.
	Version string `json:"version"`
	PID     int    `json:"pid"`
	// Started is when the daemon started.
	Started time.Time `json:"started"`
	Config  string    `json:"config"`
	// Interface is the first, which carries the VIPs, and Hook its hook.
	Interface  string      `json:"interface"`
	Hook       Hook        `json:"hook"`
	Interfaces []Interface `json:"interfaces"`
	TableSize  uint32      `json:"table_size"`
	// Generation counts the states that the data plane was given, from 1.
	Generation uint64 `json:"generation"`
	// Problems are what a person should look at now, a line each.
	Problems []string  `json:"problems"`
	Services []Service `json:"services"`
	// Outcomes say where each packet ended; every outcome is listed.
	Outcomes []Outcome `json:"outcomes"`
	// FullNAT is how full the table of full NAT is, where a service has that mode.
	FullNAT *FullNAT `json:"fullnat,omitempty"`
}

// FullNAT is the state of full NAT's table of flows.
type FullNAT struct {
	// Flows is how many there were some seconds ago at most.
	Flows uint32 `json:"flows"`
	// Limit is how many there can be; then new ones are dropped.
	Limit uint32 `json:"limit"`
}

// Interface is one that packets arrive on and leave by.
type Interface struct {
	Name string `json:"name"`
	// Up says that it is switched on and has a carrier.
	Up   bool   `json:"up"`
	MAC  string `json:"mac"`
	Hook Hook   `json:"hook"`
}

// Hook is the place in the kernel where packets are taken.
type Hook struct {
	Name lb.Hook `json:"name"`
	// Generic says that XDP runs after the driver made a socket buffer.
	Generic bool   `json:"generic"`
	Driver  string `json:"driver"`
	// Reason says why this hook, where the configuration left room.
	Reason string `json:"reason"`
}

// Service is a service and its backends.
type Service struct {
	Name     string      `json:"name"`
	VIP      netip.Addr  `json:"vip"`
	Port     uint16      `json:"port"`
	Protocol lb.Protocol `json:"protocol"`
	Mode     lb.Mode     `json:"mode"`
	// DSCP is the code point that stands for the VIP in mode dscp; 0 in others.
	DSCP uint8 `json:"dscp,omitempty"`
	// MSS is the most that a SYN may announce, in bytes; 0: whatever it does.
	MSS       uint16       `json:"mss,omitempty"`
	Scheduler lb.Scheduler `json:"scheduler"`
	Backends  []Backend    `json:"backends"`
}

// Backend is a backend, what is known about it and what it was sent since it
// was configured.
type Backend struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
	Weight  uint16     `json:"weight"`
	State   State      `json:"state"`
	// Neighbour is the state of the next hop's neighbour entry (ARP, NDP).
	Neighbour string `json:"neighbour"`
	// Reason says why it gets no packets, of the backend, as in "does not answer
	// ARP requests"; empty if it can.
	Reason string `json:"reason,omitempty"`
	// Interface is the one that packets leave by, and NextHop who gets them: a
	// router or the backend itself. Empty without a route.
	Interface string     `json:"interface,omitempty"`
	NextHop   netip.Addr `json:"next_hop,omitzero"`
	// MAC is the next hop's; empty while unknown.
	MAC string `json:"mac"`
	// MTU is the size of the largest IP packet on the way there, in bytes, headers
	// that the mode adds included; 0 without a route.
	MTU     int    `json:"mtu,omitempty"`
	Packets uint64 `json:"packets"`
	// Bytes are those of IP packets as they came, without the Ethernet frame.
	Bytes uint64 `json:"bytes"`
	// ReturnedPackets and ReturnedBytes are those of replies that came back
	// through the balancer, in the modes nat and fullnat.
	ReturnedPackets uint64 `json:"returned_packets,omitempty"`
	ReturnedBytes   uint64 `json:"returned_bytes,omitempty"`
	// Connections are new flows; where no flows are tracked, SYNs sent on.
	Connections uint64 `json:"connections"`
}

// State says whether a backend takes part.
type State string

// The states of a backend.
const (
	// Up: it takes new flows.
	Up State = "up"
	// NoMAC: it, or the router to it, does not answer ARP or NDP; it gets no packet.
	NoMAC State = "no-mac"
	// NoRoute: there is no way to it that its mode could use; it gets no packet.
	NoRoute State = "no-route"
	// WeightZero: it is configured to take no new flow.
	WeightZero State = "weight-0"
)

// Outcome is how many packets ended in one way.
type Outcome struct {
	Name    string `json:"name"`
	Packets uint64 `json:"packets"`
	Help    string `json:"help"`
}
