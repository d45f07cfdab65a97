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

// routed is no balancer either, but forwards at the balancer's place: the kernel there forwards packets both ways as a
// router does. It is the baseline for the cost of a balancer that rewrites packets. As with direct, the servers hold
// the VIP, and a route spreads connections over them; here it is the router's. If every service has one server, each
// client connects to the own address of its server.
type routed struct{}

func (routed) Name() string            { return "routed" }
func (routed) Params() []subject.Param { return nil }

func (routed) Can() subject.Abilities {
	return subject.Abilities{UDP: true, Packets: true, Machines: subject.Anywhere[*lab.Lab],
		Containers: func(local bool) string {
			if local {
				return "there is no hop to route between containers and their own host; use direct for no balancer"
			}
			return ""
		}}
}

func (routed) Versions(context.Context) (map[string]string, error) { return nil, nil }

func (routed) SkipReason(subject.Params, int, probe.Limits) string { return "" }

func (routed) Start(_ context.Context, setup subject.Setup, _ subject.Params) (subject.Running, error) {
	running := &runningRouted{setup: setup}
	err := errors.Join(
		running.undo.On(setup.Lab.Forward),
		running.undo.On(setup.Lab.DetourReplies),
	)
	if err == nil {
		err = running.lead()
	}
	if err != nil {
		return nil, errors.Join(err, running.undo.All())
	}
	return running, nil
}

type runningRouted struct {
	setup subject.Setup
	undo  subject.Undo
}

// lead routes the clients' requests to the servers through the balancer.
func (r *runningRouted) lead() error {
	l := r.setup.Lab
	if r.setup.Single() {
		return r.undo.On(l.DetourRequests)
	}
	vips, err := subject.HoldVIP(l, lb.L2DSR)
	r.undo = append(r.undo, vips.Release)
	if err != nil {
		return err
	}
	return errors.Join(
		r.undo.On(func(on bool) error {
			return l.Spread([]*lab.Host{l.Balancer}, l.VIP4, r.setup.Services[0].Servers, on)
		}),
		r.undo.On(func(on bool) error { return l.DetourVIP(l.VIP4, on) }),
	)
}

func (r *runningRouted) Target(i int) netip.AddrPort { return r.setup.Unbalanced(i) }

func (*runningRouted) Cores() float64                { return 0 }
func (*runningRouted) Quiesce(context.Context) error { return nil }
func (r *runningRouted) Stop(context.Context) error  { return r.undo.All() }

func (r *runningRouted) Notes() []string {
	if r.setup.Single() {
		return []string{"clients asked servers by their own addresses, and the balancer's kernel forwarded both ways (net.ipv4.ip_forward, no program attached)"}
	}
	return []string{"the balancer's kernel forwarded both ways (net.ipv4.ip_forward, no program attached), and spread connections by a route to the VIP over all servers (ECMP, by the hash of addresses and ports)"}
}
