// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/memleft"
)

// TestMemoryPlan: the planned memory is that of the maps by the kernel's own figures.
func TestMemoryPlan(t *testing.T) {
	enterTestNet(t)
	tracked, fullNAT := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3), testService(vip4, 81, lb.TCP, lb.Maglev, 3)
	fullNAT.Mode = lb.FullNAT
	for _, c := range []struct {
		name     string
		options  Options
		services []lb.RoutedService
		proven   uint32
	}{
		{"nothing tracked", Options{}, []lb.RoutedService{testService(vip4, 80, lb.TCP, lb.Maglev, 3)},
			lb.DefaultPinLimit},
		{"tracked", Options{}, []lb.RoutedService{tracked}, lb.DefaultFlowLimit},
		{"full NAT", Options{}, []lb.RoutedService{fullNAT}, lb.DefaultFlowLimit},
		{"configured", Options{FlowLimit: 123456, UnprovenLimit: 7}, []lb.RoutedService{tracked, fullNAT}, 123456},
	} {
		t.Run(c.name, func(t *testing.T) {
			enterTestNet(t)
			c.options.Hook, c.options.TableSize = lb.HookXDP, testTableSize
			d := NewDetached(c.options, balancerMAC)
			defer d.Close()
			if err := d.Apply(lb.State{Services: c.services,
				Pool: lb.Pool{FirstPort: 20000, LastPort: 40000}}); err != nil {
				t.Fatal(err)
			}
			plan := d.Memory()
			taken := map[string]uint64{}
			for name, m := range d.shared.ByName() {
				taken[name] = memlock(t, m)
			}
			for _, part := range []struct {
				name        string
				plan, taken uint64
			}{
				{"proven", plan.Proven, taken[objects.XDPMapFlows]},
				{"unproven", plan.Unproven, taken[objects.XDPMapNewcomers]},
				{"returns", plan.Returns, taken[objects.XDPMapReturns]},
				{"counters", plan.Counters, taken[objects.XDPMapBackendCounts] + taken[objects.XDPMapLoads] +
					taken[objects.XDPMapTurns]},
				{"fragments", plan.Fragments, taken[objects.XDPMapFragments]},
				{"configuration", plan.Configuration, memlock(t, d.current.Memory.Map)},
			} {
				// Heads of maps, and whole pages.
				if part.taken > part.plan+part.plan/10+3*8192 || part.plan > part.taken {
					t.Errorf("%s: %d bytes are planned, the kernel took %d", part.name, part.plan, part.taken)
				}
			}
			counters, err := d.Counters()
			if err != nil || plan.ProvenLimit != c.proven || counters.Flows.ProvenLimit != uint64(c.proven) ||
				counters.Flows.UnprovenLimit != uint64(d.options.UnprovenLimit) {
				t.Errorf("%v, room for %d flows, the counters say %+v, %v; want %d", plan, plan.ProvenLimit,
					counters.Flows, err, c.proven)
			}
		})
	}
}

// TestTooLarge: a configuration that would not fit is refused before anything is made, and the present one stays in
// use.
func TestTooLarge(t *testing.T) {
	enterTestNet(t)
	d := NewDetached(Options{Hook: lb.HookXDP, TableSize: testTableSize, FlowLimit: 1 << 31}, balancerMAC)
	defer d.Close()
	err := d.Apply(lb.State{Services: []lb.RoutedService{testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)}})
	if !errors.Is(err, lb.ErrTooLarge) || !strings.Contains(err.Error(), "flows.limit: ") || d.shared != nil ||
		d.current != nil {
		t.Errorf("a table of 128 GiB: %v", err)
	}
}

