// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/namespace"
)

// unplug deletes one of the balancer's interfaces, and waits until the balancer reports it.
func (x *multiLinkBalancer) unplug(t *testing.T, name string) {
	t.Helper()
	within(t, x.host, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	x.eventually(t, name+" is missed", func(status *ops.Status) bool {
		return slices.ContainsFunc(status.Problems, func(p string) bool {
			return strings.HasPrefix(p, "interface "+name+" was deleted")
		})
	})
}

// has waits until the balancer no longer misses an interface.
func (x *multiLinkBalancer) has(t *testing.T, name string) {
	t.Helper()
	x.within(t, 3*e2e.WaitLimit, name+" is in use again", func(status *ops.Status) bool {
		up := slices.ContainsFunc(status.Interfaces, func(nic ops.Interface) bool { return nic.Name == name && nic.Up })
		return up && !slices.ContainsFunc(status.Problems, func(p string) bool {
			return strings.HasPrefix(p, "interface "+name)
		})
	})
}

// plug creates the interface again, with a network behind it as before, and waits until packets are taken there.
func (x *multiLinkBalancer) plug(t *testing.T, i int, name string, all ...string) {
	t.Helper()
	var own *namespace.Namespace
	if err := x.host.Do(func() (err error) { own, err = namespace.Current(); return err }); err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	x.addLink(t, own, i, name)
	x.has(t, name)
	x.expectTakenOn(t, all...)
}

// TestInterfaceIsMadeAnewUnderTheBalancer deletes the interface that carries the VIP, and creates it again: traffic
// through the others continues, and the new one has everything that the old one had.
func TestInterfaceIsMadeAnewUnderTheBalancer(t *testing.T) {
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		x := newMultiLinkBalancer(t, hook)
		before := e2e.ReadSettings(t, x.host)
		x.interfaces(t, "one", "two", "back")
		x.start(t)
		x.expectTakenOn(t, "one", "two", "back")
		two := x.open(t, "two")
		x.unplug(t, "one")
		expectAlive(t, "without the interface that carries the VIP", two, x.open(t, "two"))
		x.plug(t, 1, "one", "one", "two", "back")
		expectAlive(t, "with that made anew", two, x.open(t, "one"))

		stop(t, x.daemon)
		for _, line := range e2e.ReadSettings(t, x.host).Difference(before) {
			// The new interface has another link-local address and another index.
			if !strings.Contains(line, "route to ") && !strings.Contains(line, "address fe80::") {
				t.Errorf("after a stop: %s", line)
			}
		}
	})
}

// TestOnlyInterfaceIsMadeAnew has no other interface to serve by during that time, and still continues.
func TestOnlyInterfaceIsMadeAnew(t *testing.T) {
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		x := newMultiLinkBalancer(t, hook)
		text := yamlOf(t, entry{"interface": "one", "hook": string(hook), "socket": x.socket,
			"services": []entry{{"name": "web", "vip": multiLinkVIP.String(), "port": webPort, "scheduler": "rr",
				"mode": "l2dsr", "backends": []entry{{"name": "web01", "address": "10.77.1.2"}}}}})
		if err := os.WriteFile(x.config, text, 0o644); err != nil {
			t.Fatal(err)
		}
		x.start(t)
		x.unplug(t, "one")
		x.sendSIGHUP(t)
		var own *namespace.Namespace
		if err := x.host.Do(func() (err error) { own, err = namespace.Current(); return err }); err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		x.addLink(t, own, 1, "one")
		x.has(t, "one")
		x.expectTakenOn(t, "one")
		stop(t, x.daemon)
	})
}
