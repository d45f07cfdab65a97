// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testpacket"
)

// model is the program's specification as a second, independent implementation: it has the complete frame and computes
// every checksum anew.
type model struct {
	modes map[lb.Mode]bool
	marks []Mark
}

// header4or6 is a parsed IP header.
type header4or6 struct {
	ipv6            bool
	to              netip.Addr
	header, length  int
	protocol        byte
	ds              byte
	fragment, later bool
}

// decide returns the expected end of a frame that arrived for this host.
func (m model) decide(frame []byte) end {
	as := func(mode lb.Mode, outcome string) end { return end{mode, outcome, frame} }
	switch {
	case string(frame[:6]) != string(hostMAC):
		return as("", "passed_other_host")
	case binary.BigEndian.Uint16(frame[12:]) != 0x0800 && binary.BigEndian.Uint16(frame[12:]) != 0x86dd:
		return as("", "passed_not_ip")
	}
	packet := frame[14:]
	h, ok := read(packet, binary.BigEndian.Uint16(frame[12:]) == 0x86dd)
	if !ok || !h.agrees(len(packet)) {
		return as("", "passed_malformed")
	}
	if h.ipv6 {
		if outcome := h.walk(packet); outcome != "" {
			return as("", outcome)
		}
	}
	mode, outcome := m.tunnel(h, packet), "passed_plain"
	if mode != "" {
		var inner []byte
		outcome, inner = m.unwrap(mode, h, packet)
		if outcome == "accepted" {
			return end{mode, outcome, rebuilt(frame, inner)}
		}
	}
	if mode != lb.IPIP && outcome[:6] == "passed" {
		if restored, out := m.restore(h, packet); restored != "passed_plain" {
			return end{lb.DSCP, restored, append(append([]byte(nil), frame[:14]...), out...)}
		}
	}
	return as(mode, outcome)
}

// rebuilt returns the frame with another packet in it.
func rebuilt(old, packet []byte) []byte {
	kind := []byte{0x08, 0x00}
	if packet[0]>>4 == 6 {
		kind = []byte{0x86, 0xdd}
	}
	return append(append(append([]byte(nil), old[:12]...), kind...), packet...)
}

func read(p []byte, ipv6 bool) (h header4or6, ok bool) {
	h.ipv6 = ipv6
	if ipv6 {
		if len(p) < 40 || p[0]>>4 != 6 {
			return h, false
		}
		h.to, h.header = netip.AddrFrom16([16]byte(p[24:40])), 40
		h.length, h.protocol = 40+int(binary.BigEndian.Uint16(p[4:])), p[6]
		h.ds = p[0]<<4 | p[1]>>4
		return h, true
	}
	if len(p) < 20 || p[0]>>4 != 4 {
		return h, false
	}
	h.to, h.header = netip.AddrFrom4([4]byte(p[16:20])), int(p[0]&15)*4
	h.length, h.protocol, h.ds = int(binary.BigEndian.Uint16(p[2:])), p[9], p[1]
	field := binary.BigEndian.Uint16(p[6:])
	h.fragment, h.later = field&0x3fff != 0, field&0x1fff != 0
	return h, true
}

func (h header4or6) agrees(room int) bool {
	least := 20
	if h.ipv6 {
		least = 40
	}
	return h.header >= least && h.length >= h.header && h.length <= room
}

// walk walks the extension headers. If it cannot, it returns an outcome.
func (h *header4or6) walk(p []byte) string {
	for walked := 0; ; walked++ {
		switch h.protocol {
		case 0, 43, 44, 60:
		default:
			return ""
		}
		if walked == 4 {
			return "passed_extension_headers"
		}
		if h.header+8 > len(p) {
			return "passed_malformed"
		}
		e := p[h.header:]
		size := (int(e[1]) + 1) * 8
		switch {
		case h.protocol == 43 && e[3] != 0:
			return "passed_extension_headers"
		case h.protocol == 44:
			size = 8
			field := binary.BigEndian.Uint16(e[2:])
			h.fragment, h.later = field&0xfff9 != 0, field&0xfff8 != 0
		}
		h.header += size
		h.protocol = e[0]
		if h.header > h.length {
			return "passed_malformed"
		}
		if h.later {
			return ""
		}
	}
}

func (m model) tunnel(h header4or6, p []byte) lb.Mode {
	switch {
	case h.protocol == 4 || h.protocol == 41:
		if m.modes[lb.IPIP] {
			return lb.IPIP
		}
	case h.protocol == 17 && !h.later && m.modes[lb.GUE] && h.length >= h.header+8:
		if binary.BigEndian.Uint16(p[h.header+2:]) == 6080 {
			return lb.GUE
		}
	}
	return ""
}

