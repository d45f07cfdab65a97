// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// generator makes packets that are near enough to good ones to get past the
// first check, and in a part of the cases something in them is false. It looks
// into the model for flows to continue.
type generator struct {
	*rand.Rand
	tb    testing.TB
	model *model
	// ids begin here: fragments do not find entries of an earlier configuration.
	ids uint32
	// sent are the last frames that the balancer made, for errors to tell of.
	sent [][]byte
	// first are the services before any change: those that have left, too.
	first []lb.RoutedService
	// under are conversations that go on, and busy the services of most of them.
	under []*clientFlow
	busy  []lb.ServiceKey
	// struck is the service of the last strike.
	struck lb.ServiceKey
}

// next makes a frame.
func (g *generator) next() []byte {
	var frame []byte
	switch n := g.IntN(100); {
	case n < 45:
		frame = g.toService().build(g.tb)
	case n < 55:
		frame = g.reply().build(g.tb)
	case n < 68:
		frame = g.replyToPool().build(g.tb)
	case n < 84:
		frame = g.icmp()
	case n < 86:
		frame = g.otherDestination().build(g.tb)
	default:
		frame = g.fragment()
	}
	return g.corrupt(g.decorate(frame))
}

// client is one of few: flows are to be met again.
func (g *generator) client(six bool) netip.Addr {
	number := byte(g.IntN(4))
	if g.IntN(20) == 0 {
		number = 200
	}
	subnet := 0
	if g.IntN(3) == 0 {
		subnet = g.IntN(len(clientSubnets))
	}
	return clientOf(subnet, six, number)
}

func (g *generator) anyService() *lb.RoutedService {
	return &g.model.state.Services[g.IntN(len(g.model.state.Services))]
}

// size of a payload: mostly small, sometimes around a path's MTU.
func (g *generator) size() int {
	switch g.IntN(8) {
	case 0:
		return 500 + g.IntN(1100)
	case 1:
		return []int{536, 632, 660, 1200, 1280, 1332, 1340, 1372, 1400, 1432, 1440, 1460}[g.IntN(12)] + g.IntN(5) - 2
	}
	return g.IntN(90)
}

func (g *generator) flags() string {
	return []string{"S", "S", "S", "S", "A", "A", "PA", "PA", "FA", "R", "SA", "SF", ""}[g.IntN(13)]
}

func (g *generator) tcpOptions() []byte {
	if g.IntN(3) > 0 {
		return nil
	}
	var options []byte
	for range g.IntN(7) {
		options = append(options, [][]byte{{1}, {1}, {2, 4, byte(g.IntN(12)), byte(g.Uint32())}, {3, 3, 7}, {4, 2},
			{8, 10, 1, 2, 3, 4, 5, 6, 7, 8}, {0}, {2, 4, 5, 0xb4}, {byte(g.Uint32()), byte(g.IntN(6))}}[g.IntN(9)]...)
	}
	return options[:min(len(options), 40)]
}

// toService is a client's packet.
func (g *generator) toService() packetSpec {
	if g.IntN(3) > 0 {
		return g.nextPacket()
	}
	s := g.anyService()
	p := packetSpec{from: g.client(s.VIP.Is6()), at: s.VIP, dport: s.Port, udp: s.Protocol == lb.UDP,
		sport: uint16(1 + g.IntN(24)),
		flags: g.flags(), payload: g.size(), tcpOptions: g.tcpOptions(), tos: byte(g.Uint32()), df: g.IntN(2) == 0,
		id: uint16(g.ids)}
	switch g.IntN(30) {
	case 0:
		p.dport = uint16(79 + g.IntN(3))
	case 1:
		p.udp = !p.udp
	case 2:
		p.from = []netip.Addr{netip.MustParseAddr("224.0.0.9"), netip.IPv4Unspecified(),
			netip.MustParseAddr("127.0.0.1"), p.from}[g.IntN(4)]
		if p.at.Is6() {
			p.from = netip.MustParseAddr("ff02::9")
		}
	}
	return p
}

