// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"errors"
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// direct is the baseline without a balancer. The web servers hold the VIP, and each client spreads its connections over
// them by a multipath route. Every client connects to every server, as through a balancer: a client with a server of
// its own would benefit from the caches, which would count as the cost of balancing. If every service has one server,
// each client connects to the own address of its server.
type direct struct{}

func (direct) Name() string            { return "direct" }
func (direct) Params() []subject.Param { return nil }

func (direct) Can() subject.Abilities {
	return subject.Abilities{UDP: true, DirectReplies: true, Machines: subject.Anywhere[*lab.Lab],
		Containers: func(local bool) string {
			if !local {
				return "clients beyond the host reach containers through it only; use routed for no balancer"
			}
			return ""
		}}
}

func (direct) Versions(context.Context) (map[string]string, error) { return nil, nil }

func (direct) SkipReason(subject.Params, int, probe.Limits) string { return "" }

func (direct) Start(ctx context.Context, setup subject.Setup, _ subject.Params) (subject.Running, error) {
	running := &runningDirect{setup: setup}
	if setup.Single() {
		return running, nil
	}
	var err error
	if running.vips, err = subject.HoldVIP(setup.Lab, lb.L2DSR); err == nil {
		err = running.spread(true)
	}
	if err != nil {
		return nil, errors.Join(err, running.vips.Release())
	}
	return running, nil
}

type runningDirect struct {
	setup subject.Setup
	vips  subject.VIPHolders
}

// spread routes the clients' connections over the servers, or undoes that.
func (r *runningDirect) spread(on bool) error {
	return r.setup.Lab.Spread(r.setup.Clients(), r.setup.Lab.VIP4, r.setup.Services[0].Servers, on)
}

func (r *runningDirect) Target(i int) netip.AddrPort { return r.setup.Unbalanced(i) }

func (*runningDirect) Cores() float64 { return 0 }

// Quiesce ends the connections that servers still hold. A client that no longer has a connection answers with a reset.
// The client's kernel selects a route for the reset independently of the connection's route, so the server that waits
// for it may never get it.
func (r *runningDirect) Quiesce(context.Context) error {
	for _, server := range r.setup.Lab.Servers {
		if err := server.DestroySockets(); err != nil && !errors.Is(err, lab.ErrNoSocketDestroy) {
			return err
		}
	}
	return nil
}

func (r *runningDirect) Stop(context.Context) error {
	if r.setup.Single() {
		return nil
	}
	err := r.spread(false)
	if errors.Is(err, lab.ErrClosed) {
		err = nil
	}
	return errors.Join(err, r.vips.Release())
}

func (r *runningDirect) Notes() []string {
	if r.setup.Single() {
		return nil
	}
	return []string{"each client spread its connections over the servers itself, by a route to the VIP over all of them (ECMP, by the hash of addresses and ports)"}
}
