// SPDX-License-Identifier: Apache-2.0

// Package api is how other processes look at a running balancer: HTTP over a
// unix socket. GET /v1/status answers with a Status as JSON.
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
	Started   time.Time `json:"started"`
	Config    string    `json:"config"`
	Interface string    `json:"interface"`
	Hook      Hook      `json:"hook"`
	TableSize uint32    `json:"table_size"`
	// Generation counts the states that the data plane was given, from 1.
	Generation uint64 `json:"generation"`
	// Problems are what a person should look at now, a line each.
	Problems []string  `json:"problems"`
	Services []Service `json:"services"`
	// Outcomes say where each packet ended; every outcome is listed.
	Outcomes []Outcome `json:"outcomes"`
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
	Name      string       `json:"name"`
	VIP       netip.Addr   `json:"vip"`
	Port      uint16       `json:"port"`
	Protocol  lb.Protocol  `json:"protocol"`
	Mode      lb.Mode      `json:"mode"`
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
	// Neighbour is the state of its neighbour entry (ARP, NDP).
	Neighbour string `json:"neighbour"`
	// Reason says why there is no MAC address; empty where there is one.
	Reason string `json:"reason,omitempty"`
	// MAC is the address that packets are sent to; empty while unknown.
	MAC     string `json:"mac"`
	Packets uint64 `json:"packets"`
	// Bytes are those of IP packets, without the Ethernet frame.
	Bytes uint64 `json:"bytes"`
	// Connections are new flows; where no flows are tracked, SYNs sent on.
	Connections uint64 `json:"connections"`
}

// State says whether a backend takes part.
type State string

// The states of a backend.
const (
	// Up: it takes new flows.
	Up State = "up"
	// NoMAC: it does not answer ARP or NDP, and gets no packet.
	NoMAC State = "no-mac"
	// WeightZero: it is configured to take no new flow.
	WeightZero State = "weight-0"
)

// Outcome is how many packets ended in one way.
type Outcome struct {
	Name    string `json:"name"`
	Packets uint64 `json:"packets"`
	Help    string `json:"help"`
}
