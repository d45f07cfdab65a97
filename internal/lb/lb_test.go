// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"encoding"
	"errors"
	"net/netip"
	"testing"
)

// TestWords reads every word that the domain has, and one that it has not.
func TestWords(t *testing.T) {
	for _, test := range []struct {
		into    encoding.TextUnmarshaler
		words   []string
		unknown error
	}{
		{new(Protocol), []string{"tcp", "udp"}, ErrUnknownProtocol},
		{new(Mode), []string{"l2dsr", "ipip", "gue", "dscp", "nat", "fullnat"}, ErrUnknownMode},
		{new(Scheduler), []string{"maglev", "rr"}, ErrUnknownScheduler},
		{new(Hook), []string{"auto", "xdp", "tc"}, ErrUnknownHook},
	} {
		for _, word := range test.words {
			if err := test.into.UnmarshalText([]byte(word)); err != nil {
				t.Errorf("%q: %v", word, err)
			}
		}
		for _, word := range []string{"", "TCP", "sctp"} {
			if err := test.into.UnmarshalText([]byte(word)); !errors.Is(err, test.unknown) {
				t.Errorf("%q: error %v, want %v", word, err, test.unknown)
			}
		}
	}
}

// TestServiceKey checks what tells services apart, and how they are named.
func TestServiceKey(t *testing.T) {
	s := Service{Name: "web", VIP: netip.MustParseAddr("2001:db8::1"), Port: 80, Protocol: TCP}
	other := s
	other.Name, other.Scheduler = "shop", RoundRobin
	if s.Key() != other.Key() {
		t.Error("name or scheduler tell services apart, and only VIP, port and protocol should")
	}
	if got, want := s.Key().String(), "tcp [2001:db8::1]:80"; got != want {
		t.Errorf("the key reads %q, want %q", got, want)
	}
	other.Protocol = UDP
	b := Backend{Address: netip.MustParseAddr("2001:db8::2"), Port: 80}
	if s.BackendKey(b) == other.BackendKey(b) {
		t.Error("a backend of two services has one key")
	}
}

// TestModes checks what each mode does to a packet, against the table of the
// architecture.
func TestModes(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	tests := map[Mode]struct {
		tunnels, translates bool
		over4, over6        int
	}{
		L2DSR:   {false, false, 0, 0},
		IPIP:    {true, false, 20, 40},
		GUE:     {true, false, 28, 48},
		DSCP:    {false, false, 0, 0},
		NAT:     {false, true, 0, 0},
		FullNAT: {false, true, 0, 0},
	}
	for _, mode := range Modes {
		want, known := tests[mode]
		if !known {
			t.Errorf("%s is not in this test", mode)
		}
		if mode.Tunnels() != want.tunnels || mode.Translates() != want.translates || mode.KeepsPort() == want.translates ||
			mode.Overhead(four) != want.over4 || mode.Overhead(six) != want.over6 {
			t.Errorf("%s: tunnels %t, translates %t, keeps the port %t, overhead %d and %d", mode,
				mode.Tunnels(), mode.Translates(), mode.KeepsPort(), mode.Overhead(four), mode.Overhead(six))
		}
	}
}
