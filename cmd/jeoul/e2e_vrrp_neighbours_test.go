// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// vrrpPair holds two hosts that share VIPs of both families; the first has the higher priority.
type vrrpPair struct {
	hosts [2]*lab.Host
	vips  []netip.Addr
}

// vipsEnding returns VIPs of both families.
func vipsEnding(last uint8) []netip.Addr {
	return []netip.Addr{
		netip.AddrFrom4([4]byte{198, 18, 0, last}),
		netip.MustParseAddr(fmt.Sprintf("2001:2::%d", last)),
	}
}

// startBalancers starts a balancer on each host of a pair, with the VRID 51.
func (p *vrrpPair) startBalancers(t *testing.T, server *lab.Host) (both [2]*balancer) {
	t.Helper()
	for i, host := range p.hosts {
		var services []entry
		for n, address := range []netip.Addr{server.IPv4, server.IPv6} {
			services = append(services, entry{"name": fmt.Sprintf("web%d", n), "vip": p.vips[n].String(), "port": 80,
				"mode": "l2dsr", "backends": []entry{{"name": server.Name, "address": address.String()}}})
		}
		both[i] = newBalancer(t, host)
		both[i].configure(t, lb.HookTC, entry{
			"vrrp": entry{"id": 51, "priority": 200 - 50*i, "interval": "100ms"}, "services": services})
		both[i].start(t)
	}
	return both
}

// part blocks broadcasts and multicasts between the first hosts of pairs and the others, in both directions, like a
// switch port that spanning tree blocks; their links stay up. Without apart, it unblocks them.
func part(t *testing.T, l *lab.Lab, apart bool, pairs ...*vrrpPair) {
	t.Helper()
	var commands strings.Builder
	for _, p := range pairs {
		fmt.Fprintf(&commands, "link set dev %s state %d\n", p.hosts[0].Port, map[bool]int{true: 0, false: 3}[apart])
	}
	runOn(t, l.Switch, commands.String(), "bridge", "-batch", "-")
}

