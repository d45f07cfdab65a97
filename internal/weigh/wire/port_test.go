// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestImpossibleSpecs: errors name the faults of impossible specs.
func TestImpossibleSpecs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Spec)
		says   string
	}{
		"no port":   {func(s *Spec) { s.Clients, s.Servers = nil, nil }, "no port"},
		"too many":  {func(s *Spec) { s.Servers = make([]Port, MaxPorts+1) }, "at most 16"},
		"no target": {func(s *Spec) { s.Target = netip.AddrPort{} }, "target"},
		"an IPv6 target": {func(s *Spec) { s.Target = netip.MustParseAddrPort("[2001:2::1]:80") },
			"no IPv4 address"},
		"no reply": {func(s *Spec) { s.Reply = "away" }, `replies "away"`},
		"ports":    {func(s *Spec) { s.SourcePorts = [2]uint16{5, 4} }, "source ports 5 to 4"},
		"batch":    {func(s *Spec) { s.Batch = 257 }, "batches of 257"},
		"nowhere":  {func(s *Spec) { s.Next = nil }, "MAC addresses to send to"},
		"broadcast": {func(s *Spec) { s.Next = []net.HardwareAddr{{255, 255, 255, 255, 255, 255}} },
			"single devices"},
		"no sources": {func(s *Spec) { s.Clients[0].Sources = netip.Prefix{} }, "no IPv4 prefix"},
		"the target's": {func(s *Spec) { s.Clients[0].Sources = netip.MustParsePrefix("198.18.0.0/24") },
			"contain the target"},
		"the same twice": {func(s *Spec) { s.Clients = append(s.Clients, s.Clients[0]) }, "overlap"},
		"an IPv6 server": {func(s *Spec) { s.Servers = []Port{{Interface: "x", Address: netip.IPv6Loopback()}} },
			"no IPv4 address"},
		"a code point": {func(s *Spec) { s.DSCP = map[uint8]netip.Addr{64: vip.Addr()} },
			"code points are 0 to 63"},
		"negative": {func(s *Spec) { s.Connections = -1 }, "use 1 to"},
		"more than tuples": {func(s *Spec) { s.Connections, s.SourcePorts = 21, [2]uint16{1, 10} },
			"give 20; add addresses or ports"},
		"more than memory ": {func(s *Spec) { s.Connections = MaxConnections + 1 }, "use 1 to"},
	} {
		spec := Spec{Clients: []Port{{Interface: "client", Sources: netip.MustParsePrefix("198.19.1.0/30")}},
			Target: vip, Next: []net.HardwareAddr{balancerMAC}}
		if _, err := spec.withDefaults(); err != nil {
			t.Fatal(err)
		}
		test.change(&spec)
		if _, err := New(t.Context(), spec); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want one that says %q", name, err, test.says)
		}
	}
}

// TestUnusablePorts: errors name interfaces that cannot be ports, which stay unchanged.
func TestUnusablePorts(t *testing.T) {
	a, b := testenv.Namespace(t), testenv.Namespace(t)
	testenv.Veth(t, testenv.End{Namespace: a, Name: "veth"}, testenv.End{Namespace: b, Name: "peer"})
	testenv.In(t, a, func() error {
		for _, name := range []string{"bridge", "down"} {
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
				return err
			}
		}
		link, err := netlink.LinkByName("bridge")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
	try := func(name string) error {
		spec := Spec{Clients: []Port{{Interface: name, Do: a.Do, Sources: sources(0)}}, Target: vip,
			Next: []net.HardwareAddr{balancerMAC}, CPU: -1}
		tester, err := New(t.Context(), spec)
		if err == nil {
			t.Cleanup(func() { tester.Close() })
		}
		return err
	}
	for name, says := range map[string]string{
		"nosuch": "not found", "down": "`ip link set up` it", "bridge": "no native XDP",
		"veth": "its other end, peer, has no XDP program",
	} {
		if err := try(name); !errors.Is(err, ErrPort) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want one that says %q", name, err, says)
		}
	}
	// With a program at its peer it can be a port; but not of two testers.
	attach(t, b, "peer", pass())
	if err := try("veth"); err != nil {
		t.Fatal(err)
	}
	if err := try("veth"); !errors.Is(err, ErrPort) || !strings.Contains(err.Error(), "another XDP program is on it") {
		t.Errorf("got %v", err)
	}
}

