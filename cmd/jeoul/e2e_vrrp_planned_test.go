// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	datagrams "github.com/jeoul/jeoul/internal/weigh/numbered"
)

// balancerPair holds two balancers that share VIPs: the first has the higher priority.
type balancerPair struct {
	lab  *lab.Lab
	both [2]*balancer
}

// streamTarget is the target of numbered datagrams.
var streamTarget = netip.MustParseAddrPort("198.18.0.105:9999")

func newBalancerPair(t *testing.T, interval string) *balancerPair {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 2, Servers: 1})
	c := &balancerPair{lab: l}
	for i, host := range []*lab.Host{l.Balancer, l.Clients[1]} {
		c.both[i] = newBalancer(t, host)
		c.both[i].configure(t, lb.HookTC, entry{"vrrp": entry{"id": 51, "priority": 200 - i, "interval": interval},
			"services": []entry{{"name": "stream", "vip": streamTarget.Addr().String(), "port": streamTarget.Port(),
				"protocol": "udp", "mode": "l2dsr",
				"backends": []entry{{"name": "one", "address": l.Servers[0].IPv4.String()}}}}})
		c.both[i].start(t)
		t.Cleanup(func() { _ = c.both[i].daemon.Stop(context.Background()) })
	}
	c.active(t, 0, "at first")
	return c
}

// active waits until one of the balancers is active.
func (c *balancerPair) active(t *testing.T, which int, when string) {
	t.Helper()
	c.both[which].eventually(t, fmt.Sprintf("%s, %s holds the VIPs", when, c.both[which].host.Name),
		func(s *ops.Status) bool { return s.VRRP.State == "active" && !s.VRRP.Both })
}

