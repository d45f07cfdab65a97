// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/readview"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestFlowsListed: flows that packets have begun are listed as they are, of both families and of full NAT,
// and only the wanted ones, up to a limit.
func TestFlowsListed(t *testing.T) {
	testenv.Root(t)
	pooled, plain, six := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1),
		testService(vip4, 53, lb.UDP, lb.RoundRobin, 1), testService(vip6, 80, lb.TCP, lb.RoundRobin, 1)
	pooled.Mode, plain.Mode, six.Mode = lb.FullNAT, lb.L2DSR, lb.L2DSR
	d := NewDetached(Options{Hook: lb.HookXDP, TableSize: testTableSize, FlowLimit: 5000, UnprovenLimit: 5000},
		balancerMAC)
	defer d.Close()
	all := func(*lb.Flow) bool { return true }
	if flows, n, err := d.Flows(all, 10); len(flows) != 0 || n != 0 || err != nil {
		t.Errorf("before the first Apply: %v, %d, %v", flows, n, err)
	}
	pool := netip.MustParseAddr("198.18.0.77")
	if err := d.Apply(lb.State{Services: []lb.RoutedService{pooled, plain, six},
		Pool: lb.Pool{Addresses: []netip.Addr{vip6.Next(), pool}, FirstPort: 20000, LastPort: 20000}}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		packet packetSpec
		flags  []string
	}{
		{packetSpec{from: client4, at: vip4, sport: 1001, dport: 80}, []string{"S", "A"}},
		{packetSpec{from: client4, at: vip4, sport: 1002, dport: 53, udp: true}, []string{""}},
		{packetSpec{from: client6, at: vip6, sport: 1003, dport: 80}, []string{"S"}},
		{packetSpec{from: client6, at: vip6, sport: 1004, dport: 80}, []string{"S", "A", "FA"}},
	} {
		for _, p.packet.flags = range p.flags {
			if _, _, err := d.Program().Test(p.packet.build(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := []lb.Flow{
		{Backend: pooled.BackendKey(pooled.Backends[0]), Client: netip.AddrPortFrom(client4, 1001),
			Source: netip.AddrPortFrom(pool, 20000), State: lb.FlowEstablished, Proven: true},
		{Backend: plain.BackendKey(plain.Backends[0]), Client: netip.AddrPortFrom(client4, 1002), State: lb.FlowFirst},
		{Backend: six.BackendKey(six.Backends[0]), Client: netip.AddrPortFrom(client6, 1003), State: lb.FlowOpening},
		{Backend: six.BackendKey(six.Backends[0]), Client: netip.AddrPortFrom(client6, 1004), State: lb.FlowClientFIN,
			Proven: true},
	}
	flows, n, err := d.Flows(all, 10)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(flows, func(a, b lb.Flow) int { return int(a.Client.Port()) - int(b.Client.Port()) })
	if diff := cmp.Diff(want, flows, cmpopts.IgnoreFields(lb.Flow{}, "Silent"),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool {
			return a == b
		})); diff != "" || n != 4 {
		t.Errorf("%d flows (-want +got):\n%s", n, diff)
	}
	if flows, n, err := d.Flows(func(f *lb.Flow) bool { return f.Client.Addr() == client6 }, 1); len(flows) != 1 ||
		flows[0].Client.Addr() != client6 || n != 2 || err != nil {
		t.Errorf("of one client, at most one: %v, %d, %v", flows, n, err)
	}
	// A service that leaves takes its flows with it.
	if err := d.Apply(lb.State{Services: []lb.RoutedService{plain}}); err != nil {
		t.Fatal(err)
	}
	if flows, n, err := d.Flows(all, 10); len(flows) != 1 || n != 1 || err != nil {
		t.Errorf("of the service that is left: %v, %d, %v", flows, n, err)
	}
}

// TestFlowStatesHaveWords: each state of a flow has one of lb.FlowStates, in the same order.
func TestFlowStatesHaveWords(t *testing.T) {
	var words []lb.FlowState
	for state := range objects.XDPFlowStateFLOW_STATES {
		if word, is := readview.FlowStates[state]; is {
			words = append(words, word)
		}
	}
	if !slices.Equal(words, lb.FlowStates) {
		t.Errorf("the states are %v, want %v", words, lb.FlowStates)
	}
}
