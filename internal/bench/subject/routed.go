// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"
	"net/netip"

	"github.com/jeoul/jeoul/internal/bench/probe"
)

// routed is no balancer either, but the balancer's place: clients ask servers by
// their own addresses, and the kernel there forwards packets both ways as a router
// does. What a balancer that rewrites packets costs is seen against it.
type routed struct{}

func (routed) Name() string    { return "routed" }
func (routed) Params() []Param { return nil }
func (routed) HTTPOnly() bool  { return false }

func (routed) Versions(context.Context) (map[string]string, error) { return nil, nil }

func (routed) Obstacle(Params, int, probe.Limits) string { return "" }

func (routed) Start(_ context.Context, setup Setup, _ Params) (Running, error) {
	running := &runningRouted{setup: setup}
	err := errors.Join(
		running.undo.on(setup.Lab.Forward),
		running.undo.on(setup.Lab.DetourReplies),
		running.undo.on(setup.Lab.DetourRequests),
	)
	if err != nil {
		return nil, errors.Join(err, running.undo.all())
	}
	return running, nil
}

type runningRouted struct {
	setup Setup
	undo  undo
}

func (r *runningRouted) Target(i int) netip.AddrPort { return r.setup.server(i) }

func (*runningRouted) Cores() float64                { return 0 }
func (*runningRouted) Quiesce(context.Context) error { return nil }
func (r *runningRouted) Stop(context.Context) error  { return r.undo.all() }

func (*runningRouted) Notes() []string {
	return []string{"clients asked servers by their own addresses, and the balancer's kernel forwarded both ways (net.ipv4.ip_forward, no program attached)"}
}
