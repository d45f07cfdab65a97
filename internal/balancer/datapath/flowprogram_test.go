// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// flowKeyOf is the key of a packet's flow.
func (d *Datapath) flowKeyOf(p packetSpec, protocol lb.Protocol) objects.XDPFlow {
	id := d.register.Places.Services[lb.ServiceKey{VIP: p.at, Port: p.dport, Protocol: protocol}]
	return objects.XDPFlow{Address: mapmem.OfAddress(p.from), Port: mapmem.NetworkOrder(p.sport), Service: id}
}

// TestProgramAndJanitorShareTables: the control plane finds the program's entries under the same hash, and forgets them
// when they are due, and nothing is left then, neither in the tables nor in the counts.
func TestProgramAndJanitorShareTables(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		enterTestNet(t)
		const flows = 1500
		// Clients with persistence take places too. In tables as full as they are planned
		// to be, one in 140 secrets leaves one of these flows without a place.
		const room = 4 * flows
		d := NewDetached(Options{Hook: hook, TableSize: testTableSize, FlowLimit: room, UnprovenLimit: room},
			balancerMAC)
		t.Cleanup(func() { d.Close() })
		state := lb.State{Services: []lb.RoutedService{testService(vip4, 80, lb.TCP, lb.RoundRobin, 3),
			testService(vip6, 80, lb.TCP, lb.RoundRobin, 3), testService(vip4, 53, lb.UDP, lb.RoundRobin, 3)}}
		state.Services[1].Persistence = lb.Persistence{Timeout: time.Hour}
		if err := d.Apply(state); err != nil {
			t.Fatal(err)
		}
		send := func(p packetSpec) {
			t.Helper()
			if action, err := d.Program().Run(&ebpf.RunOptions{Data: p.build(t),
				DataOut: make([]byte, 4096)}); err != nil || action == actions[hook].drop {
				t.Fatalf("action %d, %v", action, err)
			}
		}
		specs := map[lb.Protocol][]packetSpec{}
		for i := range flows {
			p := packetSpec{from: client4, at: vip4, sport: uint16(1000 + i), dport: 80, flags: "S"}
			if i%3 == 1 {
				p.from, p.at = client6, vip6
				a := client6.As16()
				a[15], a[8] = byte(i), byte(i>>8)
				p.from = netip.AddrFrom16(a)
			}
			protocol := lb.TCP
			if i%3 == 2 {
				p.dport, p.udp, protocol = 53, true, lb.UDP
			}
			specs[protocol] = append(specs[protocol], p)
			send(p)
		}
		places := func(table *flowtable.Table, wanted bool) {
			t.Helper()
			for protocol, list := range specs {
				for _, p := range list {
					key := d.flowKeyOf(p, protocol)
					place, found := table.Find(&key)
					if found != wanted {
						t.Fatalf("%s: the flow of %v port %d: %v, want %v", protocol, p.from, p.sport, found, wanted)
					}
					if found && place.Flow().Generation == 0 {
						t.Fatalf("a flow without a backend")
					}
				}
			}
			if wrongs := table.Check(); wrongs != "" {
				t.Fatal(wrongs)
			}
		}
		active := func(want uint32) {
			t.Helper()
			sum := [2]uint32{}
			for _, load := range d.janitor.Rules.Loads {
				sum[0] += load.Active
			}
			for _, turn := range d.janitor.Rules.Turns {
				sum[1] += turn.Active
			}
			if sum != [2]uint32{want, want} || d.janitor.Drift.Corrected != 0 {
				t.Fatalf("%v flows are active, %d counts were corrected, want %d", sum, d.janitor.Drift.Corrected, want)
			}
		}
		newcomers, proven := d.shared.Unproven, d.shared.Proven
		places(newcomers, true)
		places(proven, false)
		active(flows)
		for protocol, list := range specs {
			for i := range list {
				list[i].flags = "A"
				if protocol == lb.TCP && i%4 == 0 {
					list[i].flags = "FA"
				}
				send(list[i])
			}
		}
		// Those that ended before they were proven stay where they were.
		ended := (len(specs[lb.TCP]) + 3) / 4
		active(uint32(flows - ended))
		for i, p := range specs[lb.TCP] {
			key := d.flowKeyOf(p, lb.TCP)
			if place, found := proven.Find(&key); found == (i%4 == 0) || found &&
				place.State() != objects.XDPFlowStateFLOW_ESTABLISHED {
				t.Fatalf("flow %d of TCP is among the proven: %v", i, found)
			}
		}
		d.janitor.Advance(lb.DefaultTimeouts.Opening - time.Second)
		if n := d.janitor.FlowsOf(); n[0] != flows/3 || n[1] < flows/3 || n[2] != flows/3 {
			t.Errorf("flows by service: %v", n)
		}
		active(uint32(flows - ended))
		d.janitor.Advance(lb.DefaultTimeouts.Fin)
		active(uint32(len(specs[lb.TCP]) - ended))
		d.janitor.Advance(lb.DefaultTimeouts.Established)
		places(newcomers, false)
		places(proven, false)
		active(0)
		if left := len(newcomers.Places()) + len(proven.Places()); left != 0 {
			t.Errorf("%d entries are left", left)
		}
	})
}

