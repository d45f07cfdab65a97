// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// tunnelSpec is a tunnel packet that a router says is too big.
type tunnelSpec struct {
	from, to string
	// protocol is 4, 41 or 17.
	protocol       layers.IPProtocol
	sport, dport   uint16
	size, mtu      int
	kind, code     uint8
	mayBeFragments bool
}

// message is the ICMP message, without an IP header.
func (s tunnelSpec) message(t *testing.T) []byte {
	t.Helper()
	from, to := addr(s.from), addr(s.to)
	inner := append([]byte{0x45}, make([]byte, s.size-1)...)
	if s.protocol == layers.IPProtocolIPv6 {
		inner[0] = 0x60
	}
	var parts []gopacket.SerializableLayer
	var outer gopacket.NetworkLayer
	if from.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: 63, Protocol: s.protocol, SrcIP: from.AsSlice(), DstIP: to.AsSlice(),
			Flags: layers.IPv4DontFragment}
		if s.mayBeFragments {
			ip.Flags = 0
		}
		inner, outer = inner[:s.size-20], ip
		parts = append(parts, ip)
	} else {
		ip := &layers.IPv6{Version: 6, HopLimit: 63, NextHeader: s.protocol, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
		inner, outer = inner[:s.size-40], ip
		parts = append(parts, ip)
	}
	if s.protocol == layers.IPProtocolUDP {
		udp := &layers.UDP{SrcPort: layers.UDPPort(s.sport), DstPort: layers.UDPPort(s.dport)}
		if err := udp.SetNetworkLayerForChecksum(outer); err != nil {
			t.Fatal(err)
		}
		inner = inner[:len(inner)-8]
		parts = append(parts, udp)
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		append(parts, gopacket.Payload(inner))...); err != nil {
		t.Fatal(err)
	}
	header := []byte{s.kind, s.code, 0, 0, 0, 0, byte(s.mtu >> 8), byte(s.mtu)}
	if from.Is4() {
		return checksummed(slices.Concat(header, b.Bytes()[:548]))
	}
	return slices.Concat(header, b.Bytes()[:1232])
}

// checksummed fills in the ICMP checksum (RFC 1071).
func checksummed(b []byte) []byte {
	total := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		total += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for total > 0xffff {
		total = total&0xffff + total>>16
	}
	b[2], b[3] = byte(^total>>8), byte(^total)
	return b
}

// send sends messages from a router to the balancer.
func (b *testNetwork) send(message []byte) {
	b.t.Helper()
	testenv.In(b.t, b.routers[0], func() error {
		network, to := "ip4:icmp", "198.18.0.1"
		if message[0] == 2 {
			network, to = "ip6:ipv6-icmp", "2001:2:0:1::1"
		}
		connection, err := net.Dial(network, to)
		if err != nil {
			return err
		}
		defer connection.Close()
		_, err = connection.Write(message)
		return err
	})
}

// TestPathMTU: an error about a tunnel packet bounds the path to its backend, in each kind of tunnel and family; one
// about a packet that was not sent changes nothing.
func TestPathMTU(t *testing.T) {
	b := newTestNetwork(t, "eth0")
	b.ip("route add 203.0.113.0/24 via 198.18.0.2")
	b.ip("route add 2001:db8::/32 via 2001:2:0:1::2")
	to4, to6 := []string{"203.0.113.1", "203.0.113.2"}, []string{"2001:db8::1", "2001:db8::2"}
	b.watch(append(slices.Clone(to4), to6...)...)
	for _, to := range append(slices.Clone(to4), to6...) {
		b.awaitEntry(to, "resolved", hasMAC(b.far[0]))
	}
	four := tunnelSpec{from: "198.18.0.1", to: to4[0], protocol: 4, size: 1500, mtu: 1300, kind: 3, code: 4}
	six := tunnelSpec{from: "2001:2:0:1::1", to: to6[0], protocol: 41, size: 1500, mtu: 1400, kind: 2}
	forged := func(s tunnelSpec, change func(*tunnelSpec)) []byte { change(&s); return s.message(t) }
	for name, message := range map[string][]byte{
		"from another":         forged(four, func(s *tunnelSpec) { s.from = "198.18.0.9" }),
		"to another":           forged(four, func(s *tunnelSpec) { s.to = "203.0.113.9" }),
		"of TCP":               forged(four, func(s *tunnelSpec) { s.protocol = 6 }),
		"to another port":      forged(four, func(s *tunnelSpec) { s.protocol, s.sport, s.dport = 17, 0xc001, 53 }),
		"from another port":    forged(four, func(s *tunnelSpec) { s.protocol, s.sport, s.dport = 17, 99, 6080 }),
		"unreachable":          forged(four, func(s *tunnelSpec) { s.code = 1 }),
		"below the least":      forged(four, func(s *tunnelSpec) { s.mtu = 575 }),
		"not too big":          forged(four, func(s *tunnelSpec) { s.size, s.mtu = 1200, 1300 }),
		"larger than we send":  forged(four, func(s *tunnelSpec) { s.size = 1501 }),
		"may be fragmented":    forged(four, func(s *tunnelSpec) { s.mayBeFragments = true }),
		"IPv6 below the least": forged(six, func(s *tunnelSpec) { s.mtu = 1279 }),
		"IPv6 from another":    forged(six, func(s *tunnelSpec) { s.from = "2001:2:0:1::9" }),
	} {
		t.Log(name)
		b.send(message)
	}
	// They are read in their order: once these count, those before have been read.
	b.send(forged(four, func(s *tunnelSpec) {
		s.to, s.mtu = to4[1], 1350
		s.protocol, s.sport, s.dport = 17, 0xc001, 6080
	}))
	b.send(forged(six, func(s *tunnelSpec) {
		s.to, s.mtu = to6[1], 1450
		s.protocol, s.sport, s.dport = 17, 0xffff, 6080
	}))
	b.awaitEntry(to4[1], "narrow", func(e Entry) bool { return e.Path().MTU == 1350 && e.PMTUReported })
	b.awaitEntry(to6[1], "narrow", func(e Entry) bool { return e.Path().MTU == 1450 && e.PMTUReported })
	for _, to := range []string{to4[0], to6[0]} {
		if e := b.follow()[addr(to)]; e.MTU != 1500 || e.PMTUReported {
			t.Errorf("what was forged has made the way to %s %+v", to, e)
		}
	}
	b.send(four.message(t))
	b.send(six.message(t))
	b.awaitEntry(to4[0], "narrow", func(e Entry) bool { return e.Path().MTU == 1300 })
	b.awaitEntry(to6[0], "narrow", func(e Entry) bool { return e.Path().MTU == 1400 })
}

