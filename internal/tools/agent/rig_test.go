// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/test/testpacket"
)

// The program's return codes: TC_ACT_SHOT, TC_ACT_UNSPEC.
const (
	actionDrop = 2
	actionPass = 0xffffffff
)

// The addresses of the tests' host, and of those around it.
var (
	testVIP4      = netip.MustParseAddr("198.18.0.100")
	testVIP6      = netip.MustParseAddr("2001:2::100")
	testOwn4      = netip.MustParseAddr("198.18.2.1")
	testOwn6      = netip.MustParseAddr("2001:2::2:1")
	testClient4   = netip.MustParseAddr("198.18.1.7")
	testClient6   = netip.MustParseAddr("2001:2::1:7")
	testBalancer4 = netip.MustParseAddr("198.18.0.2")
	testBalancer6 = netip.MustParseAddr("2001:2::2")
	testMarks     = []Mark{{10, testVIP4}, {11, testVIP6}, {63, testVIP4}, {63, testVIP6}}
)

// testMSS is the maximum MSS that SYNs from a VIP may announce.
const testMSS = 1400

// rig is the program without attachments, for a host with those addresses.
type rig struct {
	*program
	last []Count
}

func newRig(tb testing.TB, modes []lb.Mode, marks []Mark) *rig {
	tb.Helper()
	testenv.Root(tb)
	p, err := load(Options{Modes: modes, Marks: marks, MSS: testMSS})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.close)
	for addr, role := range testRoles {
		if err := p.addresses.Put(addr.As16(), role); err != nil {
			tb.Fatal(err)
		}
	}
	return &rig{p, counts(tb, p)}
}

// testRoles are the roles that the follower would set. The host has its VIPs, too.
var testRoles = map[netip.Addr]tcAgentRole{
	testVIP4: tcAgentRoleAGENT_ROLE_VIP | tcAgentRoleAGENT_ROLE_OWN,
	testVIP6: tcAgentRoleAGENT_ROLE_VIP | tcAgentRoleAGENT_ROLE_OWN,
	testOwn4: tcAgentRoleAGENT_ROLE_OWN,
	testOwn6: tcAgentRoleAGENT_ROLE_OWN,
}

func counts(tb testing.TB, p *program) []Count {
	tb.Helper()
	c, err := readCounts(p.counts)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// end is the expected end of a packet.
type end struct {
	mode    lb.Mode
	outcome string
	frame   []byte
}

func (e end) action() uint32 {
	if strings.HasPrefix(e.outcome, "dropped") {
		return actionDrop
	}
	return actionPass
}

// check runs a frame through the program, and compares verdict, bytes and all counters with the expected ones.
func (r *rig) check(tb testing.TB, frame []byte, want end) {
	tb.Helper()
	r.checkWith(tb, frame, want, nil)
}

// skbuff has the fields of struct __sk_buff that tests set. The kernel requires the others to be 0.
type skbuff struct {
	_       [41]uint32
	GSOSegs uint32 // at 164
	_       [2]uint32
	GSOSize uint32 // at 176
	_       [3]uint32
}

func (r *rig) checkWith(tb testing.TB, frame []byte, want end, context *skbuff) {
	tb.Helper()
	r.checkProgram(tb, r.ingress, frame, want, context)
}

// checkProgram checks one of the programs. A want without an outcome is a packet that passes without being counted.
func (r *rig) checkProgram(tb testing.TB, program *ebpf.Program, frame []byte, want end, context *skbuff) {
	tb.Helper()
	out := make([]byte, len(frame)+256)
	options := &ebpf.RunOptions{Data: frame, DataOut: out}
	packets := uint64(1)
	if context != nil {
		options.Context = context
		packets = max(packets, uint64(context.GSOSegs))
	}
	action, err := program.Run(options)
	if err != nil {
		tb.Fatalf("running %s: %v", testpacket.Dump(frame), err)
	}
	if action != want.action() {
		tb.Errorf("action %d, want %d (%s)\n%s", action, want.action(), want.outcome, testpacket.Dump(frame))
	}
	// A dropped frame may be partly changed; no receiver sees it.
	if want.action() == actionPass {
		if diff := cmp.Diff(want.frame, options.DataOut); diff != "" {
			tb.Errorf("%s %s: bytes (-want +got):\n%s\nof %s", want.mode, want.outcome, diff, testpacket.Dump(frame))
		}
	}
	got := counts(tb, r.program)
	for i := range r.last {
		if r.last[i].Mode == want.mode && r.last[i].Outcome == want.outcome {
			r.last[i].Packets += packets
		}
	}
	if !cmp.Equal(r.last, got) {
		tb.Errorf("%s %s: counters (-want +got):\n%s\nof %s", want.mode, want.outcome, cmp.Diff(r.last, got),
			testpacket.Dump(frame))
	}
	r.last = got
}

// The kernel's test device is lo, whose MAC address is all zeros. A frame for it is for this host.
var (
	hostMAC  = make(net.HardwareAddr, 6)
	otherMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9}
)

