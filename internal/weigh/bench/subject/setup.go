// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/router"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Setup is the environment in which a subject is started.
type Setup struct {
	Lab *lab.Lab
	// Services has one service for all clients, or one for each client.
	Services []Service
	// Local means that the clients are programs on the balancer's host.
	Local bool
	// Certificate is the path of a certificate with its key (PEM), for a subject that terminates TLS; empty if the
	// services have none.
	Certificate string
	// Executable is the path of the jeoul binary. Other, if it is not empty, is the path of another build for upgrades.
	Executable, Other string
	// Flows is the number of flows that a subject must have room for if it stores each of them in a table with a
	// configurable size; 0 means the subject's own size.
	Flows int
	// Members means that several balancers hand over flows.
	Members bool
	// Router is the router that several balancers announce the VIP to; empty means the default. BFD is the interval of
	// BFD packets between balancers and router; 0 means no BFD.
	Router router.Kind
	BFD    time.Duration
	// At is one of several balancers; nil means the laboratory's only balancer.
	At *lab.Host
}

// Service is a TCP port of the VIP, and the servers that listen at the same port of their own addresses.
type Service struct {
	Port uint16
	// PlainPort is the port at which the servers speak without TLS, for a subject that terminates TLS itself; 0 if Port
	// has no TLS.
	PlainPort uint16
	// UDP means that the port is also a UDP port with the same servers.
	UDP     bool
	Servers []*lab.Host
	// Weights are the servers' shares of new connections, by name. The default is 1. A server with 0 drains: it gets no
	// new connections and keeps those that it has.
	Weights map[string]int
	// Check is how subjects with health checks check the servers; nil means no checks.
	Check *Check
}

// Check is a health check of servers: GET / over HTTP at a port, every Interval, answered within Timeout with status
// 200. A server is down after Fall failed checks in a row, and up after Rise passed ones.
type Check struct {
	Port              uint16
	Interval, Timeout time.Duration
	Fall, Rise        int
}

// Weight returns a server's share of new connections.
func (s Service) Weight(server *lab.Host) int {
	if weight, ok := s.Weights[server.Name]; ok {
		return weight
	}
	return 1
}

// Protocols returns the protocols of the service's ports.
func (s Service) Protocols() []lb.Protocol {
	if s.UDP {
		return []lb.Protocol{lb.TCP, lb.UDP}
	}
	return []lb.Protocol{lb.TCP}
}

// service returns the service of client number i (from 0).
func (s Setup) service(i int) Service { return s.Services[i%len(s.Services)] }

// VIP returns the address at which client number i reaches its service.
func (s Setup) VIP(i int) netip.AddrPort {
	return netip.AddrPortFrom(s.Lab.VIP4, s.service(i).Port)
}

// Server returns the own address of a server of client number i's service.
func (s Setup) Server(i int) netip.AddrPort {
	of := s.service(i)
	return netip.AddrPortFrom(of.Servers[i%len(of.Servers)].IPv4, of.Port)
}

// Single reports whether every service has one server, so that nothing is balanced.
func (s Setup) Single() bool { return len(s.Services[0].Servers) == 1 }

// Unbalanced returns the address for client number i without a balancer: the VIP, which the servers hold and a route
// spreads over them, or its one server.
func (s Setup) Unbalanced(i int) netip.AddrPort {
	if s.Single() {
		return s.Server(i)
	}
	return s.VIP(i)
}

// Clients returns the hosts with the clients: those beyond the balancer, or the balancer itself.
func (s Setup) Clients() []*lab.Host {
	if s.Local {
		return []*lab.Host{s.Lab.Balancer}
	}
	return s.Lab.Clients
}

// Balancer returns the host that the subject runs on.
func (s Setup) Balancer() *lab.Host {
	if s.At != nil {
		return s.At
	}
	return s.Lab.Balancer
}

// With returns the set-up with copies of other services: later changes by the caller do not affect them.
func (s Setup) With(services []Service) Setup {
	s.Services = slices.Clone(services)
	for i, service := range services {
		s.Services[i].Servers = slices.Clone(service.Servers)
		s.Services[i].Weights = maps.Clone(service.Weights)
	}
	return s
}

// SameServers reports whether services with the same index have the same servers.
func SameServers(a, b []Service) bool {
	return slices.EqualFunc(a, b, func(a, b Service) bool { return slices.Equal(a.Servers, b.Servers) })
}
