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

// Setup is where a subject is started.
type Setup struct {
	Lab *lab.Lab
	// Services have one service for all clients, or one for each.
	Services []Service
	// Local: the clients are programs on the balancer's host.
	Local bool
	// Certificate is the path of a certificate with its key (PEM), for a subject that
	// ends TLS; empty where the services have none.
	Certificate string
	// Executable is the path of the jeoul binary, and Other, if it is not empty, that of another
	// build, with which it changes places.
	Executable, Other string
	// Flows is how many flows a subject must have room for that remembers each of them
	// in a table whose size can be chosen; 0 leaves it to the subject.
	Flows int
	// Members has several balancers hand flows over.
	Members bool
	// Router is the router that several balancers announce the VIP to; empty: the usual. BFD is the interval of BFD's
	// packets between them and the router; 0: there is no BFD.
	Router router.Kind
	BFD    time.Duration
	// At is the balancer, of several; nil: the laboratory's one.
	At *lab.Host
}

// Service is a TCP port of the VIP, and the servers that listen at the same port
// of their own addresses.
type Service struct {
	Port uint16
	// PlainPort is where the servers speak without TLS, for a subject that ends it
	// itself; 0 where Port has no TLS.
	PlainPort uint16
	// UDP: the port is one of UDP too, with the same servers.
	UDP     bool
	Servers []*lab.Host
	// Weights are the servers' shares of new connections, by name: 1 where there
	// is none, and 0 for a server that drains: it takes no new connection and keeps
	// those that it has.
	Weights map[string]int
	// Check is how the servers are checked, by subjects that do; nil for not at all.
	Check *Check
}

// Check is a health check of servers: GET / over HTTP at a port, every Interval, answered within
// Timeout with status 200. A server is down after Fall failed ones in a row, and up after Rise
// passed ones.
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

// Protocols are those of the service's ports.
func (s Service) Protocols() []lb.Protocol {
	if s.UDP {
		return []lb.Protocol{lb.TCP, lb.UDP}
	}
	return []lb.Protocol{lb.TCP}
}

// service is the one that client number i (from 0) asks for.
func (s Setup) service(i int) Service { return s.Services[i%len(s.Services)] }

// VIP is where client number i asks for its service.
func (s Setup) VIP(i int) netip.AddrPort {
	return netip.AddrPortFrom(s.Lab.VIP4, s.service(i).Port)
}

// Server is a server of client number i's service, by its own address.
func (s Setup) Server(i int) netip.AddrPort {
	of := s.service(i)
	return netip.AddrPortFrom(of.Servers[i%len(of.Servers)].IPv4, of.Port)
}

// Single reports whether every service has one server, so that nothing is balanced.
func (s Setup) Single() bool { return len(s.Services[0].Servers) == 1 }

// Unbalanced is where client number i asks where no balancer is: at the VIP, which the
// servers hold and a route spreads over them, or at its one server.
func (s Setup) Unbalanced(i int) netip.AddrPort {
	if s.Single() {
		return s.Server(i)
	}
	return s.VIP(i)
}

// Clients are the hosts that ask: those beyond the balancer, or the balancer's own.
func (s Setup) Clients() []*lab.Host {
	if s.Local {
		return []*lab.Host{s.Lab.Balancer}
	}
	return s.Lab.Clients
}

// Balancer is the host that the subject runs on.
func (s Setup) Balancer() *lab.Host {
	if s.At != nil {
		return s.At
	}
	return s.Lab.Balancer
}

// With returns the set-up with other services, which are copied: what the caller
// does with its own does not reach them.
func (s Setup) With(services []Service) Setup {
	s.Services = slices.Clone(services)
	for i, service := range services {
		s.Services[i].Servers = slices.Clone(service.Servers)
		s.Services[i].Weights = maps.Clone(service.Weights)
	}
	return s
}

// SameServers reports whether services of one number have the same servers.
func SameServers(a, b []Service) bool {
	return slices.EqualFunc(a, b, func(a, b Service) bool { return slices.Equal(a.Servers, b.Servers) })
}
