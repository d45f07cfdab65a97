// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// segment is a backend host and a peer on its link, which may be a client or the balancer.
type segment struct {
	tb               testing.TB
	backend, peer    *namespace.Namespace
	backendMAC       net.HardwareAddr
	peerMAC          net.HardwareAddr
	wire             *testenv.Wire // the peer's view
	backend4, peer4  netip.Addr
	backend6, peer6  netip.Addr
	vacant4, vacant6 netip.Addr // in the link's subnets, but of no host
}

func newSegment(tb testing.TB) *segment {
	s := &segment{
		tb: tb, backend: testenv.Namespace(tb), peer: testenv.Namespace(tb),
		backend4: netip.MustParseAddr("198.18.2.1"), backend6: netip.MustParseAddr("2001:2::2:1"),
		peer4: netip.MustParseAddr("198.18.1.1"), peer6: netip.MustParseAddr("2001:2::1:1"),
		vacant4: netip.MustParseAddr("198.18.9.9"), vacant6: netip.MustParseAddr("2001:2::9:9"),
	}
	s.backendMAC, s.peerMAC = testenv.Veth(tb,
		testenv.End{Namespace: s.backend, Name: "eth0", Addresses: []netip.Prefix{netip.PrefixFrom(s.backend4, 16),
			netip.PrefixFrom(s.backend6, 64)}},
		testenv.End{Namespace: s.peer, Name: "eth0", Addresses: []netip.Prefix{netip.PrefixFrom(s.peer4, 16),
			netip.PrefixFrom(s.peer6, 64)}})
	s.wire = testenv.OpenWire(tb, s.peer, "eth0")
	return s
}

var (
	broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	unknown   = make(net.HardwareAddr, 6)
)

func (s *segment) askARP(target netip.Addr) {
	s.wire.Send(
		&layers.Ethernet{SrcMAC: s.peerMAC, DstMAC: broadcast, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation:       layers.ARPRequest,
			SourceHwAddress: s.peerMAC, SourceProtAddress: s.peer4.AsSlice(),
			DstHwAddress: unknown, DstProtAddress: target.AsSlice(),
		})
}

// answersARP reports whether the backend answers a request for target. A request for the backend's own address follows
// on the same wire. If its answer comes first, there was no other answer, so the test need not wait.
func (s *segment) answersARP(target netip.Addr) bool {
	s.tb.Helper()
	ask := func() {
		s.askARP(target)
		s.askARP(s.backend4)
	}
	answered := false
	s.wire.Answer("ARP reply for the backend's own address", ask, func(p gopacket.Packet) bool {
		arp, ok := p.Layer(layers.LayerTypeARP).(*layers.ARP)
		if !ok || arp.Operation != layers.ARPReply {
			return false
		}
		sender, _ := netip.AddrFromSlice(arp.SourceProtAddress)
		answered = answered || sender == target
		return sender == s.backend4
	})
	return answered
}

// askND sends a neighbour solicitation as a host does (to the solicited-node group of the target), or by unicast as a
// host that already takes the backend for the target.
func (s *segment) askND(target netip.Addr, unicast bool) {
	low := target.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], low[13:])
	ip, mac := net.IP(group[:]), net.HardwareAddr{0x33, 0x33, 0xff, low[13], low[14], low[15]}
	if unicast {
		ip, mac = net.IP(target.AsSlice()), s.backendMAC
	}
	header := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: 255,
		SrcIP: s.peer6.AsSlice(), DstIP: ip}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}
	if err := icmp.SetNetworkLayerForChecksum(header); err != nil {
		s.tb.Fatal(err)
	}
	s.wire.Send(
		&layers.Ethernet{SrcMAC: s.peerMAC, DstMAC: mac, EthernetType: layers.EthernetTypeIPv6}, header, icmp,
		&layers.ICMPv6NeighborSolicitation{
			TargetAddress: target.AsSlice(),
			Options:       layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: s.peerMAC}},
		})
}

// answersND is answersARP for neighbour discovery.
func (s *segment) answersND(target netip.Addr, unicast bool) bool {
	s.tb.Helper()
	ask := func() {
		s.askND(target, unicast)
		s.askND(s.backend6, false)
	}
	answered := false
	s.wire.Answer("neighbour advertisement of the backend's own address", ask, func(p gopacket.Packet) bool {
		advert, ok := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
		if !ok {
			return false
		}
		sender, _ := netip.AddrFromSlice(advert.TargetAddress)
		answered = answered || sender == target
		return sender == s.backend6
	})
	return answered
}

