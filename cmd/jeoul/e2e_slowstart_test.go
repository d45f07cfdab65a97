// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/netip"
	"testing"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// TestSlowStart: a backend that its checks find healthy again gets only a few of the next connections; this does not
// apply when the daemon starts.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 3})
	b := newBalancer(t, l.Balancer)
	const port = 8080
	var backends []entry
	doors := map[string]net.Listener{}
	for _, server := range l.Servers {
		backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String(), "port": port})
		nameServer{server}.serveTCP(t, port)
		if err := server.RouteThrough(l.Balancer, netip.PrefixFrom(l.Clients[0].IPv4, 32), true); err != nil {
			t.Fatal(err)
		}
		doors[server.Name] = listenOn(t, server, checkedPort)
	}
	t.Cleanup(func() {
		for _, door := range doors {
			door.Close()
		}
	})
	vip := netip.MustParseAddrPort("198.18.0.105:80")
	b.configure(t, lb.HookTC,
		entry{"services": []entry{{"name": "web", "vip": vip.Addr().String(), "port": vip.Port(), "mode": "nat",
			"scheduler": "wrr",
			"check":     entry{"type": "tcp", "port": checkedPort, "interval": "300ms"}, "slow_start": "5m",
			"backends": backends}}})
	b.start(t)
	late := l.Servers[2]
	// connections returns the number of connections, of 60, that reach the server, whose share is 20.
	connections := func() (n int) {
		for range 60 {
			var c net.Conn
			within(t, l.Clients[0], func() (err error) {
				c, err = (&net.Dialer{Timeout: e2e.WaitLimit}).Dial("tcp", vip.String())
				return err
			})
			name, err := askName(c)
			c.Close()
			if err != nil {
				t.Fatal(err)
			}
			if name == late.Name {
				n++
			}
		}
		return n
	}
	found := func(what string, holds func(ops.Backend) bool) {
		t.Helper()
		b.eventually(t, what, func(status *ops.Status) bool {
			return everyBackend(status, func(_ ops.Service, at ops.Backend) bool {
				return at.Name != late.Name || holds(at)
			})
		})
	}
	found("it is healthy", func(at ops.Backend) bool { return at.Health.State == lb.Healthy && at.State == lb.Up })
	if n := connections(); n < 18 || n > 22 {
		t.Errorf("at the start: %d of 60 connections, want 20", n)
	}
	doors[late.Name].Close()
	found("it fails", func(at ops.Backend) bool { return at.State == lb.Unhealthy })
	doors[late.Name] = listenOn(t, late, checkedPort)
	found("it is in slow start", func(at ops.Backend) bool { return at.State == lb.Up && at.SlowStart != nil })
	// Up to 35% of its weight, 105 s later, it is 9.
	if n := connections(); n > 9 {
		t.Errorf("in slow start: %d of 60 connections", n)
	}
	testenv.Eventually(t, e2e.WaitLimit, "it gets some in slow start", func() bool { return connections() > 0 })
}
