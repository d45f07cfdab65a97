// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/miekg/dns"

	"github.com/jeoul/jeoul/internal/test/testpacket"
)

// established opens a connection that the first server port accepts, and returns the client's SYN, the SYN-ACK and the
// client's reply to that.
func (k *talk) established() (syn, synack tcpSegment, third []byte) {
	k.Helper()
	first := k.open()
	syn = k.expect(first, "SYN", k.read(first).Seq, 0, 0)
	syn.from(k, clientMAC, balancerMAC)
	second := k.answer(k.servers[0], first)
	synack = k.expect(second, "SYN ACK", k.read(second).Seq, syn.Seq+1, 0)
	synack.from(k, serverMACs[0], clientMAC)
	for _, s := range []tcpSegment{syn, synack} {
		if len(s.Options) != 1 || s.Options[0].OptionType != layers.TCPOptionKindMSS ||
			!bytes.Equal(s.Options[0].OptionData, []byte{5, 0xb4}) {
			k.Fatalf("options %v, want MSS 1460", s.Options)
		}
	}
	return syn, synack, k.answer(k.client, second)
}

// TestSessionWithResponse follows every packet of a session.
func TestSessionWithResponse(t *testing.T) {
	const response = 3000
	k := newTalk(t, Load{Kind: Session, Content: []byte("GET / HTTP/1.0\r\n\r\n"), Response: response}, nil)
	syn, synack, frame := k.established()
	if !syn.ip.SrcIP.Equal(net.IP{198, 19, 1, 1}) || syn.SrcPort != 1024 ||
		!syn.ip.DstIP.Equal(net.IP{198, 18, 0, 100}) || syn.DstPort != 80 {
		t.Errorf("%v", syn)
	}
	request := k.expect(frame, "PSH ACK", syn.Seq+1, synack.Seq+1, 18)
	if string(request.Payload) != "GET / HTTP/1.0\r\n\r\n" {
		t.Errorf("request %q", request.Payload)
	}
	sent, got := request.Seq+18, []byte{}
	for len(got) < response {
		frame = k.answer(k.servers[0], frame)
		part := k.expect(frame, "PSH ACK", synack.Seq+1+uint32(len(got)), sent, min(1460, response-len(got)))
		part.from(k, serverMACs[0], clientMAC)
		got = append(got, part.Payload...)
		frame = k.answer(k.client, frame)
		if len(got) < response {
			k.expect(frame, "ACK", sent, synack.Seq+1+uint32(len(got)), 0).from(k, clientMAC, balancerMAC)
		}
	}
	if head, body, ok := bytes.Cut(got, []byte("\r\n\r\n")); !ok || !bytes.Contains(head, []byte("HTTP/1.1 200 OK")) ||
		!bytes.Equal(body, bytes.Repeat([]byte{'x'}, len(body))) {
		t.Errorf("response %.200q", got)
	}
	end := synack.Seq + 1 + response
	k.expect(frame, "FIN ACK", sent, end, 0)
	frame = k.answer(k.servers[0], frame)
	k.expect(frame, "FIN ACK", end, sent+1, 0)
	lost := frame
	frame = k.answer(k.client, frame)
	k.expect(frame, "ACK", sent+1, end+1, 0)
	k.silence(k.servers[0], frame)
	if k.state(0) != bpfWireStateWIRE_CLOSED {
		t.Errorf("the connection is in state %v", k.state(0))
	}
	// The server's FIN again, as if the client's last ACK had been lost: it is acknowledged, and not counted as another
	// session.
	k.expect(k.answer(k.client, lost), "ACK", sent+1, end+1, 0)
	client, server := k.total()
	k.counted(client, map[bpfWireCount]uint64{
		bpfWireCountWIRE_COUNT_ESTABLISHED: 1, bpfWireCountWIRE_COUNT_COMPLETED: 1, bpfWireCountWIRE_COUNT_DUPLICATE: 1,
		bpfWireCountWIRE_COUNT_RECEIVED: 6, bpfWireCountWIRE_COUNT_SENT: 6})
	k.counted(server, map[bpfWireCount]uint64{
		bpfWireCountWIRE_COUNT_ESTABLISHED: 1, bpfWireCountWIRE_COUNT_REQUEST: 1, bpfWireCountWIRE_COUNT_FIN: 1,
		bpfWireCountWIRE_COUNT_RECEIVED: 6, bpfWireCountWIRE_COUNT_SENT: 5})
}