// sendFrom makes the backend send a datagram from one of its addresses to a host that it must resolve first.
func (s *segment) sendFrom(from, to netip.Addr) {
	s.tb.Helper()
	testenv.In(s.tb, s.backend, func() error {
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
		if err != nil {
			return err
		}
		_, err = conn.Write([]byte("x"))
		return errors.Join(err, conn.Close())
	})
}

// asksAs returns the sender address of the backend's request for a host to which it sends from the address from.
func (s *segment) asksAs(from, to netip.Addr) netip.Addr {
	s.tb.Helper()
	var sender netip.Addr
	s.wire.Answer("ARP request or neighbour solicitation of the backend", func() {
		s.sendFrom(from, to)
	}, func(p gopacket.Packet) bool {
		if arp, ok := p.Layer(layers.LayerTypeARP).(*layers.ARP); ok && arp.Operation == layers.ARPRequest {
			target, _ := netip.AddrFromSlice(arp.DstProtAddress)
			sender, _ = netip.AddrFromSlice(arp.SourceProtAddress)
			return target == to
		}
		if solicit, ok := p.Layer(layers.LayerTypeICMPv6NeighborSolicitation).(*layers.ICMPv6NeighborSolicitation); ok {
			target, _ := netip.AddrFromSlice(solicit.TargetAddress)
			sender, _ = netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Src().Raw())
			return target == to
		}
		return false
	})
	return sender
}

// TestWithoutAgent: with only an address on lo, the host answers for it and uses it as a sender. So the tests below can
// fail.
func TestWithoutAgent(t *testing.T) {
	s := newSegment(t)
	testenv.In(t, s.backend, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(vip4.AsSlice())})
	})
	testenv.Eventually(t, testenv.WaitLimit, "the kernel answers an ARP request for an address of lo", func() bool {
		return s.answersARP(vip4)
	})
	if got := s.asksAs(vip4, s.vacant4); got != vip4 {
		t.Errorf("the kernel asks with %s, not with the VIP", got)
	}
}

func TestSilence(t *testing.T) {
	s := newSegment(t)
	a, err := start(t, s.backend, t.TempDir(), vip4, vip6)
	if err != nil {
		t.Fatal(err)
	}
	if s.answersARP(vip4) {
		t.Error("the backend answers ARP requests for the VIP")
	}
	for _, unicast := range []bool{false, true} {
		if s.answersND(vip6, unicast) {
			t.Errorf("the backend answers neighbour solicitations for the VIP (unicast: %v)", unicast)
		}
	}
	if got := s.asksAs(vip4, s.vacant4); got != s.backend4 {
		t.Errorf("ARP requests have the sender %s, not %s", got, s.backend4)
	}
	if got := s.asksAs(vip6, s.vacant6); got == vip6 {
		t.Errorf("neighbour solicitations come from the VIP %s", got)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestService: a host that an agent has prepared serves. A client whose packets for the VIP arrive with the backend's
// MAC address gets its answers from the VIP, with strict reverse-path filtering as well.
func TestService(t *testing.T) {
	s := newSegment(t)
	testenv.In(t, s.backend, func() error { return testenv.WriteSysctl("net/ipv4/conf/all/rp_filter", "1") })
	if _, err := start(t, s.backend, t.TempDir(), vip4, vip6); err != nil {
		t.Fatal(err)
	}
	for _, vip := range []netip.Addr{vip4, vip6} {
		var listener net.Listener
		testenv.In(t, s.backend, func() (err error) {
			listener, err = net.Listen("tcp", netip.AddrPortFrom(vip, 0).String())
			return err
		})
		defer listener.Close()
		go func() {
			if conn, err := listener.Accept(); err == nil {
				fmt.Fprint(conn, "hello")
				conn.Close()
			}
		}()
		testenv.In(t, s.peer, func() error { return s.request(listener.Addr().String(), vip) })
	}
}

// request acts as balancer and client in one: the VIP has the backend's MAC address.
func (s *segment) request(service string, vip netip.Addr) error {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	err = netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: vip.AsSlice(), HardwareAddr: s.backendMAC,
		State: netlink.NUD_PERMANENT})
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", service)
	if err != nil {
		return err
	}
	defer conn.Close()
	text := make([]byte, 8)
	n, err := conn.Read(text)
	if string(text[:n]) != "hello" {
		return fmt.Errorf("the backend says %q: %w", text[:n], err)
	}
	return nil
}
