// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// hasAddress reports whether an interface of a host has an address.
func hasAddress(host *lab.Host, addr netip.Addr) (has bool, err error) {
	err = host.Do(func() error {
		addrs, err := netdump.Consistent(func() ([]netlink.Addr, error) {
			return netlink.AddrList(nil, netlink.FAMILY_V4)
		})
		has = slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.Equal(addr.AsSlice()) })
		return err
	})
	return has, err
}

// expectVIP waits until the balancer has the VIP, or no longer has it, and the status shows that.
func (b *balancer) expectVIP(t *testing.T, vip netip.Addr, want bool) {
	t.Helper()
	b.eventually(t, "the VIP is held or withdrawn", func(status *ops.Status) bool {
		return status.Services[0].Withdrawn == !want
	})
	testenv.Eventually(t, e2e.WaitLimit, "the VIP is on the interface or off it", func() bool {
		has, err := hasAddress(b.host, vip)
		return err == nil && has == want
	})
}

// TestVIPIsWithdrawnWhileEmpty: the checks of both backends fail, and the VIP is removed, also through a kill and a
// start. When one passes again, clients are served, and a stop leaves nothing.
func TestVIPIsWithdrawnWhileEmpty(t *testing.T) {
	t.Parallel()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 2})
	b := newBalancer(t, l.Balancer)
	before := e2e.ReadSettings(t, l.Balancer)
	vip := netip.MustParseAddr("198.18.0.105")
	var backends []entry
	var doors []net.Listener
	for _, server := range l.Servers {
		backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String(), "port": 8000})
		nameServer{server}.serveTCP(t, 8000)
		if err := server.RouteThrough(l.Balancer, netip.PrefixFrom(l.Clients[0].IPv4, 32), true); err != nil {
			t.Fatal(err)
		}
		doors = append(doors, listenOn(t, server, checkedPort))
	}
	t.Cleanup(func() {
		for _, door := range doors {
			door.Close()
		}
	})
	b.configure(t, lb.HookTC,
		entry{"services": []entry{{"name": "web", "vip": vip.String(), "port": 80, "mode": "nat", "scheduler": "rr",
			"check": entry{"type": "tcp", "port": checkedPort, "interval": "300ms"}, "on_empty": "withdraw",
			"backends": backends}}})
	b.start(t)
	b.expectVIP(t, vip, true)

	doors[0].Close()
	doors[1].Close()
	b.expectVIP(t, vip, false)
	kill(t, b.daemon)
	b.start(t)
	b.expectVIP(t, vip, false)

	doors[1] = listenOn(t, l.Servers[1], checkedPort)
	b.expectVIP(t, vip, true)
	testenv.Eventually(t, e2e.WaitLimit, "a client is served by the backend that is healthy again", func() bool {
		var c net.Conn
		err := l.Clients[0].Do(func() (err error) {
			c, err = net.DialTimeout("tcp", netip.AddrPortFrom(vip, 80).String(), e2e.WaitLimit)
			return err
		})
		if err != nil {
			return false
		}
		defer c.Close()
		name, err := askName(c)
		return err == nil && name == l.Servers[1].Name
	})
	stop(t, b.daemon)
	for _, line := range e2e.ReadSettings(t, l.Balancer).Difference(before) {
		t.Errorf("after a stop: %s", line)
	}
}
