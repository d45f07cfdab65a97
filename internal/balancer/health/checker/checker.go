// SPDX-License-Identifier: Apache-2.0

// Package checker asks endpoints by the protocols of health checks, a file for each, and judges their answers. Whatever
// an endpoint sends, an answer takes no longer than the check's timeout, after the wait for its turn, and no more than
// some tens of kilobytes.
package checker

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Checker is the health.Checker of all protocols.
type Checker struct {
	dialer health.VIPDialer

	mu        sync.Mutex
	connector *connector // of the last run
}

// New returns a checker. Without a dialer (nil), checks by the VIP cannot be made.
func New(dialer health.VIPDialer) *Checker { return &Checker{dialer: dialer} }

// protocols has the function that makes a check, by its type.
var protocols = map[lb.CheckType]func(*ask) health.Answer{
	lb.CheckTCP: (*ask).tcp, lb.CheckTLS: (*ask).tls, lb.CheckHTTP: (*ask).http, lb.CheckDNS: (*ask).dns,
	lb.CheckUDP:  (*ask).udp,
	lb.CheckICMP: (*ask).icmp, lb.CheckGRPC: (*ask).grpc, lb.CheckExec: (*ask).exec, lb.CheckAgent: (*ask).agent,
}

// Check makes one check: see health.Checker.
func (c *Checker) Check(ctx context.Context, endpoint health.Endpoint, check *lb.Check,
	report func(health.Step)) health.Answer {
	make := protocols[check.Type]
	if make == nil {
		return health.Trouble("unknown type", "checks of type "+string(check.Type)+" are not known")
	}
	a := &ask{dialer: c.dialer, ctx: ctx, endpoint: endpoint, check: check, report: report}
	if report != nil {
		a.began = time.Now()
		a.last = a.began
	}
	answer := make(a)
	if answer.Outcome != health.Passed {
		a.step("answer", answer.Reason, true)
	}
	return answer
}

// Start begins a check of a TCP connection to a backend's own address, and reports whether it is one: see
// health.Starter.
func (c *Checker) Start(ctx context.Context, endpoint health.Endpoint, check *lb.Check, within time.Duration,
	done func(health.Answer)) bool {
	if check.Type != lb.CheckTCP || endpoint.Via == lb.ViaVIP {
		return false
	}
	n, err := c.connectorOf(ctx)
	if err != nil {
		done(trouble(own{err}))
		return true
	}
	n.start(netip.AddrPortFrom(endpoint.Address, endpoint.Port), check, within, done)
	return true
}

// connectorOf returns the connector of a run, which ends with that.
func (c *Checker) connectorOf(ctx context.Context) (*connector, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connector != nil && c.connector.ctx == ctx {
		return c.connector, nil
	}
	n, err := newConnector(ctx)
	if err == nil {
		c.connector = n
	}
	return n, err
}
