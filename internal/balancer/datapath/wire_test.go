// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// wires is a balancer with two interfaces, and the wires and sockets at their other ends.
type wires struct {
	balancer, outside *namespace.Namespace
	mac               [2]net.HardwareAddr
	index             [2]int
	wire              [2]*testenv.Wire
	// sockets report of each frame whether it had a tag (PACKET_AUXDATA).
	sockets [2]int
}

func newWires(t *testing.T) *wires {
	t.Helper()
	w := &wires{balancer: testenv.Namespace(t), outside: testenv.Namespace(t)}
	for i := range w.mac {
		name, peer := []string{"in", "out"}[i], []string{"outin", "outout"}[i]
		w.mac[i], _ = testenv.Veth(t, testenv.End{Namespace: w.balancer, Name: name},
			testenv.End{Namespace: w.outside, Name: peer})
		testenv.In(t, w.balancer, func() error {
			nic, err := net.InterfaceByName(name)
			if err == nil {
				w.index[i] = nic.Index
			}
			return err
		})
		testenv.In(t, w.outside, func() error {
			// A veth takes XDP frames only if it runs a program itself. This one
			// passes everything.
			l, err := attachForeign(peer)
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		})
		w.wire[i] = testenv.OpenWire(t, w.outside, peer)
		testenv.In(t, w.outside, func() (err error) {
			w.sockets[i], err = listen(t, peer)
			return err
		})
	}
	return w
}

// path leads to the backend behind a wire.
func (w *wires) path(wire int) lb.Path {
	return lb.Path{Interface: w.index[wire], MAC: net.HardwareAddr{2, 0, 0, 0, 7, byte(wire)}, Source: w.mac[wire],
		Local: local4}
}

// listen opens a packet socket on an interface of the calling thread's namespace.
func listen(t *testing.T, name string) (int, error) {
	nic, err := net.InterfaceByName(name)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		return 0, err
	}
	return fd, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: mapmem.NetworkOrder(unix.ETH_P_ALL), Ifindex: nic.Index})
}

// TestFramesLeaveByTheirPath attaches to two interfaces and looks where frames
// come out: test runs say that a frame leaves, and not by which interface.
func TestFramesLeaveByTheirPath(t *testing.T) {
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		w := newWires(t)
		service := testService(vip4, 80, lb.TCP, lb.RoundRobin, 2)
		for i := range service.Paths {
			service.Paths[i] = w.path(i)
		}
		tunnel := modeService(vip6, portGUE, lb.UDP, lb.Maglev)
		addBackends(&tunnel, 1, portGUE, true)
		tunnel.Paths[0] = w.path(1)
		tunnel.Paths[0].Local = local6
		testenv.In(t, w.balancer, func() error {
			d, err := Open(Options{Interfaces: []string{"in", "out"}, Hook: hook, TableSize: testTableSize})
			if err != nil {
				return err
			}
			t.Cleanup(func() { d.Close() })
			return d.Apply(lb.State{Services: []lb.RoutedService{service, tunnel}})
		})
		send := func(p packetSpec, kind layers.EthernetType, between ...gopacket.SerializableLayer) {
			protocol := layers.IPProtocolTCP
			if p.udp {
				protocol = layers.IPProtocolUDP
			}
			_, ip := p.lower(protocol)
			link := &layers.Ethernet{SrcMAC: routerMAC, DstMAC: w.mac[0], EthernetType: kind}
			parts := append([]gopacket.SerializableLayer{link}, between...)
			w.wire[0].Send(append(parts, ip, p.transport(t, ip), gopacket.Payload(make([]byte, 100)))...)
		}
		tag := &layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeIPv4}
		// The first flow has the first turn, and goes back where it came from; the
		// second goes on. A tag stays where the frame stays.
		for turn, what := range []string{"backend on the same interface", "backend on the other interface"} {
			p := with(web4(), func(p *packetSpec) { p.sport = uint16(1 + turn) })
			w.expect(t, turn, "frame to the "+what, delivered{backend: byte(turn), length: 14 + 40 + 100},
				func() { send(p, layers.EthernetTypeIPv4) })
			w.expect(t, turn, "frame that came with a tag, to the "+what, delivered{byte(turn), 14 + 40 + 100, turn == 0},
				func() { send(p, layers.EthernetTypeDot1Q, tag) })
		}
		tag.Type = layers.EthernetTypeIPv6
		w.expect(t, 1, "tunnel packet that came with a tag", delivered{1, 14 + 40 + 8 + 40 + 8 + 100, false},
			func() { send(modePacket(vip6, portGUE, true), layers.EthernetTypeDot1Q, tag) })
	})
}

