// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// errNoDataPlane says that New was given no dialer.
var errNoDataPlane = fmt.Errorf("checks by the VIP need a data plane: %w", health.ErrNoPath)

// ask is a check in progress.
type ask struct {
	dialer   health.VIPDialer // nil without a data plane
	ctx      context.Context
	endpoint health.Endpoint
	check    *lb.Check
	report   func(health.Step)
	began    time.Time
	last     time.Time // when the last step ended
}

// dial opens a connection to the endpoint by its path. It has the check's deadline.
func (a *ask) dial(network string) (net.Conn, error) {
	if a.endpoint.Via == lb.ViaVIP {
		return a.dialVIP(network)
	}
	conn, err := connect(a.ctx, network, a.check.Source, netip.AddrPortFrom(a.endpoint.Address, a.endpoint.Port))
	if err == nil && a.report != nil {
		a.step("connect", fmt.Sprintf("%s connected to %s", network, a.endpoint), false)
	}
	return conn, err
}

func (a *ask) dialVIP(network string) (net.Conn, error) {
	if a.dialer == nil {
		return nil, errNoDataPlane
	}
	conn, err := a.dialer.Dial(a.ctx, network, a.endpoint.Backend, a.endpoint.Port)
	if err != nil {
		return nil, err
	}
	if deadline, ok := a.ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			conn.Close()
			return nil, err
		}
	}
	if a.report != nil {
		a.step("connect", fmt.Sprintf("%s connected to %s on %s", network, a.endpoint, a.endpoint.Backend.Address),
			false)
	}
	return patient(conn), nil
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
