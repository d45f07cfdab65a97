// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/jeoul/jeoul/internal/test/testpacket"
)

// packetSpec describes a packet with ports.
type packetSpec struct {
	to       net.HardwareAddr
	from, at netip.Addr
	sport    uint16
	dport    uint16
	udp      bool
	flags    string
	seq      uint32
	payload  int
	options  []layers.IPv4Option
	// tcpOptions are the bytes between the TCP header and the payload; they are
	// padded to a multiple of 4.
	tcpOptions []byte
	tos        byte
	df         bool
	id         uint16
}

type ipLayer interface {
	gopacket.SerializableLayer
	gopacket.NetworkLayer
}

// build makes the frame with gopacket, an encoder that shares no code with the code under test.
func (p packetSpec) build(tb testing.TB) []byte {
	tb.Helper()
	protocol := layers.IPProtocolTCP
	if p.udp {
		protocol = layers.IPProtocolUDP
	}
	eth, ip := p.lower(protocol)
	payload := make([]byte, p.payload)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	return testpacket.Serialize(tb, eth, ip, p.transport(tb, ip), gopacket.Payload(payload))
}

// lower makes the Ethernet and the IP header.
func (p packetSpec) lower(protocol layers.IPProtocol) (*layers.Ethernet, ipLayer) {
	if p.to == nil {
		p.to = balancerMAC
	}
	eth := &layers.Ethernet{SrcMAC: routerMAC, DstMAC: p.to, EthernetType: layers.EthernetTypeIPv4}
	if p.at.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: 64, Id: p.id, TOS: p.tos, Protocol: protocol,
			SrcIP: p.from.AsSlice(), DstIP: p.at.AsSlice(), Options: p.options}
		if p.df {
			ip.Flags = layers.IPv4DontFragment
		}
		return eth, ip
	}
	eth.EthernetType = layers.EthernetTypeIPv6
	return eth, &layers.IPv6{Version: 6, HopLimit: 64, TrafficClass: p.tos, NextHeader: protocol,
		SrcIP: p.from.AsSlice(), DstIP: p.at.AsSlice()}
}

func (p packetSpec) transport(tb testing.TB, ip gopacket.NetworkLayer) gopacket.SerializableLayer {
	tb.Helper()
	if p.udp {
		udp := &layers.UDP{SrcPort: layers.UDPPort(p.sport), DstPort: layers.UDPPort(p.dport)}
		if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
			tb.Fatal(err)
		}
		return udp
	}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(p.sport), DstPort: layers.TCPPort(p.dport), Seq: p.seq, Window: 64240}
	for _, flag := range p.flags {
		switch flag {
		case 'S':
			tcp.SYN = true
		case 'A':
			tcp.ACK = true
		case 'F':
			tcp.FIN = true
		case 'R':
			tcp.RST = true
		case 'P':
			tcp.PSH = true
		default:
			tb.Fatalf("no such TCP flag: %c", flag)
		}
	}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		tb.Fatal(err)
	}
	if len(p.tcpOptions) > 0 {
		// gopacket leaves padding alone where there are no options of its own.
		tcp.Padding = slices.Concat(p.tcpOptions, make([]byte, -len(p.tcpOptions)&3))
	}
	return tcp
}

// web4 is the packet of which the table's cases are variations.
func web4() packetSpec {
	return packetSpec{from: client4, at: vip4, sport: 40000, dport: 80, flags: "S"}
}

func web6() packetSpec {
	return packetSpec{from: client6, at: vip6, sport: 40000, dport: 80, flags: "S"}
}

func with(p packetSpec, change func(*packetSpec)) packetSpec {
	change(&p)
	return p
}

// answer is the packet that the other end sends back to the same ports.
func (p packetSpec) answer() packetSpec {
	p.from, p.at, p.sport, p.dport = p.at, p.from, p.dport, p.sport
	return p
}

// patched returns a frame with bytes changed.
func patched(frame []byte, at int, bytes ...byte) []byte {
	copy(frame[at:], bytes)
	return frame
}

