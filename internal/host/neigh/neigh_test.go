// SPDX-License-Identifier: Apache-2.0

package neigh

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// never is longer than any test: a change that is detected with it was detected without a probe.
const never = time.Hour

var (
	fastTiming = timing{retry: 20 * time.Millisecond, maxRetry: 50 * time.Millisecond, verifyNew: 20 * time.Millisecond,
		verify: 50 * time.Millisecond}
	slowTiming = timing{retry: 20 * time.Millisecond, maxRetry: 50 * time.Millisecond, verifyNew: 20 * time.Millisecond,
		verify: never}

	peer4, peer6     = netip.MustParseAddr("198.18.2.1"), netip.MustParseAddr("2001:2::2:1")
	absent4, absent6 = netip.MustParseAddr("198.18.2.9"), netip.MustParseAddr("2001:2::2:9")
	own4, own6       = netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:2::1")

	otherMAC = net.HardwareAddr{0x02, 0xaa, 0, 0, 0, 1}
)

// testLink is a balancer and a peer on one link, with a resolver on the balancer.
type testLink struct {
	tb             testing.TB
	balancer, peer *namespace.Namespace
	peerMAC        net.HardwareAddr
	resolver       *Resolver
}

func newTestLink(tb testing.TB, p timing) *testLink {
	tb.Helper()
	l := &testLink{tb: tb, balancer: testenv.Namespace(tb), peer: testenv.Namespace(tb)}
	_, l.peerMAC = testenv.Veth(tb,
		testenv.End{Namespace: l.balancer, Name: "eth0", Addresses: []netip.Prefix{netip.PrefixFrom(own4, 16),
			netip.PrefixFrom(own6, 64)}},
		testenv.End{Namespace: l.peer, Name: "eth0", Addresses: []netip.Prefix{netip.PrefixFrom(peer4, 16),
			netip.PrefixFrom(peer6, 64)}})
	testenv.In(tb, l.balancer, func() error {
		// The kernel sends its requests quickly one after the other, not a second apart.
		err := errors.Join(
			testenv.WriteSysctl("net/ipv4/neigh/eth0/retrans_time_ms", "20"),
			testenv.WriteSysctl("net/ipv6/neigh/eth0/retrans_time_ms", "20"))
		if err != nil {
			return err
		}
		l.resolver, err = newResolver(tb.Context(), "eth0", p)
		return err
	})
	tb.Cleanup(func() { l.resolver.Close() })
	return l
}

func (l *testLink) watch(addrs ...netip.Addr) {
	l.tb.Helper()
	if err := l.resolver.SetAddresses(addrs); err != nil {
		l.tb.Fatal(err)
	}
}

// awaitEntry waits for a signal after which the address has the MAC address and state. It only checks when signalled: a
// change without a signal fails the test.
func (l *testLink) awaitEntry(addr netip.Addr, mac net.HardwareAddr, state string) {
	l.tb.Helper()
	bound := time.After(testenv.WaitLimit)
	for {
		e := l.resolver.Entries()[addr]
		if e.State == state && cmp.Equal(e.MAC, mac) {
			if (e.Reason == "") != (mac != nil) {
				l.tb.Errorf("%s has MAC address %v and reason %q", addr, e.MAC, e.Reason)
			}
			return
		}
		select {
		case <-l.resolver.Changes():
		case <-bound:
			l.tb.Fatalf("%s is %+v, not %s with %v", addr, e, state, mac)
		}
	}
}

// onPeer runs f with the peer's link, inside its namespace.
func (l *testLink) onPeer(f func(netlink.Link) error) {
	l.tb.Helper()
	testenv.In(l.tb, l.peer, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return f(link)
	})
}

// families runs a test for both address families.
func families(t *testing.T, test func(t *testing.T, peer, absent netip.Addr)) {
	testenv.Root(t)
	t.Run("IPv4", func(t *testing.T) { test(t, peer4, absent4) })
	t.Run("IPv6", func(t *testing.T) { test(t, peer6, absent6) })
}

func TestResolve(t *testing.T) {
	l := newTestLink(t, slowTiming)
	l.watch(peer4, peer6)
	l.awaitEntry(peer4, l.peerMAC, Reachable)
	l.awaitEntry(peer6, l.peerMAC, Reachable)
	// An equal address in another form keeps the entry.
	l.watch(netip.AddrFrom16(peer4.As16()))
	if got := l.resolver.Entries(); len(got) != 1 || got[peer4].State != Reachable {
		t.Errorf("entries: %v", got)
	}
}