// TestWrongBackend sends a connection's ACK to another server port than its SYN.
func TestWrongBackend(t *testing.T) {
	k := newTalk(t, Load{Kind: Setup}, nil)
	syn, synack, ack := k.established()
	reset := k.answer(k.servers[1], ack)
	k.expect(reset, "RST", synack.Seq+1, 0, 0)
	k.silence(k.client, reset)
	client, server := k.total()
	k.counted(client, map[bpfWireCount]uint64{bpfWireCountWIRE_COUNT_FAILED_WRONG_BACKEND: 1,
		bpfWireCountWIRE_COUNT_BROKEN: 1})
	k.counted(server, map[bpfWireCount]uint64{bpfWireCountWIRE_COUNT_WRONG_BACKEND: 1,
		bpfWireCountWIRE_COUNT_ESTABLISHED: 0})
	// A segment that acknowledges a number that no server gave out belongs to no connection.
	for _, ack := range []uint32{synack.Seq + 1 + 5<<26, synack.Seq, 12345} {
		odd := k.change(k.open(), func(_ *layers.Ethernet, ip *layers.IPv4, tcp *layers.TCP) {
			ip.SrcIP, tcp.SrcPort = syn.ip.SrcIP, syn.SrcPort
			tcp.SYN, tcp.ACK, tcp.Ack, tcp.Options = false, true, ack, nil
		})
		k.expect(k.answer(k.servers[0], odd), "RST", ack, 0, 0)
	}
	_, server = k.total()
	k.counted(server, map[bpfWireCount]uint64{bpfWireCountWIRE_COUNT_INVALID_ACK: 3})
}

// TestNothingStrangeCounts sends the client port packets that belong to no result.
func TestNothingStrangeCounts(t *testing.T) {
	k := newTalk(t, Load{Kind: Setup}, nil)
	syn := k.open()
	synack := k.answer(k.servers[0], syn)
	tcp := func(do func(*layers.IPv4, *layers.TCP)) []byte {
		return k.change(synack, func(_ *layers.Ethernet, ip *layers.IPv4, tcp *layers.TCP) { do(ip, tcp) })
	}
	damaged := bytes.Clone(synack)
	damaged[ethernetLength+ipv4Length+16] ^= 1
	for name, frame := range map[string][]byte{
		"of another source": tcp(func(ip *layers.IPv4, _ *layers.TCP) { ip.SrcIP = net.IP{198, 18, 0, 101} }),
		"of another port":   tcp(func(_ *layers.IPv4, tcp *layers.TCP) { tcp.SrcPort = 81 }),
		"to an unused port": tcp(func(_ *layers.IPv4, tcp *layers.TCP) { tcp.DstPort = 1023 }),
		"for an old SYN":    tcp(func(_ *layers.IPv4, tcp *layers.TCP) { tcp.Ack += 7 }),
		"for none yet":      tcp(func(_ *layers.IPv4, tcp *layers.TCP) { tcp.DstPort = 5000 }),
		"an old reset": tcp(func(_ *layers.IPv4, tcp *layers.TCP) {
			tcp.RST, tcp.SYN, tcp.Ack = true, false, tcp.Ack+99
		}),
		"a stray FIN":        tcp(func(_ *layers.IPv4, tcp *layers.TCP) { tcp.FIN, tcp.SYN = true, false }),
		"a wrong checksum":   damaged,
		"a wrong IP's":       append(append(bytes.Clone(synack[:24]), synack[24]^1), synack[25:]...),
		"a short TCP header": malformed(synack),
	} {
		if verdict, _ := k.give(k.client, frame); verdict != xdpDrop {
			t.Errorf("%s: verdict %d", name, verdict)
		}
	}
	client, _ := k.total()
	k.counted(client, map[bpfWireCount]uint64{
		bpfWireCountWIRE_COUNT_RECEIVED: 10, bpfWireCountWIRE_COUNT_UNKNOWN_PEER: 3, bpfWireCountWIRE_COUNT_LATE: 4,
		bpfWireCountWIRE_COUNT_CHECKSUM: 2, bpfWireCountWIRE_COUNT_MALFORMED: 1,
		bpfWireCountWIRE_COUNT_ESTABLISHED: 0, bpfWireCountWIRE_COUNT_FAILED_RESET: 0})
	// The real SYN-ACK still counts, once.
	k.answer(k.client, synack)
	k.answer(k.client, synack)
	client, _ = k.total()
	k.counted(client, map[bpfWireCount]uint64{bpfWireCountWIRE_COUNT_ESTABLISHED: 1,
		bpfWireCountWIRE_COUNT_DUPLICATE: 1})
	// A packet that is not the tester's is passed to the kernel.
	for name, do := range map[string]func(*layers.IPv4, *layers.TCP){
		"another address": func(ip *layers.IPv4, _ *layers.TCP) { ip.DstIP = net.IP{198, 19, 1, 3} },
		"a fragment":      func(ip *layers.IPv4, _ *layers.TCP) { ip.Flags, ip.FragOffset = 0, 1 },
	} {
		if verdict, _ := k.give(k.client, tcp(do)); verdict != xdpPass {
			t.Errorf("%s: verdict %d, want pass", name, verdict)
		}
	}
}