// reply is a packet of a backend of NAT, or nearly. It may have left.
func (g *generator) reply() packetSpec {
	if p, ok := g.answer(); ok {
		return p
	}
	services := g.model.state.Services
	if g.IntN(3) == 0 {
		services = g.first
	}
	s := services[g.IntN(len(services))]
	for s.Mode != lb.NAT && g.IntN(10) > 0 {
		s = services[g.IntN(len(services))]
	}
	b := s.Backends[g.IntN(len(s.Backends))]
	return packetSpec{from: b.Address, at: g.client(b.Address.Is6()), sport: b.Port, dport: uint16(1 + g.IntN(24)),
		udp:   s.Protocol == lb.UDP,
		flags: g.flags(), payload: g.size(), tcpOptions: g.tcpOptions(), tos: byte(g.Uint32()), df: g.IntN(2) == 0,
		id: uint16(g.ids)}
}

// translatedFlow is a flow of full NAT that was met; nil if there is none.
func (g *generator) translatedFlow() *remembered {
	// Go's order of a map is random, but not by our seed.
	var found []*remembered
	note := func(s *lb.RoutedService, client netip.AddrPort) {
		e := g.model.lookUp(g.model.flowOf(s, clientPacket{client: client}))
		if e != nil && g.model.valid(e) && e.pool.IsValid() {
			found = append(found, e)
		}
	}
	for range 20 {
		if len(g.under) == 0 {
			break
		}
		c := g.under[g.IntN(len(g.under))]
		if s := g.model.services[c.service]; s != nil && s.Mode == lb.FullNAT {
			note(s, c.client)
		}
	}
	for range 8 {
		s := g.anyService()
		for range 4 {
			if s.Mode == lb.FullNAT {
				note(s, netip.AddrPortFrom(g.client(s.VIP.Is6()), uint16(1+g.IntN(24))))
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found[g.IntN(len(found))]
}

// replyToPool is a packet of a backend of full NAT, or nearly.
func (g *generator) replyToPool() packetSpec {
	p := packetSpec{flags: g.flags(), payload: g.size(), tcpOptions: g.tcpOptions(), tos: byte(g.Uint32()),
		df: g.IntN(2) == 0, id: uint16(g.ids)}
	t := g.translatedFlow()
	if t == nil || g.IntN(12) == 0 {
		p.from, p.at, p.sport, p.dport = netip.MustParseAddr("198.18.2.1"), pool4, portFullNAT+natPortOffset,
			uint16(19990+g.IntN(4020))
		if g.IntN(2) == 0 {
			p.from, p.at = netip.MustParseAddr("2001:2::2:1"), pool6
		}
		p.udp = g.IntN(2) == 0
		return p
	}
	p.from, p.sport, p.at, p.dport, p.udp = t.backend.Address, t.backend.Port, t.pool.Addr(), t.pool.Port(),
		t.backend.Service.Protocol == lb.UDP
	return p
}

// otherDestination is a packet for another destination.
func (g *generator) otherDestination() packetSpec {
	p := g.toService()
	p.at = p.from.Next()
	if g.IntN(2) == 0 {
		p.to = []byte{2, 0, 0, 0, 0, 9}
	}
	return p
}

// icmp is an error about something, or an echo.
func (g *generator) icmp() []byte {
	about := g.toService().answer().build(g.tb)
	switch g.IntN(5) {
	case 0:
		six := g.IntN(2) == 0
		if six {
			return packetSpec{from: g.client(true), at: vip6}.icmp(g.tb, 128, 0, make([]byte, g.IntN(100))...)
		}
		return packetSpec{from: g.client(false), at: vip4}.icmp(g.tb, 8, 0, make([]byte, g.IntN(100))...)
	case 1, 2:
		if len(g.sent) > 0 {
			about = g.sent[g.IntN(len(g.sent))]
		}
	}
	if len(about) < 54 || about[12] == 0x81 || about[12] == 0x88 {
		about = g.reply().build(g.tb)
	}
	if g.IntN(6) == 0 && about[12] == 0x86 {
		about = g.extended(about)
	}
	six := about[12] == 0x86
	from := transitRouter(six)
	if g.IntN(2) == 0 {
		// The host that the packet was for.
		from = netip.AddrFrom4([4]byte(about[30:34]))
		if six {
			from = netip.AddrFrom16([16]byte(about[38:54]))
		}
	}
	if !six && about[12] != 0x08 {
		return about
	}
	frame := icmpError(g.tb, from, about, []int{28, 48, 60, 128, 512, 1300}[g.IntN(6)])
	at := 34
	if six {
		at = 54
	}
	if g.IntN(3) == 0 {
		frame[at] = byte(g.IntN(14))
	}
	return frame
}

// fragment is a part of a datagram.
func (g *generator) fragment() []byte {
	p := g.toService()
	switch g.IntN(4) {
	case 0:
		p = g.reply()
	case 1:
		p = g.replyToPool()
	}
	p.payload = 200
	frame := p.build(g.tb)
	if g.IntN(10) == 0 && p.at.Is4() {
		frame = packetSpec{from: p.from, at: p.at}.icmp(g.tb, 8, 0, make([]byte, 200)...)
	}
	if g.IntN(8) == 0 && p.at.Is6() {
		frame = g.extended(frame)
	}
	id := g.ids + uint32(g.IntN(4))
	switch g.IntN(8) {
	case 0, 1, 2, 3:
		return fragment(frame, id, 0, 8*(1+g.IntN(10)))
	case 4, 5:
		return fragment(frame, id, 96, 136)
	}
	return fragment(frame, id, 8*g.IntN(15), 1<<16)
}

func (g *generator) extended(frame []byte) []byte {
	var extensions [][2]byte
	for range g.IntN(6) {
		extensions = append(extensions, [2]byte{[]byte{0, 43, 60, 44}[g.IntN(4)], 1})
		if last := &extensions[len(extensions)-1]; last[0] != 44 {
			last[1] += byte(g.IntN(3))
		}
	}
	extended := ipv6WithExtensions(frame, extensions...)
	// A fragment header that comes of a changed bit has an id of this configuration.
	at := 54
	for _, extension := range extensions {
		if extension[0] == protoFragment {
			binary.BigEndian.PutUint32(extended[at+4:], g.ids)
		}
		at += int(extension[1]) * 8
	}
	return extended
}

// decorate gives a frame a tag, extension headers, padding, few hops or no UDP checksum: the flow stays the same.
func (g *generator) decorate(frame []byte) []byte {
	six := frame[12] == 0x86
	if g.IntN(16) == 0 && six && len(frame) > 54 {
		frame = g.extended(frame)
	}
	if g.IntN(16) == 0 && !six && frame[14] == 0x45 && len(frame) > 42 && frame[23] == protoUDP && frame[20]&0x3f == 0 {
		frame[40], frame[41] = 0, 0
	}
	if g.IntN(20) == 0 {
		frame = append(frame, make([]byte, g.IntN(40))...)
	}
	if g.IntN(20) == 0 && len(frame) > 34 {
		frame[hopsOf(six)] = byte(g.IntN(4))
	}
	if g.IntN(8) == 0 {
		frame = tagged(frame, []uint16{0x8100, 0x88a8}[g.IntN(2)])
	}
	return frame
}

// corrupt changes bits of the headers of some frames, cuts or lengthens them.
func (g *generator) corrupt(frame []byte) []byte {
	if g.IntN(4) > 0 {
		return frame
	}
	for range 1 + g.IntN(3) {
		switch g.IntN(8) {
		case 0:
			frame = frame[:14+g.IntN(len(frame)-13)]
		case 1:
			frame = append(frame, make([]byte, g.IntN(64))...)
		case 2:
			at := 16
			if binary.BigEndian.Uint16(frame[12:]) == 0x86dd {
				at = 18
			}
			if len(frame) > at+2 {
				binary.BigEndian.PutUint16(frame[at:], uint16(g.IntN(2*len(frame))))
			}
		case 3:
			frame[g.IntN(len(frame))] = byte(g.Uint32())
		case 4:
			frame[g.IntN(len(frame))] = 0xff
		default:
			frame[g.IntN(min(len(frame), 100))] ^= 1 << g.IntN(8)
		}
	}
	return frame
}

// keep remembers a frame that was sent, for errors to tell of.
func (g *generator) keep(frame []byte) {
	if len(g.sent) < 64 {
		g.sent = append(g.sent, slices.Clone(frame))
		return
	}
	g.sent[g.IntN(len(g.sent))] = slices.Clone(frame)
}