// TestKnown: Known distinguishes addresses in the kernel's neighbour table from others.
func TestKnown(t *testing.T) {
	l := newTestLink(t, fastTiming)
	l.watch(peer4, peer6)
	l.awaitEntry(peer4, l.peerMAC, Reachable)
	l.awaitEntry(peer6, l.peerMAC, Reachable)
	got, err := l.resolver.Known([]netip.Addr{absent4, peer6, peer4, absent6})
	if err != nil || len(got) != 2 || got[0] != peer6 || got[1] != peer4 {
		t.Errorf("known: %v, %v", got, err)
	}
	if err := l.resolver.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.resolver.Known([]netip.Addr{peer4}); err == nil {
		t.Error("a resolver that was closed knows neighbours")
	}
}

func TestSilentChange(t *testing.T) {
	families(t, func(t *testing.T, peer, _ netip.Addr) {
		l := newTestLink(t, fastTiming)
		l.watch(peer)
		l.awaitEntry(peer, l.peerMAC, Reachable)
		l.onPeer(func(link netlink.Link) error { return netlink.LinkSetHardwareAddr(link, otherMAC) })
		l.awaitEntry(peer, otherMAC, Reachable)
	})
}

// TestAnnouncedChange: nothing is probed again during the test, so the announcement causes the change.
func TestAnnouncedChange(t *testing.T) {
	families(t, func(t *testing.T, peer, _ netip.Addr) {
		l := newTestLink(t, slowTiming)
		l.watch(peer)
		l.awaitEntry(peer, l.peerMAC, Reachable)
		wire := testenv.OpenWire(t, l.balancer, "eth0")
		l.onPeer(func(link netlink.Link) error {
			return errors.Join(netlink.LinkSetHardwareAddr(link, otherMAC), Announce("eth0", peer))
		})
		checkAnnouncement(t, wire, peer)
		l.awaitEntry(peer, otherMAC, Reachable)
	})
}

// TestAnnounceSeveral: an address that cannot be announced does not prevent the others.
func TestAnnounceSeveral(t *testing.T) {
	l := newTestLink(t, slowTiming)
	wire := testenv.OpenWire(t, l.balancer, "eth0")
	l.onPeer(func(link netlink.Link) error {
		if err := netlink.LinkSetHardwareAddr(link, otherMAC); err != nil {
			return err
		}
		group := netip.MustParseAddr("224.0.0.1")
		err := Announce("eth0", peer4, group, peer6)
		if !errors.Is(err, ErrBadAddress) || !strings.Contains(err.Error(), group.String()) ||
			strings.Contains(err.Error(), peer4.String()) {
			t.Errorf("Announce: %v", err)
		}
		return nil
	})
	checkAnnouncement(t, wire, peer4)
	checkAnnouncement(t, wire, peer6)
}

func TestSilentPeerAppears(t *testing.T) {
	families(t, func(t *testing.T, peer, absent netip.Addr) {
		l := newTestLink(t, fastTiming)
		l.watch(peer, absent)
		l.awaitEntry(absent, nil, Failed)
		l.awaitEntry(peer, l.peerMAC, Reachable)
		l.onPeer(func(link netlink.Link) error {
			return netlink.AddrAdd(link, &netlink.Addr{IPNet: netlink.NewIPNet(absent.AsSlice()), Flags: noDAD(absent)})
		})
		l.awaitEntry(absent, l.peerMAC, Reachable)
	})
}

func TestPeerGoesAndReturns(t *testing.T) {
	families(t, func(t *testing.T, peer, _ netip.Addr) {
		l := newTestLink(t, fastTiming)
		l.watch(peer)
		l.awaitEntry(peer, l.peerMAC, Reachable)
		// The peer's kernel no longer answers ARP or neighbour discovery on that link.
		l.onPeer(func(link netlink.Link) error { return netlink.LinkSetARPOff(link) })
		l.awaitEntry(peer, nil, Failed)
		l.onPeer(func(link netlink.Link) error { return netlink.LinkSetARPOn(link) })
		l.awaitEntry(peer, l.peerMAC, Reachable)
	})
}

// TestFlushedEntry: a flushed entry means nothing about the peer. Its MAC address stays in use while it is probed
// again.
func TestFlushedEntry(t *testing.T) {
	families(t, func(t *testing.T, peer, _ netip.Addr) {
		l := newTestLink(t, slowTiming)
		l.watch(peer)
		l.awaitEntry(peer, l.peerMAC, Reachable)
		// The peer does not answer for a while, so that the states in between are visible, but to a process that stands
		// still for as long as the kernel probes.
		for !l.flush(peer) {
			l.onPeer(func(link netlink.Link) error { return netlink.LinkSetARPOn(link) })
			l.awaitEntry(peer, l.peerMAC, Reachable)
		}
		l.awaitEntry(peer, nil, Failed)
		l.onPeer(func(link netlink.Link) error { return netlink.LinkSetARPOn(link) })
		l.awaitEntry(peer, l.peerMAC, Reachable)
	})
}