// malformed returns a frame whose TCP header claims to be longer than the packet; the checksums are right.
func malformed(frame []byte) []byte {
	frame = bytes.Clone(frame)
	frame[ethernetLength+ipv4Length+12] = 0xf0
	return frame
}

// TestRetransmission makes the sender send unanswered packets again.
func TestRetransmission(t *testing.T) {
	k := newTalk(t, Load{Kind: Session, Request: 10, Response: 2000, Timeout: 2 * time.Millisecond, Tries: 3}, nil)
	again := func() (frame []byte) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); frame == nil && time.Now().Before(end); {
			frame = k.send()
		}
		return frame
	}
	first := k.open()
	syn := k.read(first)
	k.expect(again(), "SYN", syn.Seq, 0, 0)
	synack := k.read(k.answer(k.servers[0], first))
	request := k.answer(k.client, k.answer(k.servers[0], first))
	k.expect(request, "PSH ACK", syn.Seq+1, synack.Seq+1, 10)
	repeated := again()
	k.expect(repeated, "PSH ACK", syn.Seq+1, synack.Seq+1, 10)
	// The first part arrives, and the client's ACK is lost: the retransmission requests the rest.
	part := k.answer(k.servers[0], repeated)
	k.answer(k.client, part)
	k.expect(again(), "ACK", syn.Seq+11, synack.Seq+1+1460, 0)
	// A second copy of the first part changes nothing.
	k.expect(k.answer(k.client, part), "ACK", syn.Seq+11, synack.Seq+1+1460, 0)
	// Then no server answers any more.
	for end := time.Now().Add(10 * time.Second); k.state(0) != bpfWireStateWIRE_FAILED && time.Now().Before(end); {
		k.send()
	}
	if p := k.senderProgress(); p.NoAnswer != 1 || p.Retransmitted < 4 || k.state(0) != bpfWireStateWIRE_FAILED {
		t.Errorf("%+v, state %v", p, k.state(0))
	}
}

