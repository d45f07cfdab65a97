// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestFlushBeforeWithdrawal: members are sent all flows before a drain withdraws VIPs, and not where there are none to
// withdraw, as at the start of a drained balancer.
func TestFlushBeforeWithdrawal(t *testing.T) {
	flushes := 0
	r := newRouters(instance{stateDir: t.TempDir()}, routersOptions{log: slog.New(slog.DiscardHandler),
		flush: func(context.Context) { flushes++ }})
	vips, another := []netip.Addr{netip.MustParseAddr("198.51.100.80")}, lb.BGP{ASN: 64512}
	for _, step := range []struct {
		when   string
		wanted ops.Routes
		want   int
	}{
		{"started while drained", ops.Routes{Draining: true}, 0},
		{"undrained", ops.Routes{VIPs: vips}, 0},
		{"drained", ops.Routes{VIPs: vips, Draining: true}, 0},
		{"withdrawn", ops.Routes{Draining: true}, 1},
		{"reloaded", ops.Routes{Draining: true, BGP: another}, 1},
	} {
		if r.SetDesired(step.wanted); flushes != step.want {
			t.Errorf("%s: flows were flushed %d times, expected %d", step.when, flushes, step.want)
		}
	}
}
