// SPDX-License-Identifier: Apache-2.0

// Package subject knows the balancers that can be weighed: how each is set up
// in a laboratory, what varies in it, and what it needs of the machine.
package subject

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/router"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Errors that callers may test for.
var (
	// ErrParam says that a parameter's value is not one that the subject takes.
	ErrParam = errors.New("not a possible value")
	// ErrNotUp says that a subject was started and did not come up.
	ErrNotUp = errors.New("the subject did not come up")
)

// Subject is a way for clients to reach servers.
type Subject interface {
	// Name is the subject's name in suites and results.
	Name() string
	// Params are what can vary in it; a suite gives each of them a list, but for optional
	// ones.
	Params() []Param
	// Versions returns the versions of the programs that it runs, by name.
	Versions(ctx context.Context) (map[string]string, error)
	// Obstacle says what keeps this machine from running the subject with
	// params under so many connections at once; empty if nothing.
	Obstacle(params Params, concurrency int, limits probe.Limits) string
	// HTTPOnly says that it carries nothing but HTTP.
	HTTPOnly() bool
	// Start sets the subject up. It is ready when Start returns; if Start fails,
	// nothing of it is left.
	Start(ctx context.Context, setup Setup, params Params) (Running, error)
}

// Param is something that can vary in a subject.
type Param struct {
	Name string
	// Check returns an error that wraps ErrParam and says what is possible.
	Check func(value any) error
	// Optional says that a suite may leave it out; it then has no value.
	Optional bool
	// Several says that it is of several balancers: one has nothing that could vary by it.
	Several bool
}

// Params maps a parameter's name to its value, an int or a string.
type Params map[string]any

// Setup is where a subject is started.
type Setup struct {
	Lab *lab.Lab
	// Services are what clients ask for: one for all of them, or one for each.
	Services []Service
	// Local says that the clients are programs on the balancer's host.
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
	// Router is what several balancers tell of the VIP; empty: the usual. BFD is how often packets of BFD are sent
	// between them and the router; 0: there is none.
	Router router.Kind
	BFD    time.Duration
	// at is the balancer, of several; nil: the laboratory's one.
	at *lab.Host
}

// Service is a TCP port of the VIP, and the servers that listen at the same port
// of their own addresses.
type Service struct {
	Port uint16
	// PlainPort is where the servers speak without TLS, for a subject that ends it
	// itself; 0 where Port has no TLS.
	PlainPort uint16
	// UDP says that the port is one of UDP too, with the same servers.
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

// protocols are those of the service's ports.
func (s Service) protocols() []lb.Protocol {
	if s.UDP {
		return []lb.Protocol{lb.TCP, lb.UDP}
	}
	return []lb.Protocol{lb.TCP}
}

// service is the one that client number i (from 0) asks for.
func (s Setup) service(i int) Service { return s.Services[i%len(s.Services)] }

// vip is where client number i asks for its service.
func (s Setup) vip(i int) netip.AddrPort {
	return netip.AddrPortFrom(s.Lab.VIP4, s.service(i).Port)
}

// server is a server of client number i's service, by its own address.
func (s Setup) server(i int) netip.AddrPort {
	of := s.service(i)
	return netip.AddrPortFrom(of.Servers[i%len(of.Servers)].IPv4, of.Port)
}

// single says that every service has one server, so that there is nothing to spread.
func (s Setup) single() bool { return len(s.Services[0].Servers) == 1 }

// unbalanced is where client number i asks where no balancer is: at the VIP, which the
// servers hold and a route spreads over them, or at its one server.
func (s Setup) unbalanced(i int) netip.AddrPort {
	if s.single() {
		return s.server(i)
	}
	return s.vip(i)
}

// Running is a subject that was started.
type Running interface {
	// Target is the address that client number i (from 0) has to ask.
	Target(i int) netip.AddrPort
	// Cores is how many cores the subject can use at most; 0 if nothing but the
	// machine bounds it.
	Cores() float64
	// Notes say what a reader of the figures must know of the set-up.
	Notes() []string
	// Quiesce ends the connections that the subject itself holds: a proxy's to
	// the servers. Those of the clients may still be closing, so all addresses
	// must go on answering.
	Quiesce(ctx context.Context) error
	// Stop takes the subject down, with or without Quiesce before it, and takes
	// back what Start did.
	Stop(ctx context.Context) error
}

// Relaying is a running subject that has a process for each server.
type Relaying interface {
	// CPUTimes returns what each of the processes has used by its CPU clock, the packet
	// work included that ran on top of it.
	CPUTimes() ([]time.Duration, error)
}

// TerminatesTLS says whether a subject can end its clients' TLS, and speak to servers
// without.
func TerminatesTLS(s Subject) bool {
	_, can := s.(interface{ terminatesTLS() })
	return can
}

// oneOf makes a check for words.
func oneOf(words ...string) func(any) error {
	return func(value any) error {
		if word, ok := value.(string); ok && slices.Contains(words, word) {
			return nil
		}
		return fmt.Errorf("%w: %v; use %s", ErrParam, value, strings.Join(words, " or "))
	}
}

// positive is a check for whole numbers from 1 up to most.
func positive(most int) func(any) error {
	return func(value any) error {
		if number, ok := value.(int); ok && number >= 1 && number <= most {
			return nil
		}
		return fmt.Errorf("%w: %v; use a whole number from 1 to %d", ErrParam, value, most)
	}
}

// clients are the hosts that ask: those beyond the balancer, or the balancer's own.
func (s Setup) clients() []*lab.Host {
	if s.Local {
		return []*lab.Host{s.Lab.Balancer}
	}
	return s.Lab.Clients
}
