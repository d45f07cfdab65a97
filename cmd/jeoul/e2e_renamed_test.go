// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// rename gives the balancer's interface another name.
func (b *balancer) rename(t *testing.T, from, to string) {
	t.Helper()
	within(t, b.host, func() error {
		link, err := netlink.LinkByName(from)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(link); err != nil {
			return err
		}
		if err := netlink.LinkSetName(link, to); err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
	// Its link-local address, and its routes, come after duplicate address detection.
	testenv.Eventually(t, e2e.WaitLimit, to+" has a link-local address", func() (found bool) {
		within(t, b.host, func() (err error) {
			found, err = testenv.HasLinkLocal(to)
			return err
		})
		return found
	})
}

// TestInterfaceIsRenamed renames the interface while no process runs: a start with the new name does not attach a
// second program beside the first, and with the old name it continues.
func TestInterfaceIsRenamed(t *testing.T) {
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		l := newLab(t, lab.Spec{Clients: 1, Servers: 1})
		b := newBalancer(t, l.Balancer)
		// An interface must be down for renaming, which removes its IPv6 addresses and routes.
		name, other := l.Balancer.Interface, "other0"
		b.rename(t, name, other)
		b.rename(t, other, name)
		before := e2e.ReadSettings(t, l.Balancer)
		service := entry{"name": "web", "vip": "198.18.0.105", "port": 80, "mode": "nat", "scheduler": "rr",
			"backends": []entry{{"name": "web01", "address": l.Servers[0].IPv4.String(), "port": 8000}}}
		nameServer{l.Servers[0]}.serveTCP(t, 8000)
		if err := l.Servers[0].RouteThrough(l.Balancer, netip.PrefixFrom(l.Clients[0].IPv4, 32), true); err != nil {
			t.Fatal(err)
		}
		b.configure(t, hook, entry{"services": []entry{service}})
		b.start(t)
		flows := flowsTo(t, l, "tcp", netip.MustParseAddrPort("198.18.0.105:80"))
		kill(t, b.daemon)

		b.rename(t, name, other)
		state := filepath.Join(b.host.Dir, "state")
		text := yamlOf(t, entry{"interface": other, "hook": string(hook), "socket": b.socket,
			"services": []entry{service}})
		if err := os.WriteFile(b.config, text, 0o644); err != nil {
			t.Fatal(err)
		}
		var log cmdtest.SyncBuffer
		err := jeoul(t, b.host, &log, "run", "-c", b.config, "--state-dir", state).Wait()
		if err == nil || !strings.Contains(log.String(), "other0 had the name "+name) ||
			!strings.Contains(log.String(), "jeoul detach --interface "+name) {
			t.Errorf("a start by the new name ended with %v and wrote:\n%s", err, log.String())
		}
		b.rename(t, other, name)
		b.configure(t, hook, entry{"services": []entry{service}})
		b.start(t)
		for at, c := range flows {
			if answer, err := askName(c); err != nil || answer != at {
				t.Errorf("after that a connection of %s is answered by %q, %v", at, answer, err)
			}
		}
		stop(t, b.daemon)
		for _, line := range e2e.ReadSettings(t, b.host).Difference(before) {
			t.Errorf("after a stop: %s", line)
		}
	})
}
