// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/agent"
)

// startWith starts an agent on the segment's backend.
func (s *segment) startWith(opt agent.Options) *agent.Agent {
	s.tb.Helper()
	var a *agent.Agent
	testenv.In(s.tb, s.backend, func() (err error) {
		a, err = agent.Start(opt)
		return err
	})
	s.tb.Cleanup(func() { a.Close() })
	return a
}

// tunnelPath is the path of packets to the backend: a mode, and the addresses of each end.
type tunnelPath struct {
	mode lb.Mode
	vip  netip.Addr
	to   netip.Addr // the backend
	from netip.Addr
}

func (w tunnelPath) String() string {
	number := map[int]int{32: 4, 128: 6}
	if w.mode == lb.DSCP {
		return fmt.Sprintf("dscp %d", number[w.vip.BitLen()])
	}
	return fmt.Sprintf("%s %d in %d", w.mode, number[w.vip.BitLen()], number[w.to.BitLen()])
}

// tunnelPaths returns all paths of packets to the VIPs.
func (s *segment) tunnelPaths() []tunnelPath {
	var all []tunnelPath
	for _, mode := range []lb.Mode{lb.IPIP, lb.GUE, lb.DSCP} {
		for _, vip := range []netip.Addr{vip4, vip6} {
			if mode != lb.DSCP || vip.Is4() {
				all = append(all, tunnelPath{mode, vip, s.backend4, s.peer4})
			}
			if mode != lb.DSCP || vip.Is6() {
				all = append(all, tunnelPath{mode, vip, s.backend6, s.peer6})
			}
		}
	}
	return all
}

// everything returns the options of an agent that serves everything at once that one agent can.
func everything(dir string, hook agent.Hook) agent.Options {
	return agent.Options{VIPs: []netip.Addr{vip4, vip6}, Modes: []lb.Mode{lb.L2DSR, lb.IPIP, lb.GUE},
		Marks: []agent.Mark{{Point: 10, VIP: vip4}, {Point: 10, VIP: vip6}}, MSS: 1300, Hook: hook, Dir: dir}
}

// hooks lists the hooks that the kernel supports.
func hooks() []agent.Hook {
	if !hasTCX() {
		return []agent.Hook{agent.HookClsact}
	}
	return []agent.Hook{agent.HookTCX, agent.HookClsact}
}

func hasTCX() bool {
	_, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXIngress})
	return err == nil
}

// TestTransfer sends kernel TCP by every way, as kernels send to each other: large GSO packets with partial checksums.
func TestTransfer(t *testing.T) {
	for _, hook := range hooks() {
		t.Run(string(hook), func(t *testing.T) {
			s := newSegment(t)
			a := s.startWith(everything(t.TempDir(), hook))
			testenv.In(t, s.peer, func() error { return s.routeVIPs() })
			for _, w := range s.tunnelPaths() {
				t.Run(w.String(), func(t *testing.T) {
					before := accepted(t, a, w.mode)
					if err := s.transfer(t, w, 4<<20); err != nil {
						t.Error(err)
					}
					if after := accepted(t, a, w.mode); after-before < 1000 {
						t.Errorf("%d packets were undone: too few for 4 MiB", after-before)
					}
				})
			}
		})
	}
}

// TestMSS: clients of a VIP send segments of the agent's MSS, and clients of the host itself send segments of the
// link's.
func TestMSS(t *testing.T) {
	for _, hook := range hooks() {
		s := newSegment(t)
		s.startWith(agent.Options{VIPs: []netip.Addr{vip4, vip6}, MSS: 1000, Hook: hook, Dir: t.TempDir()})
		testenv.In(t, s.peer, func() error { return s.routeVIPs() })
		for at, wanted := range map[netip.Addr]func(int) bool{
			// Linux subtracts 12 bytes for time stamps.
			vip4:       func(mss int) bool { return mss == 1000-12 },
			vip6:       func(mss int) bool { return mss == 1000-12 },
			s.backend4: func(mss int) bool { return mss > 1400 },
		} {
			if mss := s.segmentSize(at); !wanted(mss) {
				t.Errorf("%s: clients of %s send segments of %d bytes", hook, at, mss)
			}
		}
	}
}