// TestRepliesLeaveByTheirRoute: a reply of NAT goes where the kernel's routes lead, the first one and those that use
// the cached route; its VLAN tag is removed.
func TestRepliesLeaveByTheirRoute(t *testing.T) {
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		w := newWires(t)
		service := modeService(vip4, portNAT, lb.TCP, lb.Maglev)
		client := netip.MustParseAddr("203.0.113.7")
		testenv.In(t, w.balancer, func() error {
			err := errors.Join(
				testenv.WriteSysctl("net/ipv4/ip_forward", "1"),
				netlink.RouteAdd(&netlink.Route{LinkIndex: w.index[1], Scope: netlink.SCOPE_LINK,
					Dst: &net.IPNet{IP: client.AsSlice(), Mask: net.CIDRMask(32, 32)}}),
				netlink.NeighSet(&netlink.Neigh{LinkIndex: w.index[1], IP: client.AsSlice(),
					HardwareAddr: w.path(1).MAC, State: netlink.NUD_PERMANENT}))
			if err != nil {
				return err
			}
			d, err := Open(Options{Interfaces: []string{"in", "out"}, Hook: hook, TableSize: testTableSize})
			if err != nil {
				return err
			}
			t.Cleanup(func() { d.Close() })
			return d.Apply(lb.State{Services: []lb.RoutedService{service}})
		})
		backend := service.Backends[0]
		reply := packetSpec{from: backend.Address, at: client, sport: backend.Port, dport: 40000, flags: "A"}
		_, ip := reply.lower(layers.IPProtocolTCP)
		link := &layers.Ethernet{SrcMAC: routerMAC, DstMAC: w.mac[0], EthernetType: layers.EthernetTypeIPv4}
		behind := []gopacket.SerializableLayer{ip, reply.transport(t, ip), gopacket.Payload(make([]byte, 100))}
		tag := &layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeIPv4}
		for range 3 {
			link.EthernetType = layers.EthernetTypeIPv4
			w.expect(t, 1, "reply", delivered{1, 14 + 40 + 100, false},
				func() { w.wire[0].Send(append([]gopacket.SerializableLayer{link}, behind...)...) })
			link.EthernetType = layers.EthernetTypeDot1Q
			w.expect(t, 1, "reply that came with a tag", delivered{1, 14 + 40 + 100, false},
				func() { w.wire[0].Send(append([]gopacket.SerializableLayer{link, tag}, behind...)...) })
		}
	})
}

// delivered is a frame from the balancer, as a backend of the test receives it. The kernel has taken its tag off, and
// does not count it in the length.
type delivered struct {
	backend byte
	length  int
	tagged  bool
}

// expect sends until such a frame comes, each second again: a queue that all namespaces share may drop one.
func (w *wires) expect(t *testing.T, wire int, what string, want delivered, send func()) {
	t.Helper()
	var seen []delivered
	for began, times := time.Now(), 1; time.Since(began) < testenv.WaitLimit; times++ {
		send()
		for again := time.Now().Add(time.Second); time.Now().Before(again); {
			got, ok := w.receive(t, wire)
			if ok && got == want {
				if times > 1 {
					w.drain(t, wire) // no copy may be taken for a later frame
				}
				return
			}
			if ok {
				seen = append(seen, got)
			}
		}
	}
	t.Fatalf("no %s came within %v, in which it was sent again and again (%+v), but %+v", what, testenv.WaitLimit, want,
		seen)
}

// ready waits for as many milliseconds for a frame, or for none at all.
func (w *wires) ready(t *testing.T, wire, timeout int) bool {
	t.Helper()
	poll := []unix.PollFd{{Fd: int32(w.sockets[wire]), Events: unix.POLLIN}}
	for {
		// The runtime interrupts system calls to schedule goroutines.
		n, err := unix.Poll(poll, timeout)
		if err == nil {
			return n > 0
		}
		if err != unix.EINTR {
			t.Fatal(err)
		}
	}
}

// drain discards received frames: a socket whose buffer is full takes no more.
func (w *wires) drain(t *testing.T, wire int) {
	t.Helper()
	for w.ready(t, wire, 100) {
		w.receive(t, wire)
	}
}

// receive returns the next frame to a backend of the test, if one comes soon.
func (w *wires) receive(t *testing.T, wire int) (a delivered, ok bool) {
	t.Helper()
	if !w.ready(t, wire, 100) {
		return a, false
	}
	frame, control := make([]byte, 4096), make([]byte, 128)
	n, controls, _, _, err := unix.Recvmsg(w.sockets[wire], frame, control, 0)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:controls])
	if err != nil || len(messages) == 0 {
		t.Fatalf("a frame without what the kernel knows of it: %v", err)
	}
	status := binary.NativeEndian.Uint32(messages[0].Data)
	return delivered{frame[5], n, status&unix.TP_STATUS_VLAN_VALID != 0}, frame[4] == 7
}