// stream sends numbered datagrams from the first client until the test ends.
func (c *balancerPair) stream(t *testing.T, rate int) *datagrams.Stream {
	t.Helper()
	stream, err := datagrams.New(datagrams.Options{Target: streamTarget, Rate: rate, Flows: 16})
	if err != nil {
		t.Fatal(err)
	}
	server := c.lab.Servers[0]
	device, _, err := server.Indexes()
	if err == nil {
		err = server.Do(func() error { return stream.Receive(device) })
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.lab.Clients[0].Do(func() error { return stream.Send(ctx) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
	})
	return stream
}

// plannedSwitches are deliberate changes of the role, in their order, with the balancer that is active afterwards.
var plannedSwitches = []struct {
	what   string
	do     func(*testing.T, *balancerPair)
	active int
}{
	{"drain", func(t *testing.T, c *balancerPair) { c.both[0].commandBalancer(t, "drain") }, 1},
	{"undrain", func(t *testing.T, c *balancerPair) { c.both[0].commandBalancer(t, "undrain") }, 0},
	{"stop", func(t *testing.T, c *balancerPair) {
		if err := c.both[0].daemon.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-c.both[0].daemon.Done()
	}, 1},
	{"start", func(t *testing.T, c *balancerPair) { c.both[0].start(t) }, 0},
	{"restart", func(t *testing.T, c *balancerPair) {
		if err := c.both[0].daemon.Signal(syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		<-c.both[0].daemon.Done()
		c.both[0].start(t)
	}, 0},
}

// TestPlannedSwitches: no packet is lost when the VIPs move deliberately from one balancer to another.
func TestPlannedSwitches(t *testing.T) {
	t.Parallel()
	c := newBalancerPair(t, "100ms")
	lost := c.testPlannedSwitches(t, c.stream(t, 2000), 2000)
	for _, p := range plannedSwitches {
		if gaps := lost[p.what]; len(gaps) > 0 {
			t.Errorf("%s: lost %+v", p.what, gaps)
		}
	}
}

// TestStalledBalancers: the VIPs stay when the active balancer is stopped for less than three intervals, and when both
// are stopped for longer, as on a suspended host, and continue. Nothing else may stop them meanwhile; the election's
// own tests have the same cases under a clock of theirs.
func TestStalledBalancers(t *testing.T) {
	testenv.Target(t, vrrpTarget)
	t.Parallel()
	c := newBalancerPair(t, "1s")
	changes := func(of *balancer) (n uint64) {
		t.Helper()
		of.eventually(t, "it has a status", func(s *ops.Status) bool { n = s.VRRP.Changes; return true })
		return n
	}
	before := [2]uint64{changes(c.both[0]), changes(c.both[1])}
	// stall returns how long they were stopped at most: a busy machine may take longer than requested. Another process
	// sends the signals: a test program that is stopped itself between two of them would have one balancer run without
	// the other one for that long.
	stall := func(d time.Duration, which ...*balancer) time.Duration {
		t.Helper()
		began := time.Now()
		var pids string
		for _, b := range which {
			pids += fmt.Sprintf(" %d", b.daemon.PID())
		}
		script := fmt.Sprintf("kill -STOP%[1]s && sleep %[2]g && kill -CONT%[1]s", pids, d.Seconds())
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return time.Since(began)
	}
	for _, each := range []struct {
		what    string
		lasts   time.Duration
		stopped []*balancer
	}{
		{"the active one, for 1.8 intervals", 1800 * time.Millisecond, c.both[:1]},
		{"both, for 3.5 intervals", 3500 * time.Millisecond, []*balancer{c.both[1], c.both[0]}},
		{"both, for 3.9 intervals", 3900 * time.Millisecond, []*balancer{c.both[1], c.both[0]}},
	} {
		lastAdvert := time.Now()
		for {
			lasted := stall(each.lasts, each.stopped...)
			if lasted < each.lasts+time.Second {
				break
			}
			t.Logf("%s: they were stopped for %v: once more", each.what, lasted)
			c.active(t, 0, each.what)
			before, lastAdvert = [2]uint64{changes(c.both[0]), changes(c.both[1])}, time.Now()
		}
		c.both[1].eventually(t, "the backup receives the active one", func(s *ops.Status) bool {
			return s.VRRP.Peer != nil && s.VRRP.Peer.Heard.After(lastAdvert.Add(2*time.Second))
		})
		for i, b := range c.both {
			if now := changes(b); now != before[i] {
				t.Errorf("%s stopped: the role of %s has changed %d times", each.what, b.host.Name, now-before[i])
			}
		}
	}
}

// roleChanges returns how often a balancer's role has changed.
func roleChanges(t *testing.T, b *balancer) uint64 {
	t.Helper()
	return b.status(t).VRRP.Changes
}

// TestBackupDoesNotBalance: a client that has the backup's MAC address gets nothing from it, and that is counted, until
// the backup has become active; then it balances immediately. When the role has gone again, it continues for a while.
func TestBackupDoesNotBalance(t *testing.T) {
	t.Parallel()
	// Between balancers that announce ten times a second, the role changes if a busy machine delays one.
	c := newBalancerPair(t, "1s")
	backup := c.both[1]
	passed := func() uint64 { return backup.outcomes(t)["passed_backup"] }
	sent := func() uint64 { return backup.status(t).Services[0].Backends[0].Packets }
	within(t, c.lab.Clients[0], func() error {
		link, err := netlink.LinkByName(c.lab.Clients[0].Interface)
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: streamTarget.Addr().AsSlice(),
			HardwareAddr: backup.host.MAC, State: netlink.NUD_PERMANENT})
	})
	c.stream(t, 500)
	// A backup that became active while a busy machine delayed the other one continues to balance for a minute. If that
	// happens while its packets are counted, they are counted again.
	testenv.Eventually(t, 3*e2e.WaitLimit, "packets come to a backup that stays one", func() bool {
		role, before := roleChanges(t, backup), passed()
		testenv.Eventually(t, 3*e2e.WaitLimit, "packets come to the backup", func() bool { return passed() > before })
		balanced, first := sent(), passed()
		testenv.Eventually(t, 3*e2e.WaitLimit, "more packets come to the backup", func() bool {
			return passed() > first+200
		})
		n := sent() - balanced
		if now := roleChanges(t, backup); now != role {
			t.Logf("the backup's role has changed %d times: once more", now-role)
			return false
		}
		if n != 0 {
			t.Errorf("the backup has balanced %d packets", n)
		}
		return true
	})
	c.both[0].commandBalancer(t, "drain")
	c.active(t, 1, "drained")
	left := passed()
	testenv.Eventually(t, e2e.WaitLimit, "the balancer that has become active balances", func() bool {
		return sent() > 200
	})
	c.both[0].commandBalancer(t, "undrain")
	c.active(t, 0, "undrained")
	backup.eventually(t, "it is the backup again", func(s *ops.Status) bool { return s.VRRP.State == "backup" })
	before := sent()
	testenv.Eventually(t, e2e.WaitLimit, "what still arrives is balanced", func() bool { return sent() > before+200 })
	if n := passed(); n != left {
		t.Errorf("from the moment on at which it became active, it left %d packets to the kernel", n-left)
	}
}

