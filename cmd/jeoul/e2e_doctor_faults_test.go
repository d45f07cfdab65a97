// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/doctor"
	"github.com/jeoul/jeoul/internal/weigh/flood"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// within runs a function on a host, and fails the test if it fails.
func within(t *testing.T, host *lab.Host, f func() error) {
	t.Helper()
	if err := host.Do(f); err != nil {
		t.Fatalf("%s: %v", host.Name, err)
	}
}

// undoAtCleanup undoes a fault at the end of its test.
func undoAtCleanup(t *testing.T, host *lab.Host, f func() error) {
	t.Helper()
	t.Cleanup(func() { within(t, host, f) })
}

// set sets a sysctl of a host, and restores it.
func set(t *testing.T, host *lab.Host, name, value string) {
	t.Helper()
	var before string
	within(t, host, func() (err error) {
		if before, err = testenv.Sysctl(name); err != nil {
			return err
		}
		return testenv.WriteSysctl(name, value)
	})
	undoAtCleanup(t, host, func() error { return testenv.WriteSysctl(name, before) })
}

// runOn runs a program on a host.
func runOn(t *testing.T, host *lab.Host, input, name string, arguments ...string) {
	t.Helper()
	path := testenv.Program(t, name)
	within(t, host, func() error {
		c := exec.Command(path, arguments...)
		c.Stdin = strings.NewReader(input)
		if output, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %v\n%s", name, err, output)
		}
		return nil
	})
}

// repeat calls a function repeatedly until the test ends.
func repeat(t *testing.T, every time.Duration, f func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ticker := time.NewTicker(every); ; {
			f(ctx)
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// fullListenQueue runs a program that listens and does not accept.
func fullListenQueue(t *testing.T, w *doctorLab) {
	web := w.Servers[0]
	const port = 8099
	within(t, web, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		return errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: port}), unix.Listen(fd, 1))
	})
	to := netip.AddrPortFrom(web.IPv4, port).String()
	repeat(t, 50*time.Millisecond, func(ctx context.Context) {
		_ = w.Clients[0].Do(func() error {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
			if err == nil {
				t.Cleanup(func() { connection.Close() })
			}
			return err
		})
	})
	w.expectFinding(t, web, "listen-queue-full", fmt.Sprintf(":%d", port))
}

// fullConntrack fills the connection tracking table of a backend with stateful rules.
func fullConntrack(t *testing.T, w *doctorLab) {
	web := w.Servers[0]
	runOn(t, web, "table inet ward { chain in { type filter hook input priority 0; ct state invalid drop; }; }",
		"nft", "-f", "-")
	undoAtCleanup(t, web, func() error { return exec.Command("nft", "delete", "table", "inet", "ward").Run() })
	w.fill(t, web)
	undoAtCleanup(t, web, func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	w.expectFinding(t, web, "conntrack-full", "full")
}

// fill sends a host one datagram after another, each of a new flow, until its table has no room.
func (w *doctorLab) fill(t *testing.T, web *lab.Host) {
	t.Helper()
	seed := uint64(0)
	testenv.Eventually(t, e2e.WaitLimit, "the table of connections is full", func() (full bool) {
		seed++
		w.flood(t, web, "198.19.0.0/16", flood.Options{Limit: 300_000, Rate: 400_000, Seed: seed})
		within(t, web, func() (err error) {
			full, err = tableFull()
			return err
		})
		return full
	})
}

// flood sends datagrams from the second client to a backend's port that no process reads.
func (w *doctorLab) flood(t *testing.T, web *lab.Host, sources string, options flood.Options) {
	t.Helper()
	client := w.Clients[1]
	within(t, client, func() error {
		link, err := netlink.LinkByName(client.Interface)
		if err != nil {
			return err
		}
		options.Packets, options.Sources, options.Target = flood.UDP, netip.MustParsePrefix(sources),
			netip.AddrPortFrom(web.IPv4, discardPort)
		options.From, options.To, options.Interface = client.MAC, []net.HardwareAddr{web.MAC}, link.Attrs().Index
		f, err := flood.New(options)
		if err != nil {
			return err
		}
		return errors.Join(f.Run(t.Context(), 0), f.Close())
	})
}

// discardPort is a port that no process listens on.
const discardPort = 9

func tableFull() (bool, error) {
	var count, limit int
	for name, into := range map[string]*int{"count": &count, "max": &limit} {
		text, err := testenv.Sysctl("net/netfilter/nf_conntrack_" + name)
		if err != nil {
			return false, err
		}
		if _, err := fmt.Sscan(text, into); err != nil {
			return false, err
		}
	}
	return count >= limit-limit/100, nil
}

// failingNeighbour sets a backend's link down.
func failingNeighbour(t *testing.T, w *doctorLab) {
	web := w.Servers[2]
	within(t, web, func() error { return linkUp(web.Interface, false) })
	t.Cleanup(func() { w.awaitAllUp(t) })
	within(t, w.Lab.Balancer, func() error { return forget(w.Lab.Balancer, web.IPv4) })
	w.eventually(t, "the balancer misses the backend", func(s *ops.Status) bool { return !allUp(s) })
	undoAtCleanup(t, web, func() error { return linkUp(web.Interface, true) })
	w.expectFinding(t, w.Lab.Balancer, "neighbour-failed", web.IPv4.String())
}

// awaitAllUp waits until all backends are up, also at the end of a test.
func (w *doctorLab) awaitAllUp(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, e2e.WaitLimit, "every backend is up", func() bool { return allUp(w.status(t)) })
}