// flush has the peer answer no more, and flushes its entry. It reports whether the peer is probed then, with its MAC
// address, or counts as failed already.
func (l *testLink) flush(peer netip.Addr) (probed bool) {
	l.tb.Helper()
	l.onPeer(func(link netlink.Link) error { return netlink.LinkSetARPOff(link) })
	testenv.In(l.tb, l.balancer, func() error {
		return netlink.NeighDel(&netlink.Neigh{LinkIndex: l.resolver.index, IP: peer.AsSlice()})
	})
	bound := time.After(testenv.WaitLimit)
	for {
		e := l.resolver.Entries()[peer]
		if e.State == Failed || e.State == Probing && cmp.Equal(e.MAC, l.peerMAC) {
			return e.State == Probing
		}
		select {
		case <-l.resolver.Changes():
		case <-bound:
			l.tb.Fatalf("%s is %+v after its entry was flushed, not %s with %v", peer, e, Probing, l.peerMAC)
		}
	}
}

// TestConfiguredEntry: an entry that an administrator has configured is used, and not overwritten by probes.
func TestConfiguredEntry(t *testing.T) {
	families(t, func(t *testing.T, peer, _ netip.Addr) {
		l := newTestLink(t, fastTiming)
		entry := netlink.Neigh{LinkIndex: l.resolver.index, IP: peer.AsSlice(), HardwareAddr: otherMAC,
			State: netlink.NUD_PERMANENT}
		testenv.In(t, l.balancer, func() error { return netlink.NeighSet(&entry) })
		l.watch(peer)
		l.awaitEntry(peer, otherMAC, Reachable)
		l.resolver.mu.Lock()
		err := l.resolver.probe(l.resolver.peers[peer], time.Now())
		l.resolver.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		table, err := l.resolver.readTable()
		if err != nil || table[peer].State != netlink.NUD_PERMANENT {
			t.Errorf("the entry is %+v, %v", table[peer], err)
		}
		// Once the configuration is removed, the peer itself is probed.
		testenv.In(t, l.balancer, func() error { return netlink.NeighDel(&entry) })
		l.awaitEntry(peer, l.peerMAC, Reachable)
	})
}

// TestConfiguredBeforeProbe: an entry that an administrator configures just before a probe that does not know of it
// remains.
func TestConfiguredBeforeProbe(t *testing.T) {
	families(t, func(t *testing.T, peer, _ netip.Addr) {
		l := newTestLink(t, slowTiming)
		l.watch(peer)
		l.awaitEntry(peer, l.peerMAC, Reachable)
		entry := netlink.Neigh{LinkIndex: l.resolver.index, IP: peer.AsSlice(), HardwareAddr: otherMAC,
			State: netlink.NUD_PERMANENT}
		l.resolver.mu.Lock() // events are not processed
		testenv.In(t, l.balancer, func() error { return netlink.NeighSet(&entry) })
		err := l.resolver.probe(l.resolver.peers[peer], time.Now())
		l.resolver.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, testenv.WaitLimit, "the entry is the configured one", func() bool {
			table, err := l.resolver.readTable()
			return err == nil && table[peer].State == netlink.NUD_PERMANENT &&
				cmp.Equal(table[peer].HardwareAddr, otherMAC)
		})
		l.awaitEntry(peer, otherMAC, Reachable)
	})
}

// TestLyingPeer: a peer that claims an impossible MAC address gets no traffic.
func TestLyingPeer(t *testing.T) {
	for _, lie := range []net.HardwareAddr{broadcast, {1, 0, 0x5e, 0, 0, 1}, make(net.HardwareAddr, 6)} {
		l := newTestLink(t, fastTiming)
		wire := testenv.OpenWire(t, l.peer, "eth0")
		l.watch(absent4)
		l.awaitEntry(absent4, nil, Failed)
		wire.Next("request", func(p gopacket.Packet) bool { return p.Layer(layers.LayerTypeARP) != nil })
		testenv.Eventually(t, testenv.WaitLimit, "the lie "+lie.String()+" is the reason", func() bool {
			// Repeatedly, because a reply may be dropped on its way.
			wire.Send(
				&layers.Ethernet{SrcMAC: l.peerMAC, DstMAC: l.mac(), EthernetType: layers.EthernetTypeARP},
				&layers.ARP{
					AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6,
					ProtAddressSize: 4,
					Operation:       layers.ARPReply,
					SourceHwAddress: lie, SourceProtAddress: absent4.AsSlice(),
					DstHwAddress: l.mac(), DstProtAddress: own4.AsSlice(),
				})
			e := l.resolver.Entries()[absent4]
			if e.MAC != nil {
				t.Fatalf("the lie is believed: %+v", e)
			}
			return strings.Contains(e.Reason, lie.String())
		})
	}
}