// TestServerModes sends server ports packets in the form of each kind of balancer.
func TestServerModes(t *testing.T) {
	own := netip.MustParseAddr("198.18.2.1")
	for _, test := range []struct {
		name  string
		reply Reply
		wrap  func(k *talk, syn []byte) []byte
		// The source of the answer, and its destination.
		source string
		to     net.HardwareAddr
	}{
		{"l2dsr", ReplyDirect, func(k *talk, syn []byte) []byte { return syn }, "198.18.0.100", clientMAC},
		{"ipip", ReplyDirect, func(k *talk, syn []byte) []byte { return tunnel(k.T, syn, own, false) }, "198.18.0.100",
			clientMAC},
		{"gue", ReplyDirect, func(k *talk, syn []byte) []byte { return tunnel(k.T, syn, own, true) }, "198.18.0.100",
			clientMAC},
		{"dscp", ReplyDirect, func(k *talk, syn []byte) []byte {
			return k.change(syn, func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.TCP) {
				ip.DstIP, ip.TOS = own.AsSlice(), 10<<2
			})
		}, "198.18.0.100", clientMAC},
		{"nat", ReplyToSender, func(k *talk, syn []byte) []byte {
			return k.change(syn, func(_ *layers.Ethernet, ip *layers.IPv4, tcp *layers.TCP) {
				ip.DstIP, tcp.DstPort = own.AsSlice(), 8080
			})
		}, "198.18.2.1", balancerMAC},
		{"a proxy", ReplyToSender, func(k *talk, syn []byte) []byte {
			return k.change(syn, func(_ *layers.Ethernet, ip *layers.IPv4, tcp *layers.TCP) {
				ip.SrcIP, ip.DstIP, tcp.DstPort = net.IP{198, 18, 0, 1}, own.AsSlice(), 8080
			})
		}, "198.18.2.1", balancerMAC},
		{"a stranger, directly", ReplyDirect, func(k *talk, syn []byte) []byte {
			return k.change(syn, func(_ *layers.Ethernet, ip *layers.IPv4, tcp *layers.TCP) {
				ip.SrcIP = net.IP{198, 18, 0, 1}
			})
		}, "198.18.0.100", balancerMAC},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := newTalk(t, Load{Kind: Setup}, func(s *Spec) {
				s.Reply, s.ServerPort, s.DSCP = test.reply, 8080, map[uint8]netip.Addr{10: vip.Addr()}
			})
			frame := k.change(k.open(), func(e *layers.Ethernet, _ *layers.IPv4, _ *layers.TCP) {
				e.SrcMAC, e.DstMAC = balancerMAC, serverMACs[0]
			})
			s := k.read(k.answer(k.servers[0], test.wrap(k, frame)))
			if s.flags() != "SYN ACK" || s.ip.SrcIP.String() != test.source {
				t.Errorf("%v, want a SYN-ACK of %s", s, test.source)
			}
			s.from(k, serverMACs[0], test.to)
		})
	}
}

// tunnel encapsulates a packet.
func tunnel(t *testing.T, frame []byte, to netip.Addr, gue bool) []byte {
	t.Helper()
	inner := frame[ethernetLength:]
	outer := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolIPv4, SrcIP: net.IP{198, 18, 0, 1},
		DstIP: to.AsSlice()}
	ethernet := &layers.Ethernet{SrcMAC: balancerMAC, DstMAC: serverMACs[0], EthernetType: layers.EthernetTypeIPv4}
	if !gue {
		return testpacket.Build(t, ethernet, outer, gopacket.Payload(inner))
	}
	outer.Protocol = layers.IPProtocolUDP
	return testpacket.Build(t, ethernet, outer, &layers.UDP{SrcPort: 50000, DstPort: 6080}, gopacket.Payload(inner))
}