func linkUp(name string, up bool) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if up {
		return netlink.LinkSetUp(link)
	}
	return netlink.LinkSetDown(link)
}

// forget deletes a neighbour. It runs inside the host.
func forget(host *lab.Host, address netip.Addr) error {
	link, err := netlink.LinkByName(host.Interface)
	if err != nil {
		return err
	}
	err = netlink.NeighDel(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: address.AsSlice()})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// reversePathDrop gives a backend a second interface by which it would answer the client, and the strict filter.
func reversePathDrop(t *testing.T, w *doctorLab) {
	web, client := w.Servers[0], w.Clients[0]
	within(t, web, func() error {
		leg := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "leg"}, PeerName: "leg-peer"}
		if err := netlink.LinkAdd(leg); err != nil {
			return err
		}
		if err := errors.Join(linkUp("leg", true), linkUp("leg-peer", true)); err != nil {
			return err
		}
		link, err := netlink.LinkByName("leg")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: hostNet(client.IPv4),
			Scope: netlink.SCOPE_LINK})
	})
	undoAtCleanup(t, web, func() error {
		link, err := netlink.LinkByName("leg")
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	set(t, web, "net/ipv4/conf/"+web.Interface+"/rp_filter", "1")
	w.expectFinding(t, web, "rp-filter", client.IPv4.String())
}

// filteredPort makes a backend drop everything that no rule of a chain accepts, as firewalls are configured.
func filteredPort(t *testing.T, w *doctorLab) {
	web := w.Servers[0]
	runOn(t, web, "table inet ward { chain allowed { tcp dport 22 accept; }; "+
		"chain in { type filter hook input priority 0; policy drop; iif lo accept; meta l4proto { icmp, icmpv6 } accept; jump allowed; }; }",
		"nft", "-f", "-")
	undoAtCleanup(t, web, func() error { return exec.Command("nft", "delete", "table", "inet", "ward").Run() })
	w.expectFinding(t, web, "filter-drops", netip.AddrPortFrom(w.VIP4, doctorPort).String())
}

// wrongMACAddress configures a neighbour that does not exist.
func wrongMACAddress(t *testing.T, w *doctorLab) {
	web, balancer := w.Servers[1], w.Lab.Balancer
	within(t, balancer, func() error {
		link, err := netlink.LinkByName(balancer.Interface)
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: netlink.FAMILY_V4,
			State: netlink.NUD_PERMANENT,
			IP:    web.IPv4.AsSlice(), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0xde, 0xad}})
	})
	t.Cleanup(func() { w.awaitAllUp(t) })
	undoAtCleanup(t, balancer, func() error { return forget(balancer, web.IPv4) })
	w.expectFinding(t, balancer, "wrong-mac", web.IPv4.String())
}

// missingVIP stops a backend's agent, which removes the VIP with it; the doctor runs on the balancer and on the
// backend.
func missingVIP(t *testing.T, w *doctorLab) {
	web := w.Servers[0]
	stop(t, w.agents[web.Name])
	t.Cleanup(func() { w.startAgent(t, web) })
	w.expectFinding(t, w.Lab.Balancer, "vip-missing", web.Name)
	w.expectFinding(t, web, "vip-missing", w.VIP4.String())
}

// answeredARP puts the VIP on a backend's loopback, as the agent does, without the ARP settings that go with it.
func answeredARP(t *testing.T, w *doctorLab) {
	web := w.Servers[0]
	stop(t, w.agents[web.Name])
	t.Cleanup(func() { w.startAgent(t, web) })
	vip := func(change func(netlink.Link, *netlink.Addr) error) error {
		link, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return change(link, &netlink.Addr{IPNet: hostNet(w.VIP4)})
	}
	within(t, web, func() error { return vip(netlink.AddrAdd) })
	for _, client := range w.Clients {
		// They may have learnt the wrong address.
		undoAtCleanup(t, client, func() error { return forget(client, w.VIP4) })
	}
	undoAtCleanup(t, web, func() error { return vip(netlink.AddrDel) })
	w.expectFinding(t, w.Lab.Balancer, "vip-answered", web.MAC.String())
	w.expectFinding(t, w.Clients[1], "vip-answered", "2 hosts", "--vip", w.VIP4.String())
}