// askForVIPs makes a client resolve VIPs, as it does when it has something to send there.
func (p *vrrpPair) askForVIPs(t *testing.T, client *lab.Host) {
	t.Helper()
	within(t, client, func() error {
		for _, vip := range p.vips {
			conn, err := net.Dial("udp", netip.AddrPortFrom(vip, 9).String())
			if err != nil {
				return err
			}
			_, err = conn.Write([]byte("x"))
			_ = conn.Close()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// hasNeighbour reports whether a client has the MAC address of one host for all VIPs.
func (p *vrrpPair) hasNeighbour(t *testing.T, client *lab.Host, which int) bool {
	t.Helper()
	right := 0
	within(t, client, func() error {
		list, err := netdump.Consistent(func() ([]netlink.Neigh, error) {
			return netlink.NeighList(0, netlink.FAMILY_ALL)
		})
		for _, n := range list {
			address, _ := netip.AddrFromSlice(n.IP)
			if slices.Contains(p.vips, address.Unmap()) && n.HardwareAddr.String() == p.hosts[which].MAC.String() {
				right++
			}
		}
		return err
	})
	return right == len(p.vips)
}

// awaitNeighbour waits until a client has the MAC address of one host.
func (p *vrrpPair) awaitNeighbour(t *testing.T, client *lab.Host, which int, when string) {
	t.Helper()
	what := fmt.Sprintf("%s, %s has the MAC address of %s", when, client.Name, p.hosts[which].Name)
	testenv.Eventually(t, e2e.WaitLimit, what, func() bool { return p.hasNeighbour(t, client, which) })
}

// TestNeighboursAfterPartition: when two balancers were active and receive each other again, the neighbours that have
// the MAC address of the one that yields learn that of the other, for the VIPs of both families. The client sends
// nothing, so only the balancers can correct it. An advertisement of another group with the same ID changes nothing,
// and is reported.
func TestNeighboursAfterPartition(t *testing.T) {
	t.Parallel()
	testenv.Program(t, "bridge")
	testenv.Program(t, "keepalived")
	l := newLab(t, lab.Spec{Clients: 3, Servers: 1})
	client := l.Clients[0]
	p := &vrrpPair{hosts: [2]*lab.Host{l.Balancer, l.Clients[1]}, vips: vipsEnding(105)}
	both := p.startBalancers(t, l.Servers[0])
	state := func(which int, state string) {
		t.Helper()
		both[which].eventually(t, fmt.Sprintf("%s is %s", p.hosts[which].Name, state),
			func(s *ops.Status) bool { return s.VRRP.State == state })
	}
	state(0, "active")
	state(1, "backup")
	p.askForVIPs(t, client)
	p.awaitNeighbour(t, client, 0, "at first")
	for range 2 {
		part(t, l, true, p)
		p.awaitNeighbour(t, client, 1, "apart")
		part(t, l, false, p)
		state(1, "backup")
		p.awaitNeighbour(t, client, 0, "together again")
		state(0, "active")
	}
	// Each of the two now has the other's state: the one that yields has said so.
	both[0].eventually(t, "the VIPs were announced again", func(s *ops.Status) bool { return s.VRRP.Announcements > 0 })

	other := l.Clients[2]
	startKeepalived(t, other, keepalivedConfig(other.Interface, 51, 250, vipsEnding(107)))
	for i, b := range both {
		b.eventually(t, "the other group is named", func(s *ops.Status) bool {
			foreign := s.VRRP.Foreign
			return len(foreign) > 0 && foreign[0].Priority == 250 &&
				slices.Contains(s.Problems, "VRRP: "+foreign[0].Reason)
		})
		state(i, []string{"active", "backup"}[i])
	}
}

// TestMeasureVRRPNeighbours measures, beside a pair of keepalived, how long after a partition a client has the MAC
// address of the active balancer for all VIPs, permanently: JEOUL_TEST_VRRP is the number of measurements.
func TestMeasureVRRPNeighbours(t *testing.T) {
	testenv.Target(t, vrrpTarget)
	times, err := strconv.Atoi(os.Getenv("JEOUL_TEST_VRRP"))
	if err != nil {
		t.Skip("JEOUL_TEST_VRRP does not say how often")
	}
	testenv.Program(t, "bridge")
	l := newLab(t, lab.Spec{Clients: 4, Servers: 1})
	client := l.Clients[0]
	pairs := map[string]*vrrpPair{
		"jeoul":      {hosts: [2]*lab.Host{l.Balancer, l.Clients[1]}, vips: vipsEnding(105)},
		"keepalived": {hosts: [2]*lab.Host{l.Clients[2], l.Clients[3]}, vips: vipsEnding(106)},
	}
	pairs["jeoul"].startBalancers(t, l.Servers[0])
	for i, host := range pairs["keepalived"].hosts {
		startKeepalived(t, host, keepalivedConfig(host.Interface, 61, 200-50*i, pairs["keepalived"].vips))
	}
	took := map[string][]time.Duration{}
	for range times {
		for _, p := range pairs {
			testenv.Eventually(t, e2e.WaitLimit, "the client has the first one's MAC address", func() bool {
				p.askForVIPs(t, client)
				return p.hasNeighbour(t, client, 0)
			})
		}
		part(t, l, true, pairs["jeoul"], pairs["keepalived"])
		for _, p := range pairs {
			p.awaitNeighbour(t, client, 1, "apart")
		}
		part(t, l, false, pairs["jeoul"], pairs["keepalived"])
		for name, d := range measureSwitch(t, client, pairs) {
			took[name] = append(took[name], d)
		}
	}
	for name, each := range took {
		slices.Sort(each)
		t.Logf("%s: a client has the active one's MAC address: median %s, most %s; all: %v",
			name, each[len(each)/2], each[len(each)-1], each)
	}
}

// measureSwitch measures the time from now until a client permanently has the first hosts' MAC addresses: for settled,
// or not within settleBound, which is then the figure.
func measureSwitch(t *testing.T, client *lab.Host, pairs map[string]*vrrpPair) map[string]time.Duration {
	t.Helper()
	const settled, settleBound = 3 * time.Second, 20 * time.Second
	begin, wrong := time.Now(), map[string]time.Duration{}
	for {
		done := true
		for name, p := range pairs {
			if !p.hasNeighbour(t, client, 0) {
				wrong[name] = time.Since(begin)
			}
			done = done && time.Since(begin)-wrong[name] > settled
		}
		if done || time.Since(begin) > settleBound {
			return wrong
		}
	}
}