// TestDNS decodes a query and its answer with another library.
func TestDNS(t *testing.T) {
	k := newTalk(t, Load{Kind: DNS, Question: "www.jeoul.example"}, nil)
	read := func(frame []byte) *dns.Msg {
		t.Helper()
		packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		verify(t, packet)
		m := new(dns.Msg)
		if err := m.Unpack(packet.TransportLayer().LayerPayload()); err != nil {
			t.Fatal(err)
		}
		return m
	}
	frame := k.open()
	query := read(frame)
	if len(query.Question) != 1 || query.Question[0].Name != "www.jeoul.example." ||
		query.Question[0].Qtype != dns.TypeA || query.Id == 0 {
		t.Errorf("%v", query)
	}
	answered := k.answer(k.servers[1], frame)
	answer := read(answered)
	if !answer.Response || answer.Id != query.Id || answer.Rcode != 0 || len(answer.Answer) != 1 ||
		answer.Answer[0].(*dns.A).A.String() != "198.18.0.100" {
		t.Errorf("%v", answer)
	}
	// An answer to another query, and one to another question.
	for _, at := range []int{0, 14} {
		other := bytes.Clone(answered)
		other[ethernetLength+ipv4Length+udpLength+at] ^= 1
		copy(other[ethernetLength+ipv4Length+6:], []byte{0, 0}) // no checksum, which UDP may
		k.silence(k.client, other)
	}
	k.silence(k.client, answered)
	k.silence(k.client, answered)
	client, server := k.total()
	k.counted(client, map[bpfWireCount]uint64{bpfWireCountWIRE_COUNT_COMPLETED: 1, bpfWireCountWIRE_COUNT_LATE: 2,
		bpfWireCountWIRE_COUNT_DUPLICATE: 1})
	k.counted(server, map[bpfWireCount]uint64{bpfWireCountWIRE_COUNT_ESTABLISHED: 1})
	// A server's failure does not count as an answer.
	failure := read(k.answer(k.servers[0], k.open()))
	failure.SetRcode(failure, dns.RcodeServerFailure)
	k.silence(k.client, datagram(t, failure, k.spec.SourcePorts[0]))
	client, _ = k.total()
	k.counted(client, map[bpfWireCount]uint64{bpfWireCountWIRE_COUNT_COMPLETED: 1,
		bpfWireCountWIRE_COUNT_FAILED_RESET: 1})
}

// datagram returns a DNS message from the VIP to the client's second address.
func datagram(t *testing.T, m *dns.Msg, port uint16) []byte {
	t.Helper()
	payload, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return testpacket.Build(t, &layers.Ethernet{SrcMAC: balancerMAC, DstMAC: clientMAC,
		EthernetType: layers.EthernetTypeIPv4},
		&layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: vip.Addr().AsSlice(),
			DstIP: net.IP{198, 19, 1, 2}},
		&layers.UDP{SrcPort: 80, DstPort: layers.UDPPort(port)}, gopacket.Payload(payload))
}

// TestARP: ports answer for the clients' addresses, and leave others to the kernel.
func TestARP(t *testing.T) {
	k := newTalk(t, Load{Kind: Setup}, nil)
	ask := func(address net.IP) []byte {
		return testpacket.Build(t, &layers.Ethernet{SrcMAC: balancerMAC, DstMAC: layers.EthernetBroadcast,
			EthernetType: layers.EthernetTypeARP},
			&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6,
				ProtAddressSize: 4,
				Operation:       layers.ARPRequest, SourceHwAddress: balancerMAC,
				SourceProtAddress: net.IP{198, 18, 0, 1},
				DstHwAddress:      make([]byte, 6), DstProtAddress: address.To4()})
	}
	packet := gopacket.NewPacket(k.answer(k.client, ask(net.IP{198, 19, 1, 2})), layers.LayerTypeEthernet,
		gopacket.Default)
	arp, ethernet := packet.Layer(layers.LayerTypeARP).(*layers.ARP), packet.LinkLayer().(*layers.Ethernet)
	if arp.Operation != layers.ARPReply || !bytes.Equal(arp.SourceHwAddress, clientMAC) ||
		!net.IP(arp.SourceProtAddress).Equal(net.IP{198, 19, 1, 2}) ||
		!bytes.Equal(arp.DstHwAddress, balancerMAC) || !net.IP(arp.DstProtAddress).Equal(net.IP{198, 18, 0, 1}) ||
		!bytes.Equal(ethernet.DstMAC, balancerMAC) || !bytes.Equal(ethernet.SrcMAC, clientMAC) {
		t.Errorf("%v", packet)
	}
	if verdict, _ := k.give(k.client, ask(net.IP{198, 19, 1, 3})); verdict != xdpPass {
		t.Errorf("verdict %d for another's address", verdict)
	}
}