// unwrap returns the inner packet, and the rest of the frame after it.
func (m model) unwrap(mode lb.Mode, h header4or6, p []byte) (string, []byte) {
	if testRoles[h.to]&tcAgentRoleAGENT_ROLE_OWN == 0 {
		return "passed_not_local", nil
	}
	if h.fragment {
		return "passed_fragment", nil
	}
	inner, room, ipv6 := p[h.header:], h.length-h.header, h.protocol == 41
	if mode == lb.GUE {
		length := int(binary.BigEndian.Uint16(inner[4:]))
		if length <= 8 || length > room {
			return "passed_malformed", nil
		}
		inner, room = inner[8:], length-8
		if inner[0]>>6 != 1 {
			return "passed_other_gue", nil
		}
		ipv6 = inner[0]>>4 == 6
	}
	in, ok := read(inner, ipv6)
	switch {
	case !ok:
		return "passed_malformed", nil
	case testRoles[in.to]&tcAgentRoleAGENT_ROLE_VIP == 0:
		return "passed_not_vip", nil
	case !in.agrees(room):
		return "dropped_malformed", nil
	}
	return congested(h, in, inner)
}

// congested copies the outer header's ECN field to the inner packet.
func congested(outer, in header4or6, inner []byte) (string, []byte) {
	ecn := in.ds & 3
	switch {
	case outer.ds&3 == 3 && ecn == 0:
		return "dropped_congested", nil
	case outer.ds&3 == 3:
		ecn = 3
	case outer.ds&3 == 1 && ecn == 2:
		ecn = 1
	}
	return "accepted", withDS(inner, in, in.ds&^3|ecn)
}

// withDS returns the packet with another DS field. A wrong header checksum stays wrong by the same difference.
func withDS(p []byte, h header4or6, ds byte) []byte {
	out := append([]byte(nil), p...)
	if h.ipv6 {
		out[0], out[1] = out[0]&0xf0|ds>>4, out[1]&0x0f|ds<<4
		return out
	}
	out[1] = ds
	fix(out[10:12], p[:2], out[:2])
	return out
}

// fix updates a checksum for changed bytes (RFC 1624, equation 3).
func fix(sum, old, new []byte) {
	total := uint32(^binary.BigEndian.Uint16(sum))
	for i := 0; i < len(old); i += 2 {
		total += uint32(^binary.BigEndian.Uint16(old[i:])) + uint32(binary.BigEndian.Uint16(new[i:]))
	}
	for total > 0xffff {
		total = total&0xffff + total>>16
	}
	binary.BigEndian.PutUint16(sum, ^uint16(total))
}

// restore restores the VIP that a code point stands for.
func (m model) restore(h header4or6, p []byte) (string, []byte) {
	var vip netip.Addr
	for _, mark := range m.marks {
		if m.modes[lb.DSCP] && mark.Point == h.ds>>2 && mark.VIP.Is6() == h.ipv6 {
			vip = mark.VIP
		}
	}
	if !vip.IsValid() || testRoles[h.to] != tcAgentRoleAGENT_ROLE_OWN {
		return "passed_plain", nil
	}
	sum, least := 0, 0
	switch h.protocol {
	case 6:
		sum, least = 16, 20
	case 17:
		sum, least = 6, 8
	case 1, 58:
		if h.fragment || h.ipv6 != (h.protocol == 58) || len(p) <= h.header {
			return "passed_plain", nil
		}
		kind := p[h.header]
		if h.ipv6 && (kind < 1 || kind > 4) || !h.ipv6 && kind != 3 && kind != 11 && kind != 12 {
			return "passed_plain", nil
		}
		least = 8
		if h.ipv6 {
			sum = 2
		}
	default:
		return "passed_plain", nil
	}
	if !h.later && h.length < h.header+least {
		return "dropped_malformed", nil
	}
	return "accepted", restored(h, p, vip, sum)
}

func restored(h header4or6, p []byte, vip netip.Addr, sum int) []byte {
	out := withDS(p, h, h.ds&3)
	at := 16
	if h.ipv6 {
		at = 24
	}
	copy(out[at:], vip.AsSlice())
	if !h.ipv6 {
		fix(out[10:12], p[16:20], out[16:20])
	}
	if sum == 0 || h.later {
		return out
	}
	field := out[h.header+sum:][:2]
	if h.protocol == 17 && field[0]|field[1] == 0 {
		return out
	}
	fix(field, h.to.AsSlice(), vip.AsSlice())
	if h.protocol == 17 && field[0]|field[1] == 0 {
		field[0], field[1] = 0xff, 0xff
	}
	return out
}

