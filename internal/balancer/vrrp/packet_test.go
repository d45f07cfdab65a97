// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

var (
	own4, peer4 = netip.MustParseAddr("198.18.0.10"), netip.MustParseAddr("198.18.0.11")
	own6, peer6 = netip.MustParseAddr("fe80::a"), netip.MustParseAddr("fe80::b")
	vip4        = netip.MustParseAddr("198.18.0.100")
	vip6        = netip.MustParseAddr("2001:2::100")
)

func TestPacketOfRFC(t *testing.T) {
	a := Advert{VRID: 51, Priority: 100, Interval: 100 * time.Millisecond, Addresses: []netip.Addr{vip4}}
	// By hand: 3133 6401 000a c612 0064 and the pseudo-header c612 000a e000 0012 0070 000c.
	want, _ := hex.DecodeString("31336401000af72cc6120064")
	total := uint64(0)
	for _, word := range []uint64{0x3133, 0x6401, 0x000a, 0xc612, 0x0064, 0xc612, 0x000a, 0xe000, 0x0012,
		0x0070, 0x000c} {
		total += word
	}
	binary.BigEndian.PutUint16(want[6:], ^uint16(total>>16+total&0xffff))
	if got := a.Marshal(own4, group4); !bytes.Equal(got, want) {
		t.Errorf("the packet is %x, and should be %x", got, want)
	}
}

func TestPacketsComeBack(t *testing.T) {
	for _, test := range []struct {
		src, dst netip.Addr
		a        Advert
	}{
		{own4, group4,
			Advert{51, 100, 100 * time.Millisecond, []netip.Addr{vip4, netip.MustParseAddr("198.18.0.101")}}},
		{own4, group4, Advert{255, 0, 10 * time.Millisecond, []netip.Addr{vip4}}},
		{own6, group6, Advert{1, 254, 40950 * time.Millisecond, []netip.Addr{vip6}}},
	} {
		got, err := Parse(test.a.Marshal(test.src, test.dst), test.src, test.dst, 255)
		if err != nil || !reflect.DeepEqual(got, test.a) {
			t.Errorf("%+v came back as %+v, %v", test.a, got, err)
		}
	}
}

func TestPacketsThatAreNotTaken(t *testing.T) {
	good := Advert{51, 100, time.Second, []netip.Addr{vip4}}.Marshal(own4, group4)
	change := func(at int, to byte) []byte {
		p := bytes.Clone(good)
		p[at] = to
		return p
	}
	for _, test := range []struct {
		packet []byte
		hops   int
		want   error
	}{
		{good, 254, ErrHops}, {nil, 255, ErrShort}, {good[:7], 255, ErrShort}, {good[:11], 255, ErrShort},
		{change(0, 0x21), 255, ErrVersion}, {change(0, 0x32), 255, ErrType}, {change(3, 0), 255, ErrNoAddress},
		{change(3, 2), 255, ErrShort}, {change(2, 101), 255, ErrChecksum},
		{Advert{VRID: 51, Priority: 1, Interval: 1, Addresses: []netip.Addr{vip4}}.Marshal(own4, group6), 255,
			ErrChecksum},
	} {
		if _, err := Parse(test.packet, own4, group4, test.hops); !errors.Is(err, test.want) {
			t.Errorf("%x with %d hops: %v, and should be %v", test.packet, test.hops, err, test.want)
		}
	}
	zero := bytes.Clone(good)
	copy(zero[4:8], []byte{0, 0, 0, 0})
	binary.BigEndian.PutUint16(zero[6:], ^checksum(zero, pseudoHeaderSum(own4, group4, len(zero))))
	if _, err := Parse(zero, own4, group4, 255); !errors.Is(err, ErrInterval) {
		t.Errorf("an interval of 0: %v", err)
	}
	// As one that reads RFC 5798 otherwise sends.
	bare := bytes.Clone(good)
	copy(bare[6:8], []byte{0, 0})
	binary.BigEndian.PutUint16(bare[6:], ^checksum(bare, 0))
	if _, err := Parse(bare, own4, group4, 255); err != nil {
		t.Errorf("a checksum without pseudo-header: %v", err)
	}
}

// FuzzParse: an accepted packet is written back as it came, but for reserved bits and the bytes behind the addresses.
func FuzzParse(f *testing.F) {
	f.Add(Advert{51, 100, time.Second, []netip.Addr{vip4}}.Marshal(own4, group4), false)
	f.Add(Advert{51, 0, time.Second, []netip.Addr{vip6, vip6}}.Marshal(own6, group6), true)
	f.Fuzz(func(t *testing.T, packet []byte, six bool) {
		src, dst := own4, group4
		if six {
			src, dst = own6, group6
		}
		a, err := Parse(packet, src, dst, 255)
		if err != nil {
			return
		}
		again, err := Parse(a.Marshal(src, dst), src, dst, 255)
		if err != nil || !reflect.DeepEqual(a, again) {
			t.Errorf("%x is %+v, and that %+v, %v", packet, a, again, err)
		}
	})
}

func FuzzSplit4(f *testing.F) {
	f.Add([]byte{0x45, 0, 0, 28})
	f.Fuzz(func(t *testing.T, packet []byte) {
		if r := parseIPv4(packet); len(r.packet) > len(packet) {
			t.Errorf("%d bytes of %d", len(r.packet), len(packet))
		}
	})
}
