// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestChecksumsAreRightOnTheWire: a packet's transport checksum is right once it is on the wire, in each state that the
// kernel has for it: not verified; to be completed by a device, which this one does not, so that the kernel completes
// the program's value of the field; or the sum of the whole packet is known, as of one that came out of VXLAN. A test
// run's packets are all in the first state.
func TestChecksumsAreRightOnTheWire(t *testing.T) {
	w := newWires(t)
	interfaces, ends := []string{"in", "out"}, []net.HardwareAddr{w.mac[0]}
	testenv.In(t, w.balancer, func() error { return checksumOffload("out", false) })
	if mac := w.addTunnel(t); mac != nil {
		interfaces, ends = append(interfaces, tunnelEnd), append(ends, mac)
	}
	state, packets := translatingServices(w)
	w.serveInTC(t, state, interfaces)
	send := openSender(t, w.outside, "outin")
	length := 20
	for _, p := range packets {
		// expect sends a packet to a MAC address. Each has its own length, so that no late copy of another is taken for
		// it.
		expect := func(t *testing.T, to net.HardwareAddr, send func(frame []byte)) {
			t.Helper()
			length++
			p.to, p.payload = to, length
			frame := p.build(t)
			got := w.wire[1].Answer("packet to a backend", func() { send(frame) }, func(packet gopacket.Packet) bool {
				return bytes.Equal(packet.Data()[:6], w.path(1).MAC) &&
					bytes.HasSuffix(packet.Data(), frame[len(frame)-length:])
			}).Data()
			if p := transportOf(got); sum(p.bytes, p.pseudo) != 0 {
				t.Errorf("the transport checksum is off by %#04x: %x", sum(p.bytes, p.pseudo), got)
			}
		}
		what := fmt.Sprintf("%v udp=%v port %d, ", p.at, p.udp, p.dport)
		t.Run(what+"nothing known", func(t *testing.T) {
			expect(t, ends[0], func(frame []byte) { send(virtioHeader{}, frame) })
		})
		t.Run(what+"to be filled in", func(t *testing.T) {
			expect(t, ends[0], func(frame []byte) { send(withPartialChecksum(frame)) })
		})
		t.Run(what+"sum of the whole", func(t *testing.T) {
			if len(ends) == 1 {
				t.Skip("this kernel has no VXLAN")
			}
			expect(t, ends[1], func(frame []byte) { w.wire[0].Send(encapsulated(t, w.mac[0], frame)...) })
		})
	}
}

// serveInTC has a state served on interfaces of the balancer until the test ends.
func (w *wires) serveInTC(t *testing.T, state lb.State, interfaces []string) {
	t.Helper()
	testenv.In(t, w.balancer, func() error {
		d, err := Open(Options{Interfaces: interfaces, Hook: lb.HookTC, TableSize: testTableSize})
		if err != nil {
			return err
		}
		t.Cleanup(func() { d.Close() })
		return d.Apply(state)
	})
}

// translatingServices is a service of each mode that rewrites addresses and ports, with its
// backends behind the second wire, and a packet to each.
func translatingServices(w *wires) (state lb.State, packets []packetSpec) {
	state.Pool = allModes().Pool
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			for _, port := range []uint16{portNAT, portFullNAT} {
				service := modeService(vip, port, protocol, lb.Maglev)
				for i := range service.Paths {
					service.Paths[i] = w.path(1)
				}
				state.Services = append(state.Services, service)
				packets = append(packets, modePacket(vip, port, protocol == lb.UDP))
			}
		}
	}
	return state, packets
}

// A VXLAN tunnel (RFC 7348) ends at the first wire.
const (
	tunnelEnd     = "unwrapped"
	tunnelPort    = 4789
	tunnelNetwork = 5
)

var (
	tunnelHere  = netip.MustParsePrefix("192.0.2.1/24")
	tunnelThere = netip.MustParseAddr("192.0.2.2")
)

// addTunnel makes the balancer's end of the tunnel, and returns its MAC address; nil if the
// kernel has none.
func (w *wires) addTunnel(t *testing.T) (mac net.HardwareAddr) {
	t.Helper()
	testenv.In(t, w.balancer, func() error {
		in, err := netlink.LinkByIndex(w.index[0])
		if err != nil {
			return err
		}
		here := &net.IPNet{IP: tunnelHere.Addr().AsSlice(), Mask: net.CIDRMask(tunnelHere.Bits(), 32)}
		if err := netlink.AddrAdd(in, &netlink.Addr{IPNet: here}); err != nil {
			return err
		}
		err = netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: tunnelEnd}, VxlanId: tunnelNetwork,
			Port: tunnelPort, SrcAddr: here.IP, Group: tunnelThere.AsSlice()})
		if errors.Is(err, unix.EOPNOTSUPP) {
			return nil
		} else if err != nil {
			return err
		}
		end, err := netlink.LinkByName(tunnelEnd)
		if err != nil {
			return err
		}
		mac = end.Attrs().HardwareAddr
		return netlink.LinkSetUp(end)
	})
	return mac
}