// randomFrame returns a frame that the program changes. In a third of the cases one of its fields is wrong.
func randomFrame(tb testing.TB, r *rand.Rand) []byte {
	vip := []netip.Addr{testVIP4, testVIP6, testVIP4, testVIP6, testOwn4, testClient6}[r.IntN(6)]
	build := []func(testing.TB, netip.Addr, uint8, int) []byte{tcp, udp}[r.IntN(2)]
	var packet []byte
	switch ds := uint8(r.IntN(256)); r.IntN(4) {
	case 0:
		packet = ipip(tb, r.IntN(2) == 0, ds, build(tb, vip, uint8(r.IntN(256)), r.IntN(60)))
	case 1:
		packet = gue(tb, r.IntN(2) == 0, ds, build(tb, vip, uint8(r.IntN(256)), r.IntN(60)))
	case 2:
		mark := testMarks[r.IntN(len(testMarks))]
		_, host := own(mark.VIP.Is6())
		packet = build(tb, host, mark.Point<<2|ds&3, r.IntN(60))
	case 3:
		packet = build(tb, vip, ds, r.IntN(60))
	}
	if packet[0]>>4 == 6 && r.IntN(4) == 0 {
		for range 1 + r.IntN(5) {
			packet = extended(packet, []byte{0, 43, 60, 44}[r.IntN(4)])
		}
	}
	if r.IntN(8) == 0 && packet[0]>>4 == 4 {
		packet = ipv4Fragment(packet, []uint16{0x2000, 0x2005, 0x0007}[r.IntN(3)])
	} else if r.IntN(8) == 0 && packet[0]>>4 == 6 {
		packet = ipv6Fragment(packet, []uint16{1, 0x29, 0x28}[r.IntN(3)])
	}
	f := frame(packet)
	if r.IntN(3) == 0 {
		f = mutate(r, f)
	}
	return f
}

// mutate flips bits of the headers, truncates the frame, or extends it.
func mutate(r *rand.Rand, f []byte) []byte {
	for range 1 + r.IntN(3) {
		switch r.IntN(5) {
		case 0:
			f = f[:14+r.IntN(len(f)-13)]
		case 1:
			f = append(f, make([]byte, r.IntN(64))...)
		default:
			f[r.IntN(min(len(f), 130))] ^= 1 << r.IntN(8)
		}
	}
	return f
}

// taken reports whether the program and the model can be compared on the frame: the kernel removes a VLAN tag before a
// test's packet reaches the program.
func taken(f []byte) bool {
	return testpacket.FitsSocketBuffer(f) && binary.BigEndian.Uint16(f[12:]) != 0x8100 &&
		binary.BigEndian.Uint16(f[12:]) != 0x88a8
}

func everyMode(tb testing.TB) (*rig, model) {
	r := newRig(tb, []lb.Mode{lb.IPIP, lb.GUE, lb.DSCP}, testMarks)
	return r, model{map[lb.Mode]bool{lb.IPIP: true, lb.GUE: true, lb.DSCP: true}, testMarks}
}

// TestRandomPackets compares the program with the model on many packets. JEOUL_FUZZ_PACKETS sets their number.
// JEOUL_FUZZ_SEED repeats a run.
func TestRandomPackets(t *testing.T) {
	packets, seed := number(t, "JEOUL_FUZZ_PACKETS", 3000), number(t, "JEOUL_FUZZ_SEED", 1)
	r, m := everyMode(t)
	random := rand.New(rand.NewPCG(seed, 0))
	ends := map[string]int{}
	for i := uint64(0); i < packets && !t.Failed(); i++ {
		if f := randomFrame(t, random); taken(f) {
			want := m.decide(f)
			r.check(t, f, want)
			ends[string(want.mode)+" "+want.outcome]++
		}
	}
	t.Logf("seed %d, %d packets: %v", seed, packets, ends)
	for _, must := range []string{"ipip accepted", "gue accepted", "dscp accepted", " passed_plain",
		" passed_malformed",
		"ipip dropped_malformed", "gue dropped_congested", "ipip passed_fragment", "gue passed_other_gue",
		"gue passed_not_vip", " passed_extension_headers", " passed_not_ip", " passed_other_host"} {
		if ends[must] == 0 {
			t.Errorf("no packet ended as %s: the generator does not reach it", must)
		}
	}
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// FuzzPacket searches for a packet on which program and model differ.
func FuzzPacket(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 64 {
		f.Add(randomFrame(f, random))
	}
	r, m := everyMode(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		if taken(frame) {
			r.check(t, frame, m.decide(frame))
		}
	})
}