// tagged puts a VLAN tag into a frame.
func tagged(frame []byte, kind uint16) []byte {
	tag := binary.BigEndian.AppendUint16(nil, kind)
	return slices.Insert(slices.Clone(frame), 12, append(tag, 0x60, 0x07)...)
}

// ipv6WithExtensions puts extension headers between the IPv6 and the transport
// header of a frame. Each is its type and its length in units of 8 bytes.
func ipv6WithExtensions(frame []byte, extensions ...[2]byte) []byte {
	out := append([]byte(nil), frame[:54]...)
	last := frame[20]
	at := 20
	for _, extension := range extensions {
		out[at] = extension[0]
		at = len(out)
		header := make([]byte, extension[1]*8)
		if extension[0] != 44 {
			header[1] = extension[1] - 1
		}
		out = append(out, header...)
	}
	out[at] = last
	out = append(out, frame[54:]...)
	binary.BigEndian.PutUint16(out[18:], uint16(len(out)-54))
	return out
}

// fragment cuts the bytes from..end out of the payload of a frame that has no
// tag; from is a multiple of 8. The last fragment is the one that ends where
// the payload does.
func fragment(frame []byte, id uint32, from, end int) []byte {
	if binary.BigEndian.Uint16(frame[12:]) == 0x86dd {
		payload := frame[54:]
		end = min(end, len(payload))
		field := uint16(from)
		if end < len(payload) {
			field |= 1
		}
		header := binary.BigEndian.AppendUint16([]byte{frame[20], 0}, field)
		header = binary.BigEndian.AppendUint32(header, id)
		out := slices.Concat(frame[:54], header, payload[from:end])
		out[20] = 44
		binary.BigEndian.PutUint16(out[18:], uint16(len(out)-54))
		return out
	}
	size := int(frame[14]&15) * 4
	payload := frame[14+size:]
	end = min(end, len(payload))
	field := uint16(from / 8)
	if end < len(payload) {
		field |= 0x2000
	}
	out := slices.Concat(frame[:14+size], payload[from:end])
	binary.BigEndian.PutUint16(out[16:], uint16(len(out)-14))
	binary.BigEndian.PutUint16(out[18:], uint16(id))
	binary.BigEndian.PutUint16(out[20:], field)
	return withIPv4Checksum(out)
}

// withIPv4Checksum makes the checksum of a frame's IPv4 header right.
func withIPv4Checksum(frame []byte) []byte {
	header := frame[14:][:int(frame[14]&15)*4]
	header[10], header[11] = 0, 0
	binary.BigEndian.PutUint16(header[10:], ^sum(header))
	return frame
}

// icmp makes an ICMP message of the family of its ends.
func (p packetSpec) icmp(tb testing.TB, kind, code byte, body ...byte) []byte {
	tb.Helper()
	if p.at.Is4() {
		eth, ip := p.lower(layers.IPProtocolICMPv4)
		return testpacket.Serialize(tb, eth, ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, code)},
			gopacket.Payload(body))
	}
	eth, ip := p.lower(layers.IPProtocolICMPv6)
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, code)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		tb.Fatal(err)
	}
	return testpacket.Serialize(tb, eth, ip, icmp, gopacket.Payload(append([]byte{0, 0, 0, 0}, body...)))
}

// icmpError is an error that a host sends about a packet to where that came from.
// It quotes that many bytes of it at most.
func icmpError(tb testing.TB, from netip.Addr, about []byte, most int) []byte {
	tb.Helper()
	quoted := about[14:min(len(about), 14+most)]
	if from.Is4() {
		to := netip.AddrFrom4([4]byte(quoted[12:16]))
		return packetSpec{from: from, at: to}.icmp(tb, 3, 4, quoted...)
	}
	to := netip.AddrFrom16([16]byte(quoted[8:24]))
	return packetSpec{from: from, at: to}.icmp(tb, 2, 0, quoted...)
}