// tinyBacklog gives a core more packets than it takes. net.core.netdev_max_backlog applies to the whole machine and
// stays, but a backend's packets are steered to one core (RPS), which has thousands of rules to evaluate for each,
// several times over: the flood comes through the rings of two veth pairs. If the steered core itself empties those, no
// more packets arrive than it takes; so each flood is short, because the next one may have better luck.
func tinyBacklog(t *testing.T, w *doctorLab) {
	web := w.Servers[0]
	if runtime.NumCPU() < 2 {
		t.Skip("packets cannot be steered to another core: there is one only")
	}
	rules := strings.Repeat(fmt.Sprintf("udp dport %d udp sport 1 drop;", discardPort), 3000)
	runOn(t, web, "table inet ward { chain slow { "+rules+" }; chain in { type filter hook prerouting priority -300; "+
		strings.Repeat("jump slow;", 32)+fmt.Sprintf("udp dport %d drop; }; }", discardPort), "nft", "-f", "-")
	undoAtCleanup(t, web, func() error { return exec.Command("nft", "delete", "table", "inet", "ward").Run() })
	steering := "/sys/class/net/" + web.Interface + "/queues/rx-0/rps_cpus"
	within(t, web, func() error { return os.WriteFile(steering, []byte("2"), 0) })
	undoAtCleanup(t, web, func() error { return os.WriteFile(steering, []byte("0"), 0) })
	// If others use the processors, the flood may be no more than the core takes while the doctor looks: then there is
	// nothing to find.
	for until := time.Now().Add(4 * e2e.WaitLimit); ; {
		r := w.examineInFlood(t, web)
		if found(r, "softnet-backlog") || time.Now().After(until) {
			checkFinding(t, web, r, "softnet-backlog", "backlog")
			return
		}
	}
}

// examineInFlood runs the doctor on a backend during a series of floods.
func (w *doctorLab) examineInFlood(t *testing.T, web *lab.Host) *doctor.Report {
	t.Helper()
	ended := make(chan *doctor.Report)
	go func() { ended <- w.examine(t, web) }()
	for seed := uint64(1); ; seed++ {
		select {
		case r := <-ended:
			return r
		default:
			w.flood(t, web, "198.18.77.0/24", flood.Options{Limit: 20_000, Rate: 200_000, Seed: seed})
		}
	}
}

// found reports whether the first finding is of a kind.
func found(r *doctor.Report, kind string) bool {
	return len(r.Findings) > 0 && r.Findings[0].Kind == kind
}

// exhaustedPorts leaves a client few ports, and holds connections open.
func exhaustedPorts(t *testing.T, w *doctorLab) {
	client := w.Clients[1]
	set(t, client, "net/ipv4/ip_local_port_range", "40000 40063")
	to := netip.AddrPortFrom(w.VIP4, doctorPort)
	for {
		var connection net.Conn
		err := client.Do(func() (err error) {
			connection, err = net.DialTimeout("tcp", to.String(), e2e.WaitLimit)
			return err
		})
		if errors.Is(err, unix.EADDRNOTAVAIL) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { connection.Close() })
	}
	w.expectFinding(t, client, "ports-exhausted", to.String())
}

// narrowBackend sets the MTU of a backend's interface below that of the segment.
func narrowBackend(t *testing.T, w *doctorLab) {
	web := w.Servers[1]
	within(t, web, func() error { return setMTU(web.Interface, 1400) })
	undoAtCleanup(t, web, func() error { return setMTU(web.Interface, 1500) })
	w.expectFinding(t, w.Lab.Balancer, "mtu-black-hole", web.IPv4.String())
}

func setMTU(name string, mtu int) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetMTU(link, mtu)
}

// narrowClient puts a client behind a narrow link whose router may not report it.
func narrowClient(t *testing.T, w *doctorLab) {
	web, gateway := w.Servers[0], w.Clients[1]
	far := e2e.NewFar(t, gateway, 1)
	within(t, web, func() error { return e2e.LeadToFar(gateway, 0) })
	runOn(t, gateway,
		"table inet ward { chain out { type filter hook output priority 0; icmp type destination-unreachable drop; }; }", "nft", "-f", "-")
	undoAtCleanup(t, gateway, func() error { return exec.Command("nft", "delete", "table", "inet", "ward").Run() })
	// Otherwise they would hang for minutes.
	t.Cleanup(func() {
		if err := web.DestroySockets(); err != nil {
			t.Error(err)
		}
	})
	// The web server's own address: replies from the VIP would do as well.
	to := netip.AddrPortFrom(web.IPv4, doctorPort).String()
	repeat(t, 100*time.Millisecond, func(ctx context.Context) {
		_ = far.Do(func() error {
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
			if err != nil {
				return err
			}
			t.Cleanup(func() { connection.Close() })
			_, err = fmt.Fprintf(connection, "GET / HTTP/1.1\r\nHost: far\r\n\r\n")
			return err
		})
	})
	w.expectFinding(t, web, "mtu-black-hole", far.Addresses[0].String(), "--for", "3s")
}

// slowBackend makes one backend take ten times as long, and more, because a busy machine makes the others slow as well.
func slowBackend(t *testing.T, w *doctorLab) {
	web := w.Servers[1]
	w.delays[web.Name].Store(int64(20 * doctorDelay))
	t.Cleanup(func() { w.delays[web.Name].Store(int64(doctorDelay)) })
	w.expectFinding(t, w.Lab.Balancer, "backend-slow", web.Name, "--for", "3s")
}