// narrow sets the MTU of a port.
func narrow(t *testing.T, p Port, mtu int) {
	t.Helper()
	if err := p.in(func() error {
		link, err := netlink.LinkByName(p.Interface)
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(link, mtu)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestUnsupportedLoads: errors name the loads that a tester cannot run.
func TestUnsupportedLoads(t *testing.T) {
	r := newRig(t, 1)
	r.spec.Connections = 1000
	narrow(t, r.spec.Servers[0], 700)
	narrow(t, r.spec.Clients[0], 600)
	tester := r.open(t)
	for name, test := range map[string]struct {
		load Load
		says string
	}{
		"MTU":       {Load{Kind: Session, Request: 1000}, "its MTU is 600, too small for packets of 1040 bytes"},
		"datagrams": {Load{Kind: UDP, Frame: 1000}, "its MTU is 600"},
		"answers": {Load{Kind: Session, Request: 10, Response: 1000},
			"its MTU is 700, too small for packets of 1040 bytes"},
		"held":         {Load{Kind: Capacity, Connections: 1001}, "room for 1000"},
		"held without": {Load{Kind: Capacity}, "how many connections"},
		"flood of ours": {Load{Kind: Setup, Flood: &Flood{Sources: netip.MustParsePrefix("198.19.0.0/16")}},
			"overlap"},
		"flood from none": {Load{Kind: Setup, Flood: &Flood{Sources: netip.MustParsePrefix("198.20.0.0/16"), From: 1}},
			"there are 1"},
		"an age": {Load{Kind: Setup, Rate: 1, Connections: 100_000}, "take longer than 4h"},
	} {
		_, err := tester.Run(t.Context(), test.load, nil)
		if !errors.Is(err, ErrLoad) && !errors.Is(err, ErrPort) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want one that says %q", name, err, test.says)
		}
	}
}

// TestInterrupt ends a ladder in the middle of a step: the steps before it are valid.
func TestInterrupt(t *testing.T) {
	r := newRig(t, 1)
	tester := r.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	steps, err := tester.Run(ctx,
		Load{Kind: Setup, Ladder: &Ladder{From: 1000, To: 1_000_000, By: 1000, Connections: 200}}, func(s Step) {
			// The next step may or may not have begun by then: both are right.
			time.AfterFunc(50*time.Millisecond, cancel)
		})
	if !errors.Is(err, ErrInterrupted) || len(steps) == 0 {
		t.Fatalf("%d steps, error %v", len(steps), err)
	}
	for i, s := range steps {
		if s.Interrupted && i != len(steps)-1 || s.Failed.Total() != 0 || s.Established != s.Begun {
			t.Errorf("step %d of %d: %+v", i, len(steps), s)
		}
	}
	// The tester can run another load.
	allWell(t, run(t, tester, Load{Kind: Setup, Connections: 1000})[0], 1000)
}

// TestSearch finds the rate that a wire without loss carries: the highest of the search.
func TestSearch(t *testing.T) {
	r := newRig(t, 1)
	steps := run(t, r.open(t), Load{Kind: Setup, Search: &Search{From: 100, To: 2000, Loss: 0.5, Resolution: 0.5},
		Duration: 100 * time.Millisecond})
	if best, ok := Best(steps, 0.5); !ok || best.Offered > 2000 || steps[0].Offered != 2000 {
		t.Errorf("%+v", steps)
	}
}

// TestSearchHalves continues between a rate that passed and one that did not.
func TestSearchHalves(t *testing.T) {
	r, middle, _ := newBetween(t)
	for _, name := range []string{"c", "s1", "s2"} {
		attach(t, middle, name, pass())
	}
	steps := run(t, r.open(t), Load{Kind: Setup, Search: &Search{From: 1000, To: 9000, Resolution: 0.5},
		Duration: 20 * time.Millisecond,
		Timeout:  2 * time.Millisecond, Tries: 1})
	var rates []float64
	for _, s := range steps {
		rates = append(rates, s.Offered)
	}
	// Nothing is answered: 9000, then halves of the rest down to 1000.
	want := []float64{9000, 5000, 3000, 2000, 1500}
	if len(rates) < 3 || rates[0] != want[0] || rates[1] != want[1] || rates[2] != want[2] {
		t.Errorf("tried %v, want %v", rates, want)
	}
	if _, ok := Best(steps, 0); ok {
		t.Error("a rate that nothing came of passed")
	}
}

// TestSucceeded: a connection that a proxy has accepted and not passed on has not succeeded.
func TestSucceeded(t *testing.T) {
	for name, c := range map[string]struct {
		step Step
		want uint64
	}{
		"at servers":         {Step{Kind: Setup, Offered: 10, Established: 100, PerServer: []uint64{50, 50}}, 100},
		"accepted only":      {Step{Kind: Setup, Offered: 10, Established: 100, PerServer: []uint64{40, 37}}, 77},
		"too late":           {Step{Kind: Setup, Established: 100, InTime: 30, PerServer: []uint64{50, 50}}, 30},
		"not answered":       {Step{Kind: Setup, Offered: 10, Established: 90, PerServer: []uint64{50, 50}}, 90},
		"others' servers":    {Step{Kind: Setup, Established: 100}, 100},
		"closed sessions":    {Step{Kind: Session, Established: 100, Completed: 60, PerServer: []uint64{100}}, 60},
		"answered datagrams": {Step{Kind: UDP, Established: 100, PerServer: []uint64{50}}, 100},
	} {
		if got := c.step.Succeeded(); got != c.want {
			t.Errorf("%s: %d succeeded, want %d", name, got, c.want)
		}
		c.step.Asked, c.step.KeptUp = 100, true
		if passes := c.step.Passes(0.01); passes != (c.want == 100) {
			t.Errorf("%s: passes is %v", name, passes)
		}
	}
}
