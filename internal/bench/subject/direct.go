// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"net/netip"

	"github.com/jeoul/jeoul/internal/bench/probe"
)

// direct is no balancer at all: client i asks web server i, counted around.
// What the others cost is seen against it.
type direct struct{}

func (direct) Name() string    { return "direct" }
func (direct) Params() []Param { return nil }

func (direct) Versions(context.Context) (map[string]string, error) { return nil, nil }

func (direct) Obstacle(Params, int, probe.Limits) string { return "" }

func (direct) Start(_ context.Context, setup Setup, _ Params) (Running, error) {
	return runningDirect{setup}, nil
}

type runningDirect struct{ setup Setup }

func (r runningDirect) Target(i int) netip.AddrPort {
	servers := r.setup.Lab.Servers
	return netip.AddrPortFrom(servers[i%len(servers)].IPv4, r.setup.Port)
}

func (runningDirect) Cores() float64                { return 0 }
func (runningDirect) Quiesce(context.Context) error { return nil }
func (runningDirect) Stop(context.Context) error    { return nil }

func (r runningDirect) Notes() []string {
	if clients, servers := len(r.setup.Lab.Clients), len(r.setup.Lab.Servers); clients%servers != 0 {
		return []string{"the clients are not a multiple of the servers, so some servers had more of them than others"}
	}
	return nil
}