// entriesOfReturns counts the entries of the table of returns.
func entriesOfReturns(t *flowtable.ReturnTable) (n int) {
	for i := range t.Buckets {
		for at := range flowtable.ReturnsPerBucket {
			if t.Buckets[i].Tags[at/4]>>(at%4*16)&0xffff != 0 {
				n++
			}
		}
	}
	return n
}

// TestReturnsAreTakenOut: while threads open and prove full-NAT flows, the janitor walks the table of their replies,
// and removes no entry that leads to a flow; and all, when the flows have gone.
func TestReturnsAreTakenOut(t *testing.T) {
	testenv.Root(t)
	service := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)
	service.Mode = lb.FullNAT
	d := NewDetached(Options{Hook: lb.HookXDP, TableSize: testTableSize, FlowLimit: 5000, UnprovenLimit: 5000},
		balancerMAC)
	defer d.Close()
	if err := d.Apply(lb.State{Services: []lb.RoutedService{service},
		Pool: lb.Pool{Addresses: []netip.Addr{vip4.Next()}, FirstPort: 20000, LastPort: 59999}}); err != nil {
		t.Fatal(err)
	}
	const threads, flows = 3, 1000
	var group sync.WaitGroup
	for thread := range threads {
		group.Go(func() {
			for i := range flows {
				p := packetSpec{from: client4, at: vip4, sport: uint16(1024 + thread*flows + i), dport: 80}
				// Every second one is proven.
				for _, p.flags = range []string{"S", "A"}[:1+i%2] {
					if _, _, err := d.Program().Test(p.build(t)); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	for open := true; open; {
		select {
		case <-done:
			open = false
		default:
			d.janitor.Advance(0)
		}
	}
	const proven = threads * flows / 2
	if led, entries := leading(d), entriesOfReturns(d.shared.FullNAT); led != threads*flows ||
		entries != threads*flows {
		t.Errorf("replies would find %d flows by %d entries, want %d", led, entries, threads*flows)
	}
	for _, stage := range []struct {
		passes time.Duration
		want   int
	}{{lb.DefaultTimeouts.Opening, proven}, {lb.DefaultTimeouts.Established, 0}} {
		d.janitor.Advance(stage.passes)
		if led, entries := leading(d), entriesOfReturns(d.shared.FullNAT); led != stage.want || entries != stage.want {
			t.Errorf("after %v replies would find %d flows by %d entries, want %d", stage.passes, led, entries,
				stage.want)
		}
	}
}

// TestHouseIsKept: of a datapath that is attached, time passes and flows go by themselves,
// and it can be closed at any time.
func TestHouseIsKept(t *testing.T) {
	balancer, outside := testenv.Namespace(t), testenv.Namespace(t)
	testenv.Veth(t, testenv.End{Namespace: balancer, Name: "in"}, testenv.End{Namespace: outside, Name: "out"})
	var d *Datapath
	testenv.In(t, balancer, func() (err error) {
		if d, err = Open(Options{Interfaces: []string{"in"}, Hook: lb.HookXDP, TableSize: testTableSize,
			FlowLimit: 1000, UnprovenLimit: 1000,
			Timeouts: lb.Timeouts{Opening: 3 * flowtable.NewcomersEvery}}); err != nil {
			return err
		}
		return d.Apply(lb.State{Services: []lb.RoutedService{testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)}})
	})
	defer d.Close()
	start := d.janitor.Now()
	testenv.Eventually(t, testenv.WaitLimit, "the clock goes on", func() bool { return d.janitor.Now() > start })
	testenv.In(t, balancer, func() error {
		nic, err := net.InterfaceByName("in")
		if err != nil {
			return err
		}
		_, err = d.Program().Run(&ebpf.RunOptions{Data: with(web4(), func(p *packetSpec) {
			p.to = nic.HardwareAddr
		}).build(t), DataOut: make([]byte, 4096)})
		return err
	})
	// A walk over the table takes newcomersEvery: it meets the flow before its time is up.
	counted := func(want uint64) func() bool {
		return func() bool {
			counters, err := d.Counters()
			return err == nil && counters.Flows.Unproven == want &&
				uint64(counters.Services[lb.ServiceKey{VIP: vip4, Port: 80, Protocol: lb.TCP}].Active) == want
		}
	}
	testenv.Eventually(t, testenv.WaitLimit, "the flow is counted", counted(1))
	testenv.Eventually(t, testenv.WaitLimit, "the flow is forgotten", counted(0))
}

// TestProgramAmongTheJanitor is TestJanitorAmongPackets with the real program: threads
// open, prove and end flows, some of them the same ones, while the janitor walks and
// time flies.
func TestProgramAmongTheJanitor(t *testing.T) {
	testenv.Root(t)
	const threads, epochs, packets, window = 3, 60, 60, 40
	d := NewDetached(Options{Hook: lb.HookXDP, TableSize: testTableSize, FlowLimit: epochs * window / 3,
		UnprovenLimit: 300}, balancerMAC)
	defer d.Close()
	service := testService(vip4, 80, lb.TCP, lb.LeastConnections, 3)
	service.Persistence = lb.Persistence{Timeout: time.Minute}
	if err := d.Apply(lb.State{Services: []lb.RoutedService{service}}); err != nil {
		t.Fatal(err)
	}
	expired := uint64(0)
	for epoch := range epochs {
		var group sync.WaitGroup
		for thread := range threads {
			group.Go(func() {
				random := rand.New(rand.NewPCG(uint64(epoch), uint64(thread)))
				for range packets {
					n := epoch*window + random.IntN(2*window)
					p := packetSpec{from: client4, at: vip4, sport: uint16(1024 + n), dport: 80,
						flags: []string{"S", "A", "A", "A", "FA"}[random.IntN(5)]}
					if _, _, err := d.Program().Test(p.build(t)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		d.janitor.Advance(lb.DefaultTimeouts.Opening / 7)
		group.Wait()
		expired += d.janitor.Newcomers.Last.Expired
	}
	if expired == 0 {
		t.Error("no flow has expired among the packets")
	}
	d.janitor.Advance(lb.DefaultTimeouts.Established)
	for i, table := range []*flowtable.Table{d.shared.Proven, d.shared.Unproven} {
		if n, wrongs := len(table.Places()), table.Check(); n != 0 || wrongs != "" {
			t.Errorf("table %d: %d flows are left: %s", i, n, wrongs)
		}
	}
	for i := range d.janitor.Rules.Loads[:3] {
		if got := d.janitor.Rules.Loads[i].Active; got != 0 {
			t.Errorf("backend %d has %d active flows", i, int32(got))
		}
	}
	if got := d.janitor.Rules.Turns[0].Active; got != 0 || d.janitor.Drift.Corrected != 0 {
		t.Errorf("the service has %d active flows, %d counts were corrected", int32(got), d.janitor.Drift.Corrected)
	}
}

// TestFlowMemory: a flow takes at most 128 bytes of kernel memory, in tables for 1 and for 10 million, by the kernel's
// own figure for the map. The smaller one is filled, to see that as many find room; that takes long for the larger.
func TestFlowMemory(t *testing.T) {
	enterTestNet(t)
	spec, err := loader.XDP.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ limit, fill uint32 }{{1_000_000, 1_000_000}, {10_000_000, 1_000_000}} {
		tableSpec := spec.Maps[objects.XDPMapFlows].Copy()
		tableSpec.MaxEntries = flowtable.BucketsFor(c.limit)
		m, err := ebpf.NewMap(tableSpec)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		table, err := flowtable.MapTable(m, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer table.Close()
		refused := uint32(0)
		for n := range c.fill {
			if !table.Insert(sampleFlow(int(n)), objects.XDPFlowStateFLOW_ESTABLISHED, 0) {
				refused++
			}
		}
		bytes := memlock(t, m)
		t.Logf("%d bytes for %d flows", bytes, c.limit)
		if bytes == 0 || bytes > 128*uint64(c.limit-refused) || refused > c.limit/10000 {
			t.Errorf("%d bytes for %d flows, of which %d found no room", bytes, c.limit, refused)
		}
	}
}

// memlock is the memory of a map, by the kernel's own figure.
func memlock(t *testing.T, m *ebpf.Map) (bytes uint64) {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/self/fdinfo/%d", m.FD()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "memlock:"); ok {
			if _, err := fmt.Sscan(text, &bytes); err != nil {
				t.Fatal(err)
			}
		}
	}
	return bytes
}

// TestJanitorIsTold: a packet that puts a flow into a table sets the flag for the janitor, and no other does.
func TestJanitorIsTold(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		hashed := testService(vip4, 81, lb.TCP, lb.Maglev, 3)
		r := newRig(t, hook,
			lb.State{Services: []lb.RoutedService{testService(vip4, 80, lb.TCP, lb.RoundRobin, 3), hashed}})
		head := r.datapath.janitorInput().Head
		for _, step := range []struct {
			name, flags string
			port        uint16
			want        uint32
		}{
			{"a SYN by the hash", "S", 81, 0},
			{"its ACK", "A", 81, 0},
			{"a SYN of round robin", "S", 80, 1},
			{"the same again", "S", 80, 0},
			{"the ACK that proves it", "A", 80, 1},
			{"data", "A", 80, 0},
		} {
			head.Remembered = 0
			r.check(t, with(web4(), func(p *packetSpec) { p.dport, p.flags = step.port, step.flags }).build(t))
			if head.Remembered != step.want {
				t.Errorf("%s: told %d, want %d", step.name, head.Remembered, step.want)
			}
		}
	})
}