// segmentSize returns the length of a client's segments.
func (s *segment) segmentSize(at netip.Addr) (mss int) {
	s.tb.Helper()
	var listener net.Listener
	testenv.In(s.tb, s.backend, func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
		return err
	})
	defer listener.Close()
	testenv.In(s.tb, s.peer, func() error {
		conn, err := net.DialTimeout("tcp", listener.Addr().String(), testenv.WaitLimit)
		if err != nil {
			return err
		}
		defer conn.Close()
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			return err
		}
		var failed error
		err = raw.Control(func(fd uintptr) {
			mss, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG)
		})
		return errors.Join(err, failed)
	})
	return mss
}

// TestTransferOfJoinedSegments: a network card's receive offload joins segments before the program sees them, including
// segments in a tunnel.
func TestTransferOfJoinedSegments(t *testing.T) {
	s := newSegment(t)
	a := s.startWith(everything(t.TempDir(), agent.HookAuto))
	testenv.In(t, s.peer, func() error { return s.routeVIPs() })
	testenv.In(t, s.backend, joinSegments)
	for _, w := range s.tunnelPaths() {
		if w.mode == lb.GUE {
			continue // joined only if the kernel has its own GUE port
		}
		t.Run(w.String(), func(t *testing.T) {
			tap := testenv.OpenWire(t, s.backend, "eth0")
			if err := s.transfer(t, w, 4<<20); err != nil {
				t.Error(err)
			}
			tap.Next("joined packet", func(p gopacket.Packet) bool { return len(p.Data()) > 3000 })
			accepted(t, a, w.mode)
		})
	}
}

func joinSegments() error {
	handle, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer handle.Close()
	return handle.Change("eth0", map[string]bool{"rx-gro": true})
}

func accepted(tb testing.TB, a *agent.Agent, mode lb.Mode) uint64 {
	tb.Helper()
	counts, err := a.Counts()
	if err != nil {
		tb.Fatal(err)
	}
	var sum uint64
	for _, c := range counts {
		if c.Mode == mode && c.Outcome == "accepted" {
			sum += c.Packets
		}
		if strings.HasPrefix(c.Outcome, "dropped") && c.Packets > 0 {
			tb.Errorf("%s: %s: %d packets", c.Mode, c.Outcome, c.Packets)
		}
	}
	return sum
}

// routeVIPs makes the peer send packets for the VIPs to the backend, short enough for a tunnel.
func (s *segment) routeVIPs() error {
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	for _, vip := range []netip.Addr{vip4, vip6} {
		index, ip := eth0.Attrs().Index, vip.AsSlice()
		err := errors.Join(
			netlink.NeighSet(&netlink.Neigh{LinkIndex: index, IP: ip, HardwareAddr: s.backendMAC,
				State: netlink.NUD_PERMANENT}),
			netlink.RouteReplace(&netlink.Route{LinkIndex: index, Dst: netlink.NewIPNet(ip), MTU: 1400}))
		if err != nil {
			return err
		}
	}
	return nil
}

// transfer sends random bytes by a way to a server on the VIP, which echoes them.
func (s *segment) transfer(t *testing.T, w tunnelPath, size int64) error {
	return s.exchange(w.vip, size, func() (io.Closer, error) {
		return stage{mode: w.mode, vip: w.vip, from: w.from, to: w.to, point: 10}.attach(t.TempDir())
	})
}

// exchange transfers a file in the peer's namespace after prepare.
func (s *segment) exchange(vip netip.Addr, size int64, prepare func() (io.Closer, error)) error {
	var listener net.Listener
	testenv.In(s.tb, s.backend, func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(vip, 0).String())
		return err
	})
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			io.Copy(conn, conn)
			conn.Close()
		}
	}()
	return s.peer.Do(func() error {
		prepared, err := prepare()
		if err != nil {
			return err
		}
		defer prepared.Close()
		conn, err := net.DialTimeout("tcp", listener.Addr().String(), testenv.WaitLimit)
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(testenv.WaitLimit))
		return echo(conn.(*net.TCPConn), size)
	})
}