// TestInterfaceOfVRRPIsMadeAnew deletes the active balancer's interface, and creates it again with the same name:
// another one takes over in between, and then the VIPs come back, and a client that sends nothing learns their place.
func TestInterfaceOfVRRPIsMadeAnew(t *testing.T) {
	testenv.Target(t, matrixTarget)
	t.Parallel()
	l := newLab(t, lab.Spec{Clients: 2, Servers: 1})
	client := l.Clients[0]
	p := &vrrpPair{hosts: [2]*lab.Host{l.Balancer, l.Clients[1]}, vips: vipsEnding(105)}
	both := p.startBalancers(t, l.Servers[0])
	role := func(which int, state string) {
		t.Helper()
		both[which].within(t, 3*e2e.WaitLimit, fmt.Sprintf("%s is %s", p.hosts[which].Name, state),
			func(s *ops.Status) bool { return s.VRRP.State == state && !s.VRRP.Both })
	}
	role(0, "active")
	role(1, "backup")
	p.askForVIPs(t, client)
	p.awaitNeighbour(t, client, 0, "at first")
	var addresses []netlink.Addr
	var old int
	within(t, l.Balancer, func() error {
		link, err := netlink.LinkByName(l.Balancer.Interface)
		if err != nil {
			return err
		}
		old = link.Attrs().Index
		all, err := netdump.Consistent(func() ([]netlink.Addr, error) {
			return netlink.AddrList(link, netlink.FAMILY_ALL)
		})
		for _, a := range all {
			if addr, _ := netip.AddrFromSlice(a.IP); addr.Unmap() == l.Balancer.IPv4 || addr == l.Balancer.IPv6 {
				addresses = append(addresses, netlink.Addr{IPNet: a.IPNet})
			}
		}
		return errors.Join(err, netlink.LinkDel(link))
	})
	role(1, "active")
	p.awaitNeighbour(t, client, 1, "without the interface")
	if index := replug(t, l, addresses); index == old {
		t.Fatalf("the interface that was made anew has the old one's index %d", old)
	}
	role(0, "active")
	role(1, "backup")
	p.awaitNeighbour(t, client, 0, "with an interface made anew")
}

// replug connects the balancer to the switch with a new cable that has the names and the MAC address of the previous
// one, and the balancer's addresses.
func replug(t *testing.T, l *lab.Lab, addresses []netlink.Addr) (index int) {
	t.Helper()
	var at *namespace.Namespace
	within(t, l.Switch, func() (err error) { at, err = namespace.Current(); return err })
	defer at.Close()
	host := l.Balancer
	within(t, host, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: host.Interface, HardwareAddr: host.MAC},
			PeerName: host.Port, PeerNamespace: netlink.NsFd(at.Handle())}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		link, err := netlink.LinkByName(host.Interface)
		if err != nil {
			return err
		}
		index = link.Attrs().Index
		for i := range addresses {
			addresses[i].Flags = unix.IFA_F_NODAD
			err = errors.Join(err, netlink.AddrAdd(link, &addresses[i]))
		}
		return errors.Join(err, netlink.LinkSetUp(link))
	})
	within(t, l.Switch, func() error {
		port, err := netlink.LinkByName(host.Port)
		if err != nil {
			return err
		}
		bridge, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetMaster(port, bridge), netlink.LinkSetUp(port))
	})
	return index
}

// TestMeasureVRRPSwitches counts the packets that planned changes of the role lose: JEOUL_TEST_VRRP is how often each
// is made.
func TestMeasureVRRPSwitches(t *testing.T) {
	testenv.Target(t, vrrpTarget)
	times, err := strconv.Atoi(os.Getenv("JEOUL_TEST_VRRP"))
	if err != nil {
		t.Skip("JEOUL_TEST_VRRP does not say how often")
	}
	const rate = 20_000
	c := newBalancerPair(t, "100ms")
	stream, lost := c.stream(t, rate), map[string]uint64{}
	for range times {
		for what, gaps := range c.testPlannedSwitches(t, stream, rate) {
			for _, gap := range gaps {
				lost[what] += gap.Length
			}
		}
	}
	for _, p := range plannedSwitches {
		t.Logf("%s: %d datagrams lost of %d a second, at %d changes", p.what, lost[p.what], rate, times)
	}
}

// testPlannedSwitches makes the planned changes under a stream, and returns the gaps of each.
func (c *balancerPair) testPlannedSwitches(t *testing.T, stream *datagrams.Stream,
	rate int) map[string][]datagrams.Gap {
	t.Helper()
	came := func(since uint64) {
		t.Helper()
		testenv.Eventually(t, e2e.WaitLimit, "datagrams are sent", func() bool {
			return stream.Sent() > since+uint64(rate)/2
		})
	}
	came(0)
	lost := map[string][]datagrams.Gap{}
	from := stream.Sent()
	for _, p := range plannedSwitches {
		for p.do(t, c); c.succeededLate(t, p.what); p.do(t, c) {
			t.Logf("%s: the other balancer was stopped meanwhile: once more", p.what)
			c.both[0].start(t)
			c.active(t, 0, "started again")
			from = stream.Sent()
		}
		c.active(t, p.active, p.what)
		came(stream.Sent())
		to := stream.Sent()
		gaps, err := stream.Missing(t.Context(), from, to)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d datagrams, lost %+v", p.what, to-from, gaps)
		lost[p.what], from = gaps, to
	}
	return lost
}

// succeededLate reports, after the first balancer has ended by a stop, whether the other one has become active only
// later: it takes the VIPs over within a fraction of an interval, unless the machine stops it.
func (c *balancerPair) succeededLate(t *testing.T, what string) (late bool) {
	t.Helper()
	if what != "stop" {
		return false
	}
	ended := time.Now()
	c.both[1].eventually(t, "the other balancer has taken the VIPs over", func(s *ops.Status) bool {
		late = s.VRRP.Since.After(ended)
		return s.VRRP.State == "active"
	})
	return late
}
