// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// fromGuide returns the block of the guide on BGP that contains a line, for a balancer and its router in a laboratory.
func fromGuide(t *testing.T, line string, balancer, router netip.Addr) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/guides/bgp.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range strings.Split(string(page), "```") {
		if i%2 == 1 && strings.Contains(block, line) {
			return strings.NewReplacer("192.0.2.10", balancer.String(), "192.0.2.1", router.String(), "198.51.100.0/24",
				"198.18.0.0/15").Replace(block)
		}
	}
	t.Fatalf("the guide has no block with %q", line)
	return ""
}

// runDaemon runs a routing daemon on a host.
func runDaemon(t *testing.T, host *lab.Host, log *cmdtest.SyncBuffer, path string, args ...string) {
	t.Helper()
	process, err := host.Start(context.WithoutCancel(t.Context()), lab.Command{Path: path, Args: args, Stdout: log,
		Stderr: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s:\n%s", path, log.String())
		}
		_ = process.Kill(context.Background())
	})
}

// localBIRD runs BIRD on the balancer's host, as in the guide.
func localBIRD(t *testing.T, l *lab.Lab) {
	dir := t.TempDir()
	file := filepath.Join(dir, "bird.conf")
	text := fromGuide(t, "kernel table 179", l.Balancer.IPv4, l.Clients[0].IPv4)
	text = strings.Replace(text, "graceful restart on;",
		"graceful restart on; connect delay time 1; error wait time 1, 2;", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	runDaemon(t, l.Balancer, &cmdtest.SyncBuffer{}, "bird", "-f", "-c", file, "-s", filepath.Join(dir, "ctl"), "-P",
		filepath.Join(dir, "pid"))
}

// localFRR runs FRR on the balancer's host, as in the guide.
func localFRR(t *testing.T, l *lab.Lab) {
	if os.Getenv("JEOUL_TEST_FRR") == "" {
		t.Skip("make test-bgp runs it, with FRR")
	}
	zebra, bgpd := testenv.Program(t, "/usr/lib/frr/zebra"), testenv.Program(t, "/usr/lib/frr/bgpd")
	// zebra drops root for its own user.
	dir, err := os.MkdirTemp("", "frr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file, empty, api := filepath.Join(dir, "frr.conf"), filepath.Join(dir, "zebra.conf"), filepath.Join(dir, "zserv")
	text := fromGuide(t, "redistribute connected", l.Balancer.IPv4, l.Clients[0].IPv4)
	text = strings.Replace(text, " address-family ipv4", " neighbor "+l.Clients[0].IPv4.String()+
		" timers connect 1\n address-family ipv4", 1)
	for path, content := range map[string]string{file: text, empty: ""} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	runDaemon(t, l.Balancer, &cmdtest.SyncBuffer{}, zebra, "-f", empty, "-i", filepath.Join(dir, "zebra.pid"), "--vty_socket",
		dir, "-z", api, "-P", "0", "--log", "stdout")
	testenv.Eventually(t, e2e.WaitLimit, "zebra answers", func() bool {
		return exec.Command("test", "-S", api).Run() == nil
	})
	runDaemon(t, l.Balancer, &cmdtest.SyncBuffer{}, bgpd, "-f", file, "-i", filepath.Join(dir, "bgpd.pid"), "--vty_socket", dir,
		"-z", api, "-P", "0", "--log", "stdout", "-S")
}

// foreignRoute is another program's route in the table of the VIPs on the balancer's host.
func foreignRoute(table int) *netlink.Route {
	return &netlink.Route{Table: table, Protocol: 75, Priority: lb.RouteMetric, Type: unix.RTN_BLACKHOLE,
		Dst: &net.IPNet{IP: net.IPv4(198, 19, 0, 66).To4(), Mask: net.CIDRMask(32, 32)}}
}

// protocolsOf returns the protocols of the routes of one address in a table of a host, without those of a routing
// daemon.
func protocolsOf(t *testing.T, host *lab.Host, table int) (all []int) {
	t.Helper()
	err := host.Do(func() error {
		routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(netlink.FAMILY_V4,
				&netlink.Route{Table: table, Type: unix.RTN_BLACKHOLE}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
		})
		for _, r := range routes {
			all = append(all, int(r.Protocol))
		}
		slices.Sort(all)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// followsBackends checks that the router has the VIP, loses it while no backend is healthy, and gets it again.
func (b *bgpBalancer) followsBackends(t *testing.T) {
	t.Helper()
	b.expectRoute(t, "at first", true)
	for _, door := range b.doors {
		door.Close()
	}
	b.expectRoute(t, "without a healthy backend", false)
	b.doors[0] = listenOn(t, b.lab.Servers[0], checkedPort)
	b.expectRoute(t, "with one", true)
}

// TestFRRAnnouncesConnected: FRR on the balancer's host, configured as in the guide, announces the VIP while the
// interface has it.
func TestFRRAnnouncesConnected(t *testing.T) {
	t.Parallel()
	b := newBGPBalancer(t)
	localFRR(t, b.lab)
	b.configured(t, nil)
	b.start(t)
	b.followsBackends(t)
	if out := b.ask("show route"); strings.Contains(out, "/15") {
		t.Errorf("FRR announces more than VIPs:\n%s", out)
	}
	stop(t, b.daemon)
	b.expectRoute(t, "stopped", false)
}

// TestLocalSpeaker: a routing daemon of the balancer's host, configured as in the guide, announces the VIP while the
// balancer serves it, and marks it during a drain. The end of the balancer's processes changes no route; its stop
// leaves others' routes.
func TestLocalSpeaker(t *testing.T) {
	t.Parallel()
	const table = lb.DefaultRouteTable
	b := newBGPBalancer(t)
	localBIRD(t, b.lab)
	b.configured(t, entry{"speaker": "local"})
	if err := b.host.Do(func() error { return netlink.RouteAdd(foreignRoute(table)) }); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	b.followsBackends(t)

	keeper := func(when string) (pid int) {
		b.eventually(t, when+", a process keeps the routes", func(status *ops.Status) bool {
			pid = status.BGP.SpeakerPID
			return pid != 0 && status.BGP.Problem == "" && status.BGP.Speaker == lb.SpeakerLocal &&
				int(status.BGP.Table) == table
		})
		return pid
	}
	// BIRD shows for each route since when it is unchanged.
	since, pid := b.ask("show route"), keeper("at first")
	for _, end := range []func(*testing.T, *lab.Process){leave, kill} {
		end(t, b.daemon)
		b.daemon = jeoul(t, b.host, &b.log, b.arguments()...)
		if now := keeper("with another daemon"); now != pid {
			t.Errorf("with another daemon, the routes are kept by process %d, and were by %d", now, pid)
		}
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.eventually(t, "another process keeps the routes", func(status *ops.Status) bool {
		return status.BGP.SpeakerPID != 0 && status.BGP.SpeakerPID != pid && status.BGP.Problem == ""
	})
	if now := b.ask("show route"); !sameRoutes(t, now, since) {
		t.Errorf("over the ends of processes, the router's route was another; now:\n%s\nbefore:\n%s", now, since)
	}

	marked := func(when string, want bool) {
		t.Helper()
		testenv.Eventually(t, e2e.WaitLimit, when+", the route is marked or not", func() bool {
			out := b.ask("show route all")
			return strings.Contains(out, b.vip.String()) && strings.Contains(out, "(65535,0)") == want
		})
	}
	b.commandBalancer(t, "drain")
	marked("drained", true)
	b.commandBalancer(t, "undrain")
	marked("undrained", false)

	stop(t, b.daemon)
	b.expectRoute(t, "stopped", false)
	if left := protocolsOf(t, b.host, table); !slices.Equal(left, []int{75}) {
		t.Errorf("after a stop, the table %d has routes of the protocols %v, want 75", table, left)
	}
}

// routeTime matches the time since when BIRD has had a route.
var routeTime = regexp.MustCompile(`\d\d:\d\d:\d\d\.\d\d\d`)

// sameRoutes reports whether BIRD has the same routes since the same times. BIRD computes each time for each answer, as
// an age before now, so that it may be a millisecond off.
func sameRoutes(t *testing.T, a, b string) bool {
	t.Helper()
	as, bs := routeTime.FindAllString(a, -1), routeTime.FindAllString(b, -1)
	if routeTime.ReplaceAllString(a, "") != routeTime.ReplaceAllString(b, "") || len(as) == 0 || len(as) != len(bs) {
		return false
	}
	const rounding = 10 * time.Millisecond
	for i := range as {
		at, err := time.Parse("15:04:05.000", as[i])
		other, otherErr := time.Parse("15:04:05.000", bs[i])
		if err := errors.Join(err, otherErr); err != nil {
			t.Fatal(err)
		}
		const day = 24 * time.Hour
		if apart := at.Sub(other).Abs(); min(apart, day-apart) > rounding { // midnight may lie between
			return false
		}
	}
	return true
}

// TestLocalSpeakerAnnouncesPool: a routing daemon of the balancer's host, configured as in the guide, announces the
// addresses of a divided pool of full NAT: another member's by a longer path. A drain marks only the VIP.
func TestLocalSpeakerAnnouncesPool(t *testing.T) {
	testenv.Target(t, matrixTarget)
	t.Parallel()
	l := newLab(t, lab.Spec{Clients: 2, Servers: 1})
	b := &bgpBalancer{balancer: newBalancer(t, l.Balancer), vip: netip.MustParseAddr("198.18.0.105"), lab: l}
	b.ask = birdOn(t, l.Clients[0], l.Balancer.IPv4)
	localBIRD(t, l)
	const own, other = "198.18.0.98", "198.18.0.99"
	member := &memberBalancer{balancer: b.balancer}
	among := member.among(t, l, freshKey(t, l.Balancer))
	b.configure(t, lb.HookTC, entry{"bgp": entry{"speaker": "local"}, "members": among,
		"fullnat": entry{"addresses": []entry{{"address": own, "member": l.Balancer.IPv4.String()},
			{"address": other, "member": l.Clients[0].IPv4.String()}}},
		"services": []entry{{"name": "web", "vip": b.vip.String(), "port": 80, "mode": "fullnat",
			"backends": []entry{{"name": "web01", "address": l.Servers[0].IPv4.String()}}}}})
	b.start(t)
	// The routes to an address in the router's daemon, from its line to the next address's line.
	about := func(address string) string {
		_, after, _ := strings.Cut(b.ask("show route all "+address+"/32"), address+"/32")
		return after
	}
	const path = "BGP.as_path: 64512"
	for _, when := range []struct {
		drained bool
		do      func()
	}{{false, func() {}}, {true, func() { b.commandBalancer(t, "drain") }},
		{false, func() { b.commandBalancer(t, "undrain") }}} {
		when.do()
		testenv.Eventually(t, e2e.WaitLimit, "the VIP is marked or not, and the pool is announced", func() bool {
			return strings.Contains(about(b.vip.String()), path) &&
				strings.Contains(about(b.vip.String()), "(65535,0)") == when.drained &&
				strings.Contains(about(own), path+"\n") && !strings.Contains(about(own), "(65535,0)") &&
				strings.Contains(about(other), path+" 64512 64512 64512\n") &&
				!strings.Contains(about(other), "(65535,0)")
		})
	}
	stop(t, b.daemon)
	testenv.Eventually(t, e2e.WaitLimit, "the router knows none of them any more", func() bool {
		return about(own) == "" && about(other) == "" && about(b.vip.String()) == ""
	})
}
