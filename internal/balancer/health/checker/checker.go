// SPDX-License-Identifier: Apache-2.0

// Package checker asks endpoints by the protocols of health checks, a file for each, and judges their answers. Whatever
// an endpoint sends, an answer takes no longer than the check's timeout, and no more than some tens of kilobytes.
package checker

import (
	"context"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Checker is the health.Checker of all protocols.
type Checker struct {
	way health.Way

	mu        sync.Mutex
	connector *connector // of the last run
}

// New returns a checker. Without a way (nil), checks by the VIP cannot be made.
func New(way health.Way) *Checker { return &Checker{way: way} }

// ask is a check in progress.
type ask struct {
	*Checker
	ctx      context.Context
	endpoint health.Endpoint
	check    *lb.Check
	report   func(health.Step)
	began    time.Time
	last     time.Time // when the last step ended
}

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
	a := &ask{Checker: c, ctx: ctx, endpoint: endpoint, check: check, report: report}
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

// step reports that a part of the check has ended.
func (a *ask) step(name, text string, failed bool) {
	if a.report == nil {
		return
	}
	now := time.Now()
	a.report(health.Step{Name: name, At: now.Sub(a.began), Took: now.Sub(a.last), Text: text, Failed: failed})
	a.last = now
}