// TestPortUnreachableIsFiltered: a program that logs to a port without a listener gets an error of the same type for
// each line.
func TestPortUnreachableIsFiltered(t *testing.T) {
	err := testenv.Namespace(t).Do(func() error {
		listener, err := openListener(unix.AF_INET)
		if err != nil {
			return err
		}
		defer unix.Close(listener)
		log, err := net.Dial("udp4", "127.0.0.1:514")
		if err != nil {
			return err
		}
		defer log.Close()
		if _, err := log.Write([]byte("line")); err != nil {
			return err
		}
		// The refusal is there once the socket knows.
		log.SetReadDeadline(time.Now().Add(testenv.WaitLimit))
		if _, err := log.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("the datagram was not refused: %v", err)
		}
		message := tunnelSpec{from: "127.0.0.1", to: "203.0.113.1", protocol: 4, size: 1500, mtu: 1300, kind: 3,
			code: 4}.message(t)
		router, err := net.Dial("ip4:icmp", "127.0.0.1")
		if err != nil {
			return err
		}
		defer router.Close()
		if _, err := router.Write(message); err != nil {
			return err
		}
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}, 10_000); n != 1 {
			return fmt.Errorf("what was too big is not heard: %v", err)
		}
		heard := make([]byte, 2048)
		n, err := unix.Read(listener, heard)
		if q, ok := readError(heard[:n]); err != nil || !ok || q.mtu != 1300 {
			return fmt.Errorf("the first that is heard is % x, %v", heard[:n], err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestLearned: a change of the path to an address, by the kernel or a router, that no event reports is found at the
// next look.
func TestLearned(t *testing.T) {
	b := newTestNetwork(t, "eth0")
	b.ip("route add 203.0.113.0/24 via 198.18.0.2")
	far, near := "203.0.113.1", "198.18.0.2"
	b.watch(far, near)
	b.awaitEntry(far, "resolved", hasMAC(b.far[0]))
	b.awaitEntry(near, "resolved", hasMAC(b.far[0]))
	p := b.paths
	if p.routesLearned() {
		t.Error("something is new where nothing has changed")
	}
	for _, to := range []string{far, near} {
		until := func(mtu int, at time.Time) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.pathMTUs[addr(to)] = pathMTU{mtu, at}
		}
		// A late event of the neighbours has all ways looked up besides, and finds the change: another round is without
		// such an event.
		testenv.Eventually(t, testenv.WaitLimit, "a round of "+to, func() bool {
			until(1300, time.Now().Add(time.Hour))
			narrow, once := p.routesLearned(), p.followOnce() == recheckInterval
			twice := p.routesLearned()
			until(1300, time.Now().Add(-time.Second))
			wide, followed := p.routesLearned(), p.followOnce() == recheckInterval
			if !narrow || !once || twice || !wide || !followed {
				t.Logf("%s: narrow is found: %t, %t, twice: %t; wide is found: %t, %t", to, narrow, once, twice, wide,
					followed)
				return false
			}
			return true
		})
	}
	p.mu.Lock()
	p.pathMTUs[addr("192.0.2.7")] = pathMTU{1300, time.Now().Add(time.Hour)}
	p.mu.Unlock()
	if p.routesLearned() {
		t.Error("an address is new that is not watched")
	}
}

// TestPathMTUExpires: after ten minutes larger packets are tried again.
func TestPathMTUExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, from := addr("203.0.113.1"), addr("198.18.0.1")
		wide := Route{MTU: 1500, Local: from}
		p := &Paths{pathMTUs: map[netip.Addr]pathMTU{}, routes: map[netip.Addr]Route{to: wide}}
		if !p.applyICMPError(quoted{from, to, 1500, 1300}, time.Now()) {
			t.Fatal("an error about our own packet was not heeded")
		}
		mtu := func() int {
			r := wide
			p.applyPathMTU(to, &r, time.Now())
			return r.MTU
		}
		if got := mtu(); got != 1300 {
			t.Errorf("the way takes %d bytes, want 1300", got)
		}
		time.Sleep(pmtuLifetime)
		if got := mtu(); got != 1300 {
			t.Errorf("after %v the way takes %d bytes, want 1300", pmtuLifetime, got)
		}
		time.Sleep(time.Second)
		if got := mtu(); got != 1500 || len(p.pathMTUs) != 0 {
			t.Errorf("later the way takes %d bytes, want 1500", got)
		}
	})
}