func echo(conn *net.TCPConn, size int64) error {
	sent, received := sha256.New(), sha256.New()
	wrote := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, io.TeeReader(io.LimitReader(rand.Reader, size), sent))
		wrote <- errors.Join(err, conn.CloseWrite())
	}()
	n, err := io.Copy(received, conn)
	if err := errors.Join(err, <-wrote); err != nil {
		return err
	}
	if n != size || !bytes.Equal(sent.Sum(nil), received.Sum(nil)) {
		return fmt.Errorf("%d of %d bytes came back, or they are others", n, size)
	}
	return nil
}

// TestDatagrams: datagrams built by gopacket, including an empty one, are answered from the VIP.
func TestDatagrams(t *testing.T) {
	s := newSegment(t)
	s.startWith(everything(t.TempDir(), agent.HookAuto))
	for _, w := range s.tunnelPaths() {
		t.Run(w.String(), func(t *testing.T) {
			var conn net.PacketConn
			testenv.In(t, s.backend, func() (err error) {
				conn, err = net.ListenPacket("udp", netip.AddrPortFrom(w.vip, 5300).String())
				return err
			})
			defer conn.Close()
			go answer(conn)
			wire := testenv.OpenWire(t, s.peer, "eth0")
			for _, size := range []int{0, 1, 700} {
				send := func() { s.sendDatagram(wire, w, size) }
				wire.Answer(fmt.Sprintf("answer of %d bytes from the VIP", size), send, func(p gopacket.Packet) bool {
					udp, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
					return ok && udp.SrcPort == 5300 && int(udp.Length) == 8+size &&
						bytes.Equal(p.NetworkLayer().NetworkFlow().Src().Raw(), w.vip.AsSlice())
				})
			}
		})
	}
}

func answer(conn net.PacketConn) {
	buffer := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		conn.WriteTo(buffer[:n], from)
	}
}

// sendDatagram sends a client's datagram to the VIP as a balancer would forward it.
func (s *segment) sendDatagram(wire *testenv.Wire, w tunnelPath, size int) {
	client, at, ds := s.peer4, w.vip, uint8(0)
	if w.vip.Is6() {
		client = s.peer6
	}
	if w.mode == lb.DSCP {
		at, ds = w.to, 10<<2
	}
	inner, forSum := header(client, at, layers.IPProtocolUDP, ds)
	udp := &layers.UDP{SrcPort: 4000, DstPort: 5300}
	udp.SetNetworkLayerForChecksum(forSum)
	parts := []gopacket.SerializableLayer{inner, udp, gopacket.Payload(make([]byte, size))}
	within := layers.IPProtocolIPv4
	if w.vip.Is6() {
		within = layers.IPProtocolIPv6
	}
	switch w.mode {
	case lb.IPIP:
		outer, _ := header(w.from, w.to, within, 0)
		parts = append([]gopacket.SerializableLayer{outer}, parts...)
	case lb.GUE:
		outer, forSum := header(w.from, w.to, layers.IPProtocolUDP, 0)
		tunnel := &layers.UDP{SrcPort: 0xc001, DstPort: 6080}
		tunnel.SetNetworkLayerForChecksum(forSum)
		parts = append([]gopacket.SerializableLayer{outer, tunnel}, parts...)
	}
	kind := layers.EthernetTypeIPv4
	if w.to.Is6() {
		kind = layers.EthernetTypeIPv6
	}
	wire.Send(append([]gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: s.peerMAC, DstMAC: s.backendMAC,
		EthernetType: kind}}, parts...)...)
}

func header(from, to netip.Addr, protocol layers.IPProtocol, ds uint8) (gopacket.SerializableLayer,
	gopacket.NetworkLayer) {
	if to.Is6() {
		ip := &layers.IPv6{Version: 6, TrafficClass: ds, NextHeader: protocol, HopLimit: 64, SrcIP: from.AsSlice(),
			DstIP: to.AsSlice()}
		return ip, ip
	}
	ip := &layers.IPv4{Version: 4, TOS: ds, TTL: 64, Protocol: protocol, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	return ip, ip
}