func (l *testLink) mac() (mac net.HardwareAddr) {
	testenv.In(l.tb, l.balancer, func() error {
		nic, err := net.InterfaceByName("eth0")
		mac = nic.HardwareAddr
		return err
	})
	return mac
}

// TestLostEvents sends more events than the socket holds. The table makes up for lost ones.
func TestLostEvents(t *testing.T) {
	l := newTestLink(t, slowTiming)
	entry := netlink.Neigh{LinkIndex: l.resolver.index, IP: absent4.AsSlice(), State: netlink.NUD_PERMANENT}
	set := func(last int) {
		entry.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, byte(last >> 8), byte(last)}
		testenv.In(t, l.balancer, func() error { return netlink.NeighSet(&entry) })
	}
	set(1)
	l.watch(absent4)
	l.awaitEntry(absent4, net.HardwareAddr{2, 0, 0, 0, 0, 1}, Reachable)

	const many = 3000
	l.resolver.mu.Lock() // updates are stuck, as under load
	testenv.In(t, l.balancer, func() error {
		for i := range many {
			entry.HardwareAddr = net.HardwareAddr{2, 0, 0, 1, byte(i >> 8), byte(i)}
			if err := netlink.NeighSet(&entry); err != nil {
				return err
			}
		}
		return nil
	})
	set(2)
	l.resolver.mu.Unlock()
	l.awaitEntry(absent4, net.HardwareAddr{2, 0, 0, 0, 0, 2}, Reachable)
	// The resolver continues to follow the table.
	set(3)
	l.awaitEntry(absent4, net.HardwareAddr{2, 0, 0, 0, 0, 3}, Reachable)
}

