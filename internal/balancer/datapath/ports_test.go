// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestPortsHeld: ports that flows of full NAT hold, as packets left them, are counted backend by backend, and the end
// of each count is notified.
func TestPortsHeld(t *testing.T) {
	testenv.Root(t)
	pooled, plain := testService(vip4, 80, lb.TCP, lb.RoundRobin, 2), testService(vip4, 81, lb.TCP, lb.RoundRobin, 1)
	pooled.Mode, plain.Mode = lb.FullNAT, lb.L2DSR
	d := NewDetached(Options{Hook: lb.HookXDP, TableSize: testTableSize, FlowLimit: 5000, UnprovenLimit: 5000},
		balancerMAC)
	defer d.Close()
	keys := []lb.BackendKey{pooled.BackendKey(pooled.Backends[0]), {Service: pooled.Key(), Address: vip4, Port: 1},
		pooled.BackendKey(pooled.Backends[1])}
	if held := d.PortsHeld(keys); !slices.Equal(held, []uint32{0, 0, 0}) {
		t.Errorf("before the first Apply %v are held", held)
	}
	apply := func(services ...lb.RoutedService) {
		t.Helper()
		if err := d.Apply(lb.State{Services: services, Pool: lb.Pool{Addresses: []netip.Addr{vip4.Next()},
			FirstPort: 20000, LastPort: 59999}}); err != nil {
			t.Fatal(err)
		}
	}
	apply(plain)
	d.notifyFlowsCounted()
	if len(d.flowsCounted) != 0 {
		t.Error("counts are told without full NAT")
	}
	apply(plain, pooled)
	// Two backends in turn: an even number of each kind is half as many for each of them.
	next := uint16(1024)
	open := func(flows int, flags ...string) {
		t.Helper()
		for range flows {
			next++
			p := packetSpec{from: client4, at: vip4, sport: next, dport: 80}
			for _, p.flags = range flags {
				if _, _, err := d.Program().Test(p.build(t)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	open(10, "S")            // half open
	open(20, "S", "A")       // open
	open(40, "S", "A", "FA") // half closed
	open(80, "S", "A", "RA") // over
	open(160, "S", "R")      // never proven
	d.janitor.Advance(0)
	const want = (20 + 40) / 2
	if held := d.PortsHeld(keys); !slices.Equal(held, []uint32{want, 0, want}) {
		t.Errorf("%v are held, want %d by each backend", held, want)
	}
	counters, err := d.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []lb.BackendKey{keys[0], keys[2]} {
		if got := counters.Backends[key]; got.PortsHeld != want {
			t.Errorf("the counters say %+v, want %d held", got, want)
		}
	}
	for range 2 { // the second does not wait for a receiver
		d.notifyFlowsCounted()
	}
	select {
	case <-d.FlowsCounted():
	default:
		t.Error("a count is not told")
	}
	d.janitor.Advance(lb.DefaultTimeouts.Established)
	if held := d.PortsHeld(keys); !slices.Equal(held, []uint32{0, 0, 0}) {
		t.Errorf("after all flows have gone %v are held", held)
	}
}