// encapsulated returns a frame inside of the tunnel, whose own checksum is right.
func encapsulated(t *testing.T, to net.HardwareAddr, frame []byte) []gopacket.SerializableLayer {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: tunnelThere.AsSlice(),
		DstIP: tunnelHere.Addr().AsSlice()}
	udp := &layers.UDP{SrcPort: 50000, DstPort: tunnelPort}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	return []gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: routerMAC, DstMAC: to,
		EthernetType: layers.EthernetTypeIPv4},
		ip, udp, &layers.VXLAN{ValidIDFlag: true, VNI: tunnelNetwork}, gopacket.Payload(frame)}
}

// transportPart is a frame's transport header and payload.
type transportPart struct {
	bytes, pseudo []byte
	// at is where it begins in the frame, and check where its checksum is in it.
	at, check int
}

// transportOf takes apart a TCP or UDP packet without IP options.
func transportOf(frame []byte) transportPart {
	ip := frame[14:]
	p := transportPart{at: 14 + 20, check: 16}
	protocol, six := ip[9], ip[0]>>4 == 6
	if six {
		p.at, protocol = 14+40, ip[6]
	}
	if protocol == protoUDP {
		p.check = 6
	}
	p.bytes = frame[p.at:]
	p.pseudo = binary.BigEndian.AppendUint16(append(slices.Clone(pseudo(ip, six)), 0, protocol), uint16(len(p.bytes)))
	return p
}

// virtioHeader goes before a frame, and tells the kernel the state of its checksum (include/uapi/linux/virtio_net.h,
// struct virtio_net_hdr).
type virtioHeader struct {
	Flags, Segments                      uint8
	HeaderLength, Segment, Start, Offset uint16
}

// withPartialChecksum returns a frame with just the pseudo header's sum in its checksum field, and the header that says
// so.
func withPartialChecksum(frame []byte) (virtioHeader, []byte) {
	p := transportOf(frame)
	frame = slices.Clone(frame)
	binary.BigEndian.PutUint16(frame[p.at+p.check:], sum(p.pseudo))
	return virtioHeader{Flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, Start: uint16(p.at), Offset: uint16(p.check)}, frame
}

// openSender opens a packet socket that sends frames from the namespace, each as its header
// describes it.
func openSender(t *testing.T, ns *namespace.Namespace, name string) func(virtioHeader, []byte) {
	t.Helper()
	var fd int
	testenv.In(t, ns, func() (err error) {
		fd, err = listen(t, name)
		return err
	})
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		t.Fatal(err)
	}
	return func(header virtioHeader, frame []byte) {
		t.Helper()
		b, err := binary.Append(nil, binary.NativeEndian, header)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fd, append(b, frame...)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestErrorsAreRightOnTheWire: the checksum of an ICMP error is right once it is on the wire, also where a device, or
// here the kernel, still has to complete the checksum of the packet that it quotes, as of segments that GRO has merged.
func TestErrorsAreRightOnTheWire(t *testing.T) {
	w := newWires(t)
	testenv.In(t, w.balancer, func() error { return checksumOffload("in", false) })
	state, packets := translatingServices(w)
	for i := range state.Services {
		for j := range state.Services[i].Paths {
			state.Services[i].Paths[j].MTU = 600
		}
	}
	w.serveInTC(t, state, []string{"in", "out"})
	send := openSender(t, w.outside, "outin")
	for _, p := range packets {
		expect := func(t *testing.T) {
			t.Helper()
			got := w.wire[0].Next("ICMP error to the router", func(packet gopacket.Packet) bool {
				return bytes.Equal(packet.Data()[:6], routerMAC) &&
					(packet.Layer(layers.LayerTypeICMPv4) != nil || packet.Layer(layers.LayerTypeICMPv6) != nil)
			}).Data()
			if off := sum(icmpOf(got)); off != 0 {
				t.Errorf("the checksum is off by %#04x: %x", off, got)
			}
		}
		p.to, p.payload = w.mac[0], 1000
		frame := p.build(t)
		what := fmt.Sprintf("%v udp=%v port %d, ", p.at, p.udp, p.dport)
		t.Run(what+"nothing known", func(t *testing.T) { send(virtioHeader{}, frame); expect(t) })
		t.Run(what+"to be filled in", func(t *testing.T) { send(withPartialChecksum(frame)); expect(t) })
	}
}

// icmpOf returns the bytes that the checksum of an ICMP message covers, with the pseudo header of ICMPv6.
func icmpOf(frame []byte) (message, pseudoHeader []byte) {
	ip := frame[14:]
	if ip[0]>>4 == 4 {
		return ip[20:binary.BigEndian.Uint16(ip[2:])], nil
	}
	message = ip[40 : 40+int(binary.BigEndian.Uint16(ip[4:]))]
	pseudoHeader = append(slices.Clone(pseudo(ip, true)), 0, protoICMPv6)
	return message, binary.BigEndian.AppendUint16(pseudoHeader, uint16(len(message)))
}
