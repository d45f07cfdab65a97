// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"encoding"
	"errors"
	"math/big"
	"net/netip"
	"slices"
	"testing"
	"time"
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
		{new(Scheduler), []string{"rr", "wrr", "lc", "wlc", "sh", "maglev", "random2", "fo"}, ErrUnknownScheduler},
		{new(Hash), []string{"flow", "source"}, ErrUnknownHash},
		{new(Refusal), []string{"drop", "reset"}, ErrUnknownRefusal},
		{new(OnEmpty), []string{"keep", "withdraw"}, ErrUnknownOnEmpty},
		{new(OnDown), []string{"keep", "reset", "move"}, ErrUnknownOnDown},
		{new(CheckType), []string{"tcp", "tls", "http", "dns", "udp", "icmp", "grpc", "exec", "agent"},
			ErrUnknownCheck},
		{new(Via), []string{"vip", "address"}, ErrUnknownVia},
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

// TestServiceKey checks the key that tells services apart, and its text.
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

// TestModes checks the properties of each mode, against the table of the architecture.
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
	for _, mode := range PacketModes {
		want, known := tests[mode]
		if !known {
			t.Errorf("%s is not in this test", mode)
		}
		if mode.Tunnels() != want.tunnels || mode.Translates() != want.translates ||
			mode.KeepsPort() == want.translates ||
			mode.Overhead(four) != want.over4 || mode.Overhead(six) != want.over6 {
			t.Errorf("%s: tunnels %t, translates %t, keeps the port %t, overhead %d and %d", mode,
				mode.Tunnels(), mode.Translates(), mode.KeepsPort(), mode.Overhead(four), mode.Overhead(six))
		}
	}
	if m := ModeProxy; m.Tunnels() || m.Translates() || m.KeepsPort() || !m.CrossesFamilies() || m.Overhead(six) != 0 ||
		m.DefaultVia() != ViaAddress || !slices.Contains(Modes, m) {
		t.Errorf("%s: a packet of it is no backend's", m)
	}
}

// TestSchedulers checks the properties of each scheduler.
func TestSchedulers(t *testing.T) {
	tests := map[Scheduler]struct{ remembers, weighted, bySource, byLoad bool }{
		RoundRobin:               {true, false, false, false},
		WeightedRoundRobin:       {true, true, false, false},
		LeastConnections:         {true, false, false, true},
		WeightedLeastConnections: {true, true, false, true},
		SourceHash:               {false, true, true, false},
		Maglev:                   {false, true, false, false},
		TwoChoices:               {true, true, false, true},
		Failover:                 {false, false, false, false},
	}
	for _, scheduler := range Schedulers {
		want, known := tests[scheduler]
		if !known {
			t.Errorf("%s is not in this test", scheduler)
		}
		s := Service{Scheduler: scheduler, Protocol: TCP}
		if scheduler.Remembers() != want.remembers || s.Tracked() != want.remembers ||
			scheduler.Weighted() != want.weighted || s.BySource() != want.bySource ||
			scheduler.ByLoad() != want.byLoad {
			t.Errorf("%s: remembers %t, tracked %t, weighted %t, by source %t, by load %t", scheduler,
				scheduler.Remembers(), s.Tracked(), scheduler.Weighted(), s.BySource(), scheduler.ByLoad())
		}
	}
}

// TestTracked: the settings that make a service of a stateless scheduler remember its flows.
func TestTracked(t *testing.T) {
	stateless := Service{Scheduler: Maglev, Protocol: TCP, Backends: []Backend{{Weight: 1}, {Weight: 1}}}
	tests := map[string]struct {
		change func(*Service)
		want   bool
	}{
		"nothing":     {func(*Service) {}, false},
		"persistence": {func(s *Service) { s.Persistence.Timeout = time.Minute }, true},
		"cap":         {func(s *Service) { s.Limits.Connections = 1 }, true},
		"threshold":   {func(s *Service) { s.Backends = []Backend{{Weight: 1}, {Weight: 1, Upper: 1}} }, true},
		"rate":        {func(s *Service) { s.Limits.Rate = 1 }, false},
		"rate of UDP": {func(s *Service) { s.Limits.Rate, s.Protocol = 1, UDP }, true},
		"full NAT":    {func(s *Service) { s.Mode = FullNAT }, true},
		"NAT":         {func(s *Service) { s.Mode = NAT }, false},
		"by source":   {func(s *Service) { s.Hash = HashSource }, false},
		"draining":    {func(s *Service) { s.Backends = []Backend{{Weight: 1, Draining: true}} }, false},
	}
	for name, test := range tests {
		s := stateless
		test.change(&s)
		if s.Tracked() != test.want {
			t.Errorf("%s: tracked is %t", name, s.Tracked())
		}
	}
}

// TestDefaultTableSize: primes, with 100 slots for each backend up to where the
// largest begins to run out.
func TestDefaultTableSize(t *testing.T) {
	before := uint32(0)
	for backends := 1; backends <= 10485; backends++ {
		size := DefaultTableSize(backends)
		if int(size) < 100*backends || size < before {
			t.Fatalf("%d slots for %d backends, %d for one fewer", size, backends, before)
		}
		if size != before && !big.NewInt(int64(size)).ProbablyPrime(0) { // exact below 2^64
			t.Errorf("%d is not a prime", size)
		}
		before = size
	}
	if got := DefaultTableSize(32767); got != before {
		t.Errorf("%d slots for 32,767 backends, %d for 10,485", got, before)
	}
}
