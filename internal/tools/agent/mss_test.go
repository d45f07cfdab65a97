// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/jeoul/jeoul/internal/test/testpacket"
)

// option returns a TCP option. An MSS has its value in two bytes.
func option(kind layers.TCPOptionKind, data ...byte) layers.TCPOption {
	length := uint8(2 + len(data))
	if kind <= layers.TCPOptionKindNop {
		length = 1
	}
	return layers.TCPOption{OptionType: kind, OptionLength: length, OptionData: data}
}

func mss(value uint16) layers.TCPOption {
	return option(layers.TCPOptionKindMSS, byte(value>>8), byte(value))
}

var (
	nop    = option(layers.TCPOptionKindNop)
	sackOK = option(layers.TCPOptionKindSACKPermitted)
	stamps = option(layers.TCPOptionKindTimestamps, pattern(8)...)
)

// answering returns a server's segment with a valid checksum.
func answering(tb testing.TB, from netip.Addr, syn bool, options ...layers.TCPOption) []byte {
	tb.Helper()
	header, forSum := network(from, clientOf(from), layers.IPProtocolTCP, 0)
	segment := &layers.TCP{SrcPort: 80, DstPort: 40000, Seq: 7, Ack: 8, SYN: syn, ACK: true, Window: 512,
		Options: options}
	if err := segment.SetNetworkLayerForChecksum(forSum); err != nil {
		tb.Fatal(err)
	}
	return frame(testpacket.Serialize(tb, header, segment, gopacket.Payload(pattern(3))))
}

func TestClamp(t *testing.T) {
	r := newRig(t, nil, nil)
	clamped := end{mode: "", outcome: "clamped"}
	check := func(given, want []byte, how end) {
		t.Helper()
		how.frame = want
		r.checkProgram(t, r.egress, given, how, nil)
	}
	for _, from := range []netip.Addr{testVIP4, testVIP6} {
		for _, before := range [][]layers.TCPOption{nil, {nop}, {nop, nop, sackOK}, {stamps, nop},
			{nop, nop, nop, nop, nop, nop, nop}} {
			for _, after := range [][]layers.TCPOption{nil, {sackOK, stamps}} {
				build := func(value uint16) []byte {
					return answering(t, from, true,
						append(append(append([]layers.TCPOption(nil), before...), mss(value)), after...)...)
				}
				for _, value := range []uint16{testMSS + 1, 1460, 0x8000, 0xffff} {
					check(build(value), build(testMSS), clamped)
				}
				for _, value := range []uint16{0, 536, testMSS} {
					check(build(value), build(value), end{})
				}
			}
		}
		// An MSS outside of a SYN, not from a VIP, after the eighth option or the end of options, or no MSS at all:
		// unchanged.
		eight := []layers.TCPOption{nop, nop, nop, nop, nop, nop, nop, nop, mss(1460)}
		for _, other := range [][]byte{
			answering(t, from, false, mss(1460)),
			answering(t, clientOf(from), true, mss(1460)),
			answering(t, from, true, eight...),
			answering(t, from, true, option(layers.TCPOptionKindEndList), nop, nop, nop, mss(1460)),
			answering(t, from, true, sackOK),
			answering(t, from, true),
		} {
			check(other, other, end{})
		}
	}
}

// TestClampBadOptions: malformed options are left for the client to handle.
func TestClampBadOptions(t *testing.T) {
	r := newRig(t, nil, nil)
	good := answering(t, testVIP4, true, mss(1460), sackOK, nop, nop)
	const options = 14 + 20 + 20
	for _, field := range []struct {
		at    int
		value byte
	}{{options + 1, 0}, {options + 1, 1}, {options + 1, 3}, {options + 1, 5}, {options + 1, 255}, {options - 8, 0x40},
		{options - 8, 0xf0}} {
		bad := append([]byte(nil), good...)
		bad[field.at] = field.value
		r.checkProgram(t, r.egress, bad, end{frame: bad}, nil)
	}
	for cut := 34; cut < options+7; cut++ {
		r.checkProgram(t, r.egress, good[:cut], end{frame: good[:cut]}, nil)
	}
}