func TestWatchRefuses(t *testing.T) {
	l := newTestLink(t, slowTiming)
	l.watch(peer4)
	for text, want := range map[string]error{
		"198.18.0.1": ErrOwnAddress, "2001:2::1": ErrOwnAddress, "::ffff:198.18.0.1": ErrOwnAddress,
		"0.0.0.0": ErrBadAddress, "::": ErrBadAddress, "224.0.0.1": ErrBadAddress, "ff02::1": ErrBadAddress,
		"127.0.0.1": ErrBadAddress, "::1": ErrBadAddress, "255.255.255.255": ErrBadAddress,
	} {
		if err := l.resolver.SetAddresses([]netip.Addr{peer6, netip.MustParseAddr(text)}); !errors.Is(err, want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := l.resolver.SetAddresses([]netip.Addr{{}}); !errors.Is(err, ErrBadAddress) {
		t.Errorf("the zero address: %v", err)
	}
	if got := l.resolver.Entries(); len(got) != 1 || got[peer4].State == "" {
		t.Errorf("a refused set has replaced the one before: %v", got)
	}
}

func TestLinkLocal(t *testing.T) {
	l := newTestLink(t, slowTiming)
	var local netip.Addr
	l.onPeer(func(link netlink.Link) error {
		addrs, err := netdump.Consistent(func() ([]netlink.Addr, error) {
			return netlink.AddrList(link, netlink.FAMILY_V6)
		})
		for _, a := range addrs {
			if addr, _ := netip.AddrFromSlice(a.IP); addr.IsLinkLocalUnicast() {
				local = addr
			}
		}
		return err
	})
	l.watch(local.WithZone("eth0"))
	l.awaitEntry(local, l.peerMAC, Reachable)
}

func TestVanishedLink(t *testing.T) {
	l := newTestLink(t, fastTiming)
	l.watch(peer4)
	l.awaitEntry(peer4, l.peerMAC, Reachable)
	l.onPeer(netlink.LinkDel)
	l.awaitEntry(peer4, nil, Failed)
	if e := l.resolver.Entries()[peer4]; !strings.Contains(e.Reason, "no such device") {
		t.Errorf("reason: %s", e.Reason)
	}
}

func TestNoLink(t *testing.T) {
	testenv.In(t, testenv.Namespace(t), func() error {
		for _, link := range []string{"nosuch0", "lo", ""} {
			if _, err := New(t.Context(), link); !errors.Is(err, ErrNoLink) {
				t.Errorf("New(%q): %v", link, err)
			}
			if err := Announce(link, peer4); !errors.Is(err, ErrNoLink) {
				t.Errorf("Announce(%q): %v", link, err)
			}
		}
		return nil
	})
}

func TestClose(t *testing.T) {
	l := newTestLink(t, fastTiming)
	l.watch(peer4)
	l.awaitEntry(peer4, l.peerMAC, Reachable)
	if err := errors.Join(l.resolver.Close(), l.resolver.Close()); err != nil {
		t.Fatal(err)
	}
	if err := l.resolver.SetAddresses([]netip.Addr{peer6}); err == nil {
		t.Error("Watch after Close is not an error")
	}
	if got := l.resolver.Entries(); len(got) != 1 {
		t.Errorf("entries: %v", got)
	}
}

func TestContextEndsIt(t *testing.T) {
	ns := testenv.Namespace(t)
	testenv.Veth(t, testenv.End{Namespace: ns, Name: "eth0"}, testenv.End{Namespace: ns, Name: "eth1"})
	ctx, cancel := context.WithCancel(t.Context())
	var r *Resolver
	testenv.In(t, ns, func() (err error) { r, err = New(ctx, "eth0"); return err })
	cancel()
	select {
	case <-r.ended:
	case <-time.After(testenv.WaitLimit):
		t.Error("it goes on after the end of its context")
	}
}

func TestNoRights(t *testing.T) {
	testenv.Root(t)
	if os.Getenv("JEOUL_TEST_NO_RIGHTS") == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestNoRights$", "-test.v")
		cmd.Env = append(os.Environ(), "JEOUL_TEST_NO_RIGHTS=1")
		ns := testenv.Namespace(t)
		testenv.Veth(t, testenv.End{Namespace: ns, Name: "eth0"}, testenv.End{Namespace: ns, Name: "eth1"})
		var out []byte
		testenv.In(t, ns, func() error {
			out, _ = cmd.CombinedOutput() // the output decides
			return nil
		})
		if !strings.Contains(string(out), "--- PASS: TestNoRights") {
			t.Fatalf("%s", out)
		}
		return
	}
	// Go's syscall package sets them for all threads of this process, which serves no other purpose.
	if err := syscall.Setresuid(65534, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	r, err := New(t.Context(), "eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.SetAddresses([]netip.Addr{peer4}); !errors.Is(err, ErrNoRights) {
		t.Errorf("Watch: %v", err)
	}
	if got := r.Entries(); len(got) != 0 {
		t.Errorf("entries: %v", got)
	}
	for _, addr := range []netip.Addr{peer4, peer6} {
		if err := Announce("eth0", addr); !errors.Is(err, ErrNoRights) {
			t.Errorf("Announce: %v", err)
		}
	}
}

// checkAnnouncement receives the announcement of addr and checks its fields.
func checkAnnouncement(t *testing.T, w *testenv.Wire, addr netip.Addr) {
	t.Helper()
	mac := otherMAC
	if addr.Is4() {
		p := w.Next("ARP announcement", func(p gopacket.Packet) bool {
			arp, ok := p.Layer(layers.LayerTypeARP).(*layers.ARP)
			return ok && cmp.Equal(arp.SourceProtAddress, arp.DstProtAddress)
		})
		ether, arp := p.LinkLayer().(*layers.Ethernet), p.Layer(layers.LayerTypeARP).(*layers.ARP)
		got := []any{ether.SrcMAC, ether.DstMAC, arp.Operation, arp.SourceHwAddress, arp.SourceProtAddress,
			arp.DstHwAddress}
		want := []any{mac, broadcast, uint16(layers.ARPRequest), []byte(mac), addr.AsSlice(), make([]byte, 6)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ARP announcement (-want +got):\n%s", diff)
		}
		return
	}
	p := w.Next("neighbour advertisement", func(p gopacket.Packet) bool {
		return p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement) != nil
	})
	ether, ip := p.LinkLayer().(*layers.Ethernet), p.NetworkLayer().(*layers.IPv6)
	advert := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
	got := []any{ether.SrcMAC, ether.DstMAC, ip.HopLimit, ip.SrcIP.String(), ip.DstIP.String(), advert.Flags,
		advert.TargetAddress.String(), advert.Options}
	want := []any{mac, allNodesMAC, uint8(255), addr.String(), "ff02::1", uint8(0x20), addr.String(),
		layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: mac}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("neighbour advertisement (-want +got):\n%s", diff)
	}
}

func noDAD(addr netip.Addr) int {
	if addr.Is6() {
		return unix.IFA_F_NODAD
	}
	return 0
}