// frame prepends an Ethernet header to an IP packet.
func frame(packet []byte) []byte {
	kind := []byte{0x08, 0x00}
	if len(packet) > 0 && packet[0]>>4 == 6 {
		kind = []byte{0x86, 0xdd}
	}
	header := append(append([]byte(nil), hostMAC...), otherMAC...)
	return append(append(header, kind...), packet...)
}

// network returns an IP header, both as a layer and as the pseudo-header for its payload's checksum.
func network(from, to netip.Addr, protocol layers.IPProtocol, ds uint8) (gopacket.SerializableLayer,
	gopacket.NetworkLayer) {
	if to.Is6() {
		ip := &layers.IPv6{Version: 6, TrafficClass: ds, FlowLabel: 0x12345, NextHeader: protocol, HopLimit: 61,
			SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
		return ip, ip
	}
	ip := &layers.IPv4{Version: 4, TOS: ds, Id: 0x4711, TTL: 61, Protocol: protocol,
		SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	return ip, ip
}

// ip wraps a payload in an IP header.
func ip(tb testing.TB, from, to netip.Addr, protocol layers.IPProtocol, ds uint8, payload []byte) []byte {
	tb.Helper()
	header, _ := network(from, to, protocol, ds)
	return testpacket.Serialize(tb, header, gopacket.Payload(payload))
}

func clientOf(to netip.Addr) netip.Addr {
	if to.Is6() {
		return testClient6
	}
	return testClient4
}

func tcp(tb testing.TB, to netip.Addr, ds uint8, payload int) []byte {
	tb.Helper()
	header, forSum := network(clientOf(to), to, layers.IPProtocolTCP, ds)
	segment := &layers.TCP{SrcPort: 40000, DstPort: 80, Seq: 7, SYN: true, Window: 512}
	if err := segment.SetNetworkLayerForChecksum(forSum); err != nil {
		tb.Fatal(err)
	}
	return testpacket.Serialize(tb, header, segment, gopacket.Payload(pattern(payload)))
}

func udp(tb testing.TB, to netip.Addr, ds uint8, payload int) []byte {
	tb.Helper()
	header, forSum := network(clientOf(to), to, layers.IPProtocolUDP, ds)
	datagram := &layers.UDP{SrcPort: 40000, DstPort: 53}
	if err := datagram.SetNetworkLayerForChecksum(forSum); err != nil {
		tb.Fatal(err)
	}
	return testpacket.Serialize(tb, header, datagram, gopacket.Payload(pattern(payload)))
}

func pattern(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i*7 + 1)
	}
	return data
}

// own returns the addresses of the balancer and the host in a family.
func own(ipv6 bool) (balancer, host netip.Addr) {
	if ipv6 {
		return testBalancer6, testOwn6
	}
	return testBalancer4, testOwn4
}

// ipip encapsulates a packet in another one.
func ipip(tb testing.TB, outer6 bool, ds uint8, inner []byte) []byte {
	tb.Helper()
	from, to := own(outer6)
	protocol := layers.IPProtocolIPv4
	if inner[0]>>4 == 6 {
		protocol = layers.IPProtocolIPv6
	}
	return ip(tb, from, to, protocol, ds, inner)
}

// gue encapsulates a packet in a UDP datagram without a checksum.
func gue(tb testing.TB, outer6 bool, ds uint8, inner []byte) []byte {
	tb.Helper()
	from, to := own(outer6)
	return ip(tb, from, to, layers.IPProtocolUDP, ds, append(udpHeader(6080, len(inner)), inner...))
}

func udpHeader(port uint16, payload int) []byte {
	header := make([]byte, 8)
	binary.BigEndian.PutUint16(header[0:], 0xc001)
	binary.BigEndian.PutUint16(header[2:], port)
	binary.BigEndian.PutUint16(header[4:], uint16(8+payload))
	return header
}