// TestWhatWouldFit: the advice is right: with the limit that it names the plan fits, and with a little more it does
// not.
func TestWhatWouldFit(t *testing.T) {
	left := memleft.Available{Bytes: 1 << 30, Source: "a test", Known: true}
	for _, full := range []uint32{0, 1} {
		plan := func(flows uint32) lb.MemoryPlan {
			want := sharedmaps.Sizes{Backends: 256, Services: 256, Flows: flowtable.BucketsFor(flows),
				Newcomers: flowtable.BucketsFor(1 << 18), Returns: 1}
			if full == 1 {
				want.Returns = flowtable.ReturnBucketsFor(uint64(flows) + 1<<18)
			}
			p, err := sharedmaps.PlanFor(want, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		room := left.Bytes - left.Bytes/memleft.Margin
		p := plan(1 << 26)
		if err := sharedmaps.CheckPlan(p, left); !errors.Is(err, lb.ErrTooLarge) {
			t.Fatalf("%v fits: %v", p, err)
		}
		var flows uint32
		for digits := range strings.FieldsSeq(sharedmaps.AdviceFor(p, room)) {
			if n := 0; strings.Trim(digits, "0123456789") == "" {
				for _, digit := range digits {
					n = n*10 + int(digit-'0')
				}
				flows = uint32(n)
			}
		}
		if err := sharedmaps.CheckPlan(plan(flows), memleft.Available{Bytes: left.Bytes - left.Bytes/30, Source: "a little later",
			Known: true}); err != nil {
			t.Errorf("%q: %v", sharedmaps.AdviceFor(p, room), err)
		}
		if err := sharedmaps.CheckPlan(plan(flows+flows/10), left); err == nil {
			t.Errorf("%q: a tenth more would fit too", sharedmaps.AdviceFor(p, room))
		}
	}
	small := memleft.Available{Bytes: 80 << 20, Source: "a test", Known: true}
	if p := (lb.MemoryPlan{Proven: 1 << 30, Unproven: 1 << 29}); !strings.Contains(sharedmaps.CheckPlan(p,
		small).Error(),
		"smaller flows.limit and flows.unproven") {
		t.Errorf("%v", sharedmaps.CheckPlan(p, small))
	}
	if p := (lb.MemoryPlan{Proven: 5 << 20, Configuration: 70 << 20}); !strings.HasSuffix(
		sharedmaps.CheckPlan(p, small).Error(),
		"75.0 MiB are needed (0 proven flows 5.0 MiB, configuration 70.0 MiB), and of 80.0 MiB that are available (a test) 16.0 MiB may be taken: use fewer services, or a smaller table_size: 11.0 MiB of configuration would fit") {
		t.Errorf("%v", sharedmaps.CheckPlan(p, small))
	}
	if p := (lb.MemoryPlan{Returns: 20 << 20}); !strings.Contains(sharedmaps.CheckPlan(p, small).Error(),
		"16.0 MiB may be taken: use fewer services") {
		t.Errorf("%v", sharedmaps.CheckPlan(p, small)) // flows are remembered already, and full NAT comes
	}
	if err := sharedmaps.CheckPlan((lb.MemoryPlan{Proven: 1 << 60}), memleft.Available{}); err != nil {
		t.Errorf("refused where it is unknown what there is: %v", err)
	}
}

// TestTablesGrowUnderFlows: where the first service that tracks flows is added, the table is made larger, and its flows
// go on.
func TestTablesGrowUnderFlows(t *testing.T) {
	enterTestNet(t)
	d := NewDetached(Options{Hook: lb.HookXDP, TableSize: testTableSize}, balancerMAC)
	defer d.Close()
	udp := testService(vip4, 53, lb.UDP, lb.Maglev, 4)
	state := lb.State{Services: []lb.RoutedService{udp}}
	apply := func() {
		t.Helper()
		if err := d.Apply(state); err != nil {
			t.Fatal(err)
		}
	}
	send := func(sport int) []byte {
		t.Helper()
		options := ebpf.RunOptions{Data: packetSpec{from: client4, at: vip4, sport: uint16(sport), dport: 53,
			udp: true}.build(t), DataOut: make([]byte, 4096)}
		if action, err := d.Program().Run(&options); err != nil || action == actions[lb.HookXDP].drop {
			t.Fatalf("action %d, %v", action, err)
		}
		return slices.Clone(options.DataOut[:12])
	}
	apply()
	const flows = 400
	var before [flows][]byte
	for i := range before {
		before[i] = send(1000 + i)
	}
	// One backend is removed, and two are added: slots change hands, and flows that are met then get entries.
	udp = testService(vip4, 53, lb.UDP, lb.Maglev, 6)
	state.Services = []lb.RoutedService{udp}
	apply()
	for range 2 {
		for i := range before {
			if !slices.Equal(send(1000+i), before[i]) {
				t.Fatalf("flow %d went elsewhere", i)
			}
		}
	}
	table, remembered := d.shared.Proven, len(d.shared.Proven.Places())
	state.Services = append(state.Services, testService(vip4, 80, lb.TCP, lb.RoundRobin, 2))
	apply()
	if d.shared.Proven == table || len(d.shared.Proven.Buckets) != int(flowtable.BucketsFor(lb.DefaultFlowLimit)) {
		t.Fatalf("the table was not made larger: %d buckets", len(d.shared.Proven.Buckets))
	}
	if n := len(d.shared.Proven.Places()); n != remembered || n == 0 {
		t.Errorf("%d flows are remembered, want %d", n, remembered)
	}
	if wrongs := d.shared.Proven.Check(); wrongs != "" {
		t.Error(wrongs)
	}
	for i := range before {
		if !slices.Equal(send(1000+i), before[i]) {
			t.Fatalf("flow %d went elsewhere after the table was made larger", i)
		}
	}
}
