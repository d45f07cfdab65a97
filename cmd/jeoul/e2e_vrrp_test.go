// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// sharedPair is a balancer and a keepalived that share VIPs of both families on a segment.
type sharedPair struct {
	*balancer
	lab  *lab.Lab
	vips []netip.Addr
	peer *lab.Host
	// process is keepalived, and pid the file of its child that speaks VRRP.
	process *lab.Process
	pid     string
}

func newSharedPair(t *testing.T) *sharedPair {
	t.Helper()
	testenv.Program(t, "keepalived")
	l := newLab(t, lab.Spec{Clients: 2, Servers: 1})
	p := &sharedPair{balancer: newBalancer(t, l.Balancer), lab: l,
		vips: []netip.Addr{netip.MustParseAddr("198.18.0.105"), netip.MustParseAddr("2001:2::105")}, peer: l.Clients[1]}
	p.prefer(t, 200)
	return p
}

// prefer writes the configuration with a priority.
func (p *sharedPair) prefer(t *testing.T, priority int) {
	t.Helper()
	var services []entry
	for i, vip := range p.vips {
		server := p.lab.Servers[0]
		address := server.IPv4
		if vip.Is6() {
			address = server.IPv6
		}
		services = append(services, entry{"name": fmt.Sprintf("web%d", i), "vip": vip.String(), "port": 80,
			"mode": "l2dsr", "backends": []entry{{"name": server.Name, "address": address.String()}}})
	}
	p.configure(t, lb.HookTC, entry{"vrrp": entry{"id": 51, "priority": priority, "interval": "100ms"},
		"services": services})
}

// keepalived starts the other router, with the priority 150.
func (p *sharedPair) keepalived(t *testing.T) {
	t.Helper()
	p.process, p.pid = startKeepalived(t, p.peer, keepalivedConfig(p.peer.Interface, 51, 150, p.vips))
}

// keepalivedConfig returns the configuration of a keepalived with an instance for each VIP, which are one group.
func keepalivedConfig(device string, vrid, priority int, vips []netip.Addr) string {
	instances, group := "", ""
	for i, vip := range vips {
		group += fmt.Sprintf("    i%d\n", i)
		instances += fmt.Sprintf("vrrp_instance i%d {\n  state BACKUP\n  interface %s\n", i, device) +
			fmt.Sprintf("  virtual_router_id %d\n  priority %d\n  advert_int 0.1\n", vrid, priority) +
			fmt.Sprintf("  virtual_ipaddress { %s/%d }\n}\n", vip, vip.BitLen())
	}
	return "global_defs {\n  vrrp_version 3\n  enable_script_security\n}\n" +
		"vrrp_sync_group all {\n  group {\n" + group + "  }\n}\n" + instances
}

// startKeepalived starts a keepalived on a host until the test ends; pid is the file with the ID of its VRRP process.
func startKeepalived(t *testing.T, host *lab.Host, config string) (process *lab.Process, pid string) {
	t.Helper()
	testenv.Program(t, "keepalived")
	file, pid := filepath.Join(host.Dir, "keepalived.conf"), filepath.Join(host.Dir, "vrrp.pid")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log cmdtest.SyncBuffer
	arguments := []string{"-n", "-l", "-D", "--vrrp", "-f", file, "-p", filepath.Join(host.Dir, "keepalived.pid"), "-r",
		pid}
	process, err := host.Start(context.WithoutCancel(t.Context()),
		lab.Command{Path: "keepalived", Stdout: &log, Stderr: &log, Args: arguments})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("keepalived's log:\n%s", log.String())
		}
		signalVRRP(t, pid, syscall.SIGCONT)
		_ = process.Stop(context.Background())
	})
	return process, pid
}

// signal sends a signal to the VRRP process.
func (p *sharedPair) signal(t *testing.T, s syscall.Signal) { signalVRRP(t, p.pid, s) }

func signalVRRP(t *testing.T, file string, s syscall.Signal) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		return // it has ended
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, s); err != nil {
		t.Errorf("signal keepalived: %v", err)
	}
}

// vipsOn lists the VIPs of a host.
func (p *sharedPair) vipsOn(t *testing.T, host *lab.Host) (some []netip.Addr) {
	t.Helper()
	err := host.Do(func() error {
		link, err := netlink.LinkByName(host.Interface)
		if err != nil {
			return err
		}
		list, err := netdump.Consistent(func() ([]netlink.Addr, error) {
			return netlink.AddrList(link, netlink.FAMILY_ALL)
		})
		for _, a := range list {
			if addr, ok := netip.AddrFromSlice(a.IP); ok && slices.Contains(p.vips, addr.Unmap()) {
				some = append(some, addr.Unmap())
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return some
}

// expectHeld waits until each of the two has all VIPs or none, as given.
func (p *sharedPair) expectHeld(t *testing.T, when string, ours, theirs bool) {
	t.Helper()
	count := map[bool]int{true: len(p.vips)}
	testenv.Eventually(t, e2e.WaitLimit, fmt.Sprintf("%s, the VIPs are held by jeoul: %v, by keepalived: %v", when, ours,
		theirs), func() bool {
		return len(p.vipsOn(t, p.host)) == count[ours] && len(p.vipsOn(t, p.peer)) == count[theirs]
	})
}

// partition disconnects the two from each other, or connects them again.
func (p *sharedPair) partition(t *testing.T, on bool) {
	t.Helper()
	if on {
		runOn(t, p.peer,
			"table inet apart { chain in { type filter hook input priority 0; meta l4proto 112 drop; }; chain out { type filter hook output priority 0; meta l4proto 112 drop; }; }", "nft", "-f", "-")
		return
	}
	runOn(t, p.peer, "", "nft", "delete", "table", "inet", "apart")
}

func (p *sharedPair) role(t *testing.T, what, state string) {
	t.Helper()
	p.eventually(t, what, func(s *ops.Status) bool { return s.VRRP != nil && s.VRRP.State == state })
}

// reprioritize gives the balancer another priority by a reload.
func (p *sharedPair) reprioritize(t *testing.T, priority int) {
	t.Helper()
	p.prefer(t, priority)
	p.sendSIGHUP(t)
}

// TestSharedWithKeepalived: the VIPs of both families are at the balancer or at keepalived, by priority, over drains,
// reloads, silence, a partition, a stop and a kill.
func TestSharedWithKeepalived(t *testing.T) {
	t.Parallel()
	p := newSharedPair(t)
	p.keepalived(t)
	p.expectHeld(t, "alone", false, true)
	p.start(t)
	p.expectHeld(t, "with more priority", true, false)
	p.role(t, "it says so", "active")

	p.commandBalancer(t, "drain", "--wait")
	p.expectHeld(t, "drained", false, true)
	p.commandBalancer(t, "undrain")
	p.expectHeld(t, "undrained", true, false)
	p.reprioritize(t, 100)
	p.expectHeld(t, "with less priority", false, true)
	p.eventually(t, "the peer is shown", func(s *ops.Status) bool {
		return s.VRRP.State == "backup" && s.VRRP.Peer != nil && s.VRRP.Peer.Priority == 150 && s.VRRP.Rejected == 0 &&
			s.VRRP.Problem == ""
	})

	p.partition(t, true)
	p.expectHeld(t, "apart", true, true)
	p.partition(t, false)
	p.expectHeld(t, "together again", false, true)
	p.eventually(t, "that both were active is counted", func(s *ops.Status) bool { return s.VRRP.Conflicts > 0 })

	p.signal(t, syscall.SIGSTOP)
	p.role(t, "keepalived is silent", "active")
	p.signal(t, syscall.SIGCONT)
	p.expectHeld(t, "keepalived goes on", false, true)

	p.reprioritize(t, 200)
	p.expectHeld(t, "with more priority again", true, false)
	kill(t, p.daemon)
	p.expectHeld(t, "killed, and no other process comes", false, true)
	p.start(t)
	p.expectHeld(t, "another process", true, false)
	stop(t, p.daemon)
	p.expectHeld(t, "stopped", false, true)
}

// TestKilledWithVIPs: the VIPs of a killed balancer stay on the interface without a gap if another process continues
// soon, and are removed if none does.
func TestKilledWithVIPs(t *testing.T) {
	t.Parallel()
	p := newSharedPair(t)
	lost := p.watchLosses(t)
	p.start(t)
	p.expectHeld(t, "alone", true, false)
	killed := time.Now()
	kill(t, p.daemon)
	p.start(t)
	p.role(t, "alone again", "active")
	p.expectHeld(t, "another process", true, false)
	if took := time.Since(killed); took < 5*time.Second && lost.Load() > 0 {
		t.Errorf("a process that came back within %s lost VIPs %d times", took, lost.Load())
	}
	kill(t, p.daemon)
	p.expectHeld(t, "without a process", false, false)
	p.start(t)
	p.expectHeld(t, "long after", true, false)
	stop(t, p.daemon)
	p.expectHeld(t, "stopped", false, false)
}

// watchLosses counts the VIPs that are removed from the balancer's interface.
func (p *sharedPair) watchLosses(t *testing.T) *atomic.Int64 {
	t.Helper()
	var lost atomic.Int64
	updates, done := make(chan netlink.AddrUpdate, 100), make(chan struct{})
	if err := p.host.Do(func() error { return netlink.AddrSubscribe(updates, done) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(done) })
	go func() {
		for u := range updates {
			if addr, ok := netip.AddrFromSlice(u.LinkAddress.IP); ok && !u.NewAddr &&
				slices.Contains(p.vips, addr.Unmap()) {
				lost.Add(1)
			}
		}
	}()
	return &lost
}

// failover measures how long after the end of the active one the other has all VIPs.
func (p *sharedPair) failover(t *testing.T, to *lab.Host, end func()) time.Duration {
	t.Helper()
	begin := time.Now()
	end()
	for len(p.vipsOn(t, to)) < len(p.vips) {
		if time.Since(begin) > e2e.WaitLimit {
			t.Fatalf("after %s, %s has not the VIPs", e2e.WaitLimit, to.Name)
		}
	}
	return time.Since(begin).Round(time.Millisecond)
}

// TestMeasureVRRP measures failovers: JEOUL_TEST_VRRP is their number.
func TestMeasureVRRP(t *testing.T) {
	testenv.Target(t, vrrpTarget)
	times, err := strconv.Atoi(os.Getenv("JEOUL_TEST_VRRP"))
	if err != nil {
		t.Skip("JEOUL_TEST_VRRP does not say how often")
	}
	p := newSharedPair(t)
	p.keepalived(t)
	p.prefer(t, 149)
	p.start(t)
	p.expectHeld(t, "at first", false, true)
	took := map[string][]time.Duration{}
	for range times {
		note := func(what string, d time.Duration) { took[what] = append(took[what], d) }
		note("keepalived stopped by SIGSTOP, jeoul has the VIPs", p.failover(t, p.host, func() {
			p.signal(t, syscall.SIGSTOP)
		}))
		p.signal(t, syscall.SIGCONT)
		p.expectHeld(t, "keepalived goes on", false, true)
		link := func(host *lab.Host, up bool) {
			runOn(t, host, "", "ip", "link", "set", host.Interface, map[bool]string{true: "up", false: "down"}[up])
		}
		note("keepalived's link down, jeoul has the VIPs", p.failover(t, p.host, func() { link(p.peer, false) }))
		link(p.peer, true)
		p.expectHeld(t, "keepalived's link is up", false, true)
		p.reprioritize(t, 200)
		p.expectHeld(t, "with more priority", true, false)
		note("jeoul killed, keepalived has the VIPs", p.failover(t, p.peer, func() { kill(t, p.daemon) }))
		p.start(t)
		p.expectHeld(t, "another process", true, false)
		note("jeoul stopped, keepalived has the VIPs", p.failover(t, p.peer, func() {
			if err := p.daemon.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}))
		<-p.daemon.Done()
		p.prefer(t, 149)
		p.start(t)
		p.partition(t, true)
		p.expectHeld(t, "apart", true, true)
		begin := time.Now()
		p.partition(t, false)
		for len(p.vipsOn(t, p.host)) > 0 {
			if time.Since(begin) > e2e.WaitLimit {
				t.Fatal("two balancers stay active")
			}
		}
		note("a partition ends, jeoul has left the VIPs", time.Since(begin).Round(time.Millisecond))
		p.expectHeld(t, "together", false, true)
	}
	for what, each := range took {
		slices.Sort(each)
		t.Logf("%s: median %s, most %s; all: %v", what, each[len(each)/2], each[len(each)-1], each)
	}
}
