// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// clientOf returns a client in a subnet of the ground, by the subnet's place in
// clientSubnets.
func clientOf(subnet int, six bool, number byte) netip.Addr {
	text := clientSubnets[subnet].four
	if six {
		text = clientSubnets[subnet].six
	}
	b := netip.MustParsePrefix(text).Addr().AsSlice()
	b[len(b)-1] = number
	a, _ := netip.AddrFromSlice(b)
	return a
}

// subnetCase is a client, and how a packet of that size to it ends. The sizes
// are of payloads.
type subnetCase struct {
	name    string
	subnet  int
	number  byte
	payload int
	df      bool
	// want is by family: IPv4, IPv6.
	want [2]string
}

var subnetCases = []subnetCase{
	{"on the link", 0, 7, 100, false, [2]string{"returned", "returned"}},
	{"nearly as large as the link takes", 0, 7, 1436, true, [2]string{"returned", "returned"}},
	{"by a gateway", 1, 7, 100, false, [2]string{"returned", "returned"}},
	{"without a known neighbour", 0, 200, 100, false, [2]string{"passed_to_route", "passed_to_route"}},
	{"larger than the link", 0, 7, 1500, false, [2]string{"passed_to_route", "answered_too_big"}},
	{"larger than the link, DF", 0, 7, 1500, true, [2]string{"answered_too_big", "answered_too_big"}},
	{"larger than the gateway's link, DF", 1, 7, 1400, true, [2]string{"answered_too_big", "answered_too_big"}},
	{"larger than the route", 2, 7, 1300, false, [2]string{"passed_to_route", "answered_too_big"}},
	{"larger than the route, DF", 2, 7, 1300, true, [2]string{"answered_too_big", "answered_too_big"}},
	{"smaller than the route", 2, 7, 500, true, [2]string{"returned", "returned"}},
	{"larger than the link, without a known neighbour, DF", 0, 200, 1500, true,
		[2]string{"answered_too_big", "answered_too_big"}},
	{"unreachable", 3, 7, 100, false, [2]string{"dropped_no_route", "dropped_no_route"}},
	{"blackhole", 4, 7, 100, false, [2]string{"dropped_no_route", "dropped_no_route"}},
	{"prohibited", 5, 7, 100, false, [2]string{"dropped_no_route", "dropped_no_route"}},
	{"without a route", 6, 7, 100, false, [2]string{notForwarded, notForwarded}},
}

// vips are those of the tests, IPv4's first.
var vips = []netip.Addr{vip4, vip6}

// TestReturnsOfNAT sends replies of NAT's backends to clients of each kind.
func TestReturnsOfNAT(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := sharedRig(t, hook)
		for family, vip := range vips {
			for _, udp := range []bool{false, true} {
				for _, test := range subnetCases {
					t.Run(test.name+"-"+vip.String(), func(t *testing.T) {
						enterTestNet(t)
						p := natReply(r.model, vip, udp, clientOf(test.subnet, vip.Is6(), test.number))
						p.payload, p.df = test.payload, test.df
						for _, frame := range [][]byte{p.build(t), tagged(p.build(t), 0x8100)} {
							expectOutcome(t, r, frame, test.want[family])
						}
					})
				}
			}
		}
	})
}

// service returns the service of the model with that key.
func (m *model) service(vip netip.Addr, port uint16, udp bool) *lb.RoutedService {
	protocol := lb.TCP
	if udp {
		protocol = lb.UDP
	}
	return m.services[lb.ServiceKey{VIP: vip, Port: port, Protocol: protocol}]
}

// modelOf returns a model that no program stands beside.
func modelOf(tb testing.TB, state lb.State) *model {
	tb.Helper()
	m := newModel(balancerMAC, testOptions(lb.HookXDP))
	m.serviceID = func(key lb.ServiceKey) uint32 {
		return uint32(slices.IndexFunc(state.Services, func(s lb.RoutedService) bool { return s.Key() == key }))
	}
	m.backendIndex = func(lb.BackendKey) uint32 { return 0 }
	m.sequenceOf = func(lb.ServiceKey) []int { return nil }
	m.marks = func(lb.ServiceKey, uint32) bool { return true }
	if err := m.apply(state); err != nil {
		tb.Fatal(err)
	}
	return m
}

// natReply is a packet of a backend of NAT to a client.
func natReply(m *model, vip netip.Addr, udp bool, client netip.Addr) packetSpec {
	backend := m.service(vip, portNAT, udp).Backends[1]
	return packetSpec{from: backend.Address, at: client, sport: backend.Port, dport: 40000, udp: udp, flags: "SA",
		payload:    10,
		tcpOptions: []byte{2, 4, 0x23, 0x00}}
}

// TestReturnEndpoints takes packets that are nearly replies.
func TestReturnEndpoints(t *testing.T) {
	m := modelOf(t, allModes())
	reply := natReply(m, vip4, false, client4)
	cut := reply.build(t)
	runCases(t, sharedRig, []packetCase{
		{"reply", reply.build(t), "returned"},
		{"from another port", with(reply, func(p *packetSpec) { p.sport++ }).build(t), unserved},
		{"by another protocol, from a port that only TCP has", with(reply, func(p *packetSpec) {
			p.sport, p.udp = 80, true
		}).build(t), unserved},
		{"of a backend to a VIP's port", with(reply, func(p *packetSpec) { p.at, p.dport = vip4, 80 }).build(t),
			"forwarded"},
		{"of a backend to the pool", with(reply, func(p *packetSpec) { p.at, p.dport = pool4, 20000 }).build(t),
			"dropped_no_flow"},
		{"of a backend to the pool's address, below its ports", with(reply, func(p *packetSpec) {
			p.at, p.dport = pool4, 19999
		}).build(t), notForwarded},
		{"longer than the frame", cut[:len(cut)-1], malformed},
		{"extension headers", ipv6WithExtensions(natReply(m, vip6, true, client6).build(t), [2]byte{0, 1},
			[2]byte{60, 2}), "returned"},
		{"more extension headers than are walked", ipv6WithExtensions(natReply(m, vip6, true, client6).build(t),
			[2]byte{0, 1}, [2]byte{60, 2}, [2]byte{60, 1}, [2]byte{60, 1}, [2]byte{60, 1}),
			"dropped_extension_headers"},
		{"last port of the pool", packetSpec{from: client4, at: pool4, sport: 1, dport: 23999, udp: true}.build(t),
			"dropped_no_flow"},
		{"port above the pool's", packetSpec{from: client4, at: pool4, sport: 1, dport: 24000, udp: true}.build(t),
			unserved},
		{"protocol without ports to the pool",
			patched(packetSpec{from: client4, at: pool4, sport: 1, dport: 20000, udp: true}.build(t), 23, 47),
			unserved},
		{"more extension headers than are walked, to the pool",
			ipv6WithExtensions(packetSpec{from: client6, at: pool6, sport: 1, dport: 1, udp: true}.build(t),
				[2]byte{0, 1}, [2]byte{60, 2}, [2]byte{60, 1}, [2]byte{60, 1}, [2]byte{60, 1}),
			"dropped_extension_headers"},
	})
}

// flow is a conversation through full NAT, from the test's side.
type flow struct {
	r      *rig
	client packetSpec
	// pool is the address and port that the backend sees as its client's.
	pool    netip.AddrPort
	backend lb.BackendKey
}

// openFlow sends the first packet of a flow to a service of full NAT.
func openFlow(t *testing.T, r *rig, p packetSpec) *flow {
	t.Helper()
	v := r.check(t, p.build(t))
	known := r.model.lookUp(r.model.flowOf(r.model.service(p.at, p.dport, p.udp),
		clientPacket{client: netip.AddrPortFrom(p.from, p.sport)}))
	if v.outcome != "forwarded" || !v.opens || known == nil || !known.pool.IsValid() {
		t.Fatalf("the first packet of a flow: %s (opens: %v)", v.outcome, v.opens)
	}
	return &flow{r: r, client: p, pool: known.pool, backend: known.backend}
}

// send sends a packet of the client.
func (f *flow) send(t *testing.T, flags string) verdict {
	t.Helper()
	return f.r.check(t, with(f.client, func(p *packetSpec) { p.flags = flags }).build(t))
}

// reply is a packet that the backend sends.
func (f *flow) reply(flags string) packetSpec {
	return packetSpec{from: f.backend.Address, sport: f.backend.Port, at: f.pool.Addr(), dport: f.pool.Port(),
		udp: f.client.udp, flags: flags, payload: 50}
}

func (f *flow) answer(t *testing.T, flags string) verdict {
	t.Helper()
	return f.r.check(t, f.reply(flags).build(t))
}

// fullNATPacket opens a flow whose path has room for it.
func fullNATPacket(t *testing.T, r *rig, vip netip.Addr, udp bool, client netip.Addr) packetSpec {
	p := modePacket(vip, portFullNAT, udp)
	p.from = client
	return p
}

// TestReturnsOfFullNAT sends replies through flows of clients of each kind.
func TestReturnsOfFullNAT(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, allModes())
		for family, vip := range vips {
			for _, udp := range []bool{false, true} {
				for _, test := range subnetCases {
					t.Run(test.name+"-"+vip.String(), func(t *testing.T) {
						enterTestNet(t)
						p := fullNATPacket(t, r, vip, udp, clientOf(test.subnet, vip.Is6(), test.number))
						p.sport = uint16(1000 + test.payload + len(test.name))
						f := openFlow(t, r, p)
						reply := f.reply("A")
						reply.payload, reply.df = test.payload, test.df
						want := test.want[family]
						if want == notForwarded {
							// By full NAT, a reply's flow is known.
							want = "passed_to_route"
						}
						for _, frame := range [][]byte{reply.build(t), tagged(reply.build(t), 0x8100)} {
							expectOutcome(t, r, frame, want)
						}
					})
				}
			}
		}
	})
}

// TestFullNATClientOfPortZero: a client of UDP that wants no answer may send from port 0 (RFC 768); replies go to that
// port, and not to the pool's.
func TestFullNATClientOfPortZero(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := sharedRig(t, hook)
		for _, vip := range vips {
			p := modePacket(vip, portFullNAT, true)
			p.sport = 0
			expectOutcome(t, r, openFlow(t, r, p).reply("").build(t), "returned")
		}
	})
}

// TestFullNATFlows follows flows from SYN to the next SYN.
func TestFullNATFlows(t *testing.T) {
	expect := func(t *testing.T, v verdict, want string) {
		t.Helper()
		if v.outcome != want {
			t.Errorf("the model says %s, the test %s", v.outcome, want)
		}
	}
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, allModes())
		for _, vip := range vips {
			p := modePacket(vip, portFullNAT, false)

			expect(t, r.check(t, with(p, func(p *packetSpec) { p.flags = "A" }).build(t)), "dropped_no_flow")
			expect(t, r.check(t, with(p, func(p *packetSpec) { p.flags = "SA" }).build(t)), "dropped_no_flow")
			f := openFlow(t, r, p)
			for _, flags := range []string{"S", "A", "PA", "SA", ""} {
				if v := f.send(t, flags); v.outcome != "forwarded" || v.opens {
					t.Errorf("%q in an open flow: %s (opens: %v)", flags, v.outcome, v.opens)
				}
			}
			expect(t, f.answer(t, "SA"), "returned")

			// After FIN from both sides, late packets still go through.
			f.send(t, "FA")
			expect(t, f.answer(t, "FA"), "returned")
			expect(t, f.send(t, "A"), "forwarded")
			expect(t, f.answer(t, "A"), "returned")
			again := openFlow(t, r, p)
			if again.pool != f.pool || again.backend != f.backend {
				t.Errorf("a client that comes again has %v to %v, had %v to %v", again.pool, again.backend,
					f.pool, f.backend)
			}
			expect(t, again.answer(t, "SA"), "returned")

			// RST from either side closes, the client's once it has answered.
			again.send(t, "A")
			again.send(t, "R")
			again = openFlow(t, r, p)
			again.answer(t, "RA")
			again = openFlow(t, r, p)
			expect(t, again.answer(t, "A"), "returned")

			// From another endpoint, to another port: no flow.
			wrong := again.reply("A")
			wrong.sport++
			expect(t, r.check(t, wrong.build(t)), "dropped_no_flow")
			wrong = again.reply("A")
			wrong.udp = true
			expect(t, r.check(t, wrong.build(t)), "dropped_no_flow")
		}
	})
}

// TestMalformedRepliesLeaveNoTrace cuts a reply with the flag RST: a packet that is dropped for its length does not
// close the flow.
func TestMalformedRepliesLeaveNoTrace(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := freshRig(t, hook)
		f := openFlow(t, r, modePacket(vip4, portFullNAT, false))
		for _, flags := range []string{"R", "FA"} {
			reply := f.reply(flags).build(t)
			expectOutcome(t, r, reply[:len(reply)-1], malformed)
			cut := with(f.client, func(p *packetSpec) { p.flags = flags }).build(t)
			expectOutcome(t, r, cut[:len(cut)-1], malformed)
		}
		if v := f.send(t, "S"); v.outcome != "forwarded" || v.opens {
			t.Errorf("a SYN in an open flow: %s (opens: %v)", v.outcome, v.opens)
		}
	})
}

// TestFullNATPoolIsShared opens flows of two services with the same backends:
// no two of them may look alike to a backend.
func TestFullNATPoolIsShared(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, allModes())
		for _, vip := range vips {
			p := modePacket(vip, portFullNAT, true)
			for sport := uint16(1); sport <= 1000; sport++ {
				p.sport, p.dport = sport, []uint16{portFullNAT, portFullNATAlike}[sport%2]
				// Counters are looked at once: that takes longer than the packets.
				if v, problem := r.feed(t, p.build(t)); problem != "" || !v.opens {
					t.Fatalf("flow %d: %s (opens: %v) %s", sport, v.outcome, v.opens, problem)
				}
			}
		}
		if problem := r.compareCounters(t); problem != "" {
			t.Error(problem)
		}
	})
}

// TestFullNATForgetsBackends takes a flow's backend away and brings it back.
func TestFullNATForgetsBackends(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		state := lb.State{Services: []lb.RoutedService{modeService(vip4, portFullNAT, lb.TCP, lb.Maglev)},
			Pool: allModes().Pool}
		r := newRig(t, hook, state)
		f := openFlow(t, r, modePacket(vip4, portFullNAT, false))
		gone, kept := lb.State{Pool: state.Pool}, state
		s := state.Services[0]
		s.Backends, s.Paths = slices.Clone(s.Backends), slices.Clone(s.Paths)
		i := slices.IndexFunc(s.Backends, func(b lb.Backend) bool { return s.BackendKey(b) == f.backend })
		s.Backends, s.Paths = slices.Delete(s.Backends, i, i+1), slices.Delete(s.Paths, i, i+1)
		gone.Services = []lb.RoutedService{s}
		r.apply(t, gone)
		if v := f.send(t, "A"); v.outcome != "dropped_no_flow" {
			t.Errorf("a flow whose backend left: %s", v.outcome)
		}
		if v := f.answer(t, "A"); v.outcome != "dropped_no_flow" {
			t.Errorf("a reply of a backend that left: %s", v.outcome)
		}
		r.apply(t, kept)
		if v := f.send(t, "A"); v.outcome != "dropped_no_flow" {
			t.Errorf("a flow whose backend left and came back: %s", v.outcome)
		}
		openFlow(t, r, f.client)
	})
}

// TestFullNATBackendDown takes the path of a flow's backend away.
func TestFullNATBackendDown(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		state := lb.State{Services: []lb.RoutedService{modeService(vip6, portFullNAT, lb.TCP, lb.Maglev)},
			Pool: allModes().Pool}
		r := newRig(t, hook, state)
		f := openFlow(t, r, modePacket(vip6, portFullNAT, false))
		s := state.Services[0]
		s.Paths = slices.Clone(s.Paths)
		i := slices.IndexFunc(s.Backends, func(b lb.Backend) bool { return s.BackendKey(b) == f.backend })
		s.Paths[i].MAC = nil
		r.apply(t, lb.State{Services: []lb.RoutedService{s}, Pool: state.Pool})
		if v := f.send(t, "A"); v.outcome != "dropped_backend_down" {
			t.Errorf("a flow whose backend is down: %s", v.outcome)
		}
		if v := f.answer(t, "A"); v.outcome != "returned" {
			t.Errorf("a reply of a backend that has no path: %s", v.outcome)
		}
		r.apply(t, state)
		if v := f.send(t, "A"); v.outcome != "forwarded" {
			t.Errorf("a flow whose backend is up again: %s", v.outcome)
		}
	})
}

// TestFullNATComesAgain ends a flow and begins it again: where its backend takes no new
// ones, it begins at another.
func TestFullNATComesAgain(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		state := lb.State{Services: []lb.RoutedService{modeService(vip4, portFullNAT, lb.TCP, lb.RoundRobin)},
			Pool: allModes().Pool}
		r := newRig(t, hook, state)
		f := openFlow(t, r, modePacket(vip4, portFullNAT, false))
		for range 3 {
			f.send(t, "FA")
			f.answer(t, "FA")
			again := openFlow(t, r, f.client)
			if again.pool != f.pool || again.backend != f.backend {
				t.Errorf("a client that comes again has %v to %v, had %v to %v", again.pool, again.backend,
					f.pool, f.backend)
			}
			if v := again.send(t, "S"); v.outcome != "forwarded" || v.opens {
				t.Errorf("its SYN sent again: %s (opens: %v)", v.outcome, v.opens)
			}
			again.send(t, "A")
		}
		f.send(t, "R")
		s := state.Services[0]
		s.Backends = slices.Clone(s.Backends)
		i := slices.IndexFunc(s.Backends, func(b lb.Backend) bool { return s.BackendKey(b) == f.backend })
		s.Backends[i].Weight = 0
		r.apply(t, lb.State{Services: []lb.RoutedService{s}, Pool: state.Pool})
		if again := openFlow(t, r, f.client); again.backend == f.backend {
			t.Errorf("a new flow goes to %v, which takes none", again.backend)
		}
	})
}

// TestFullNATPoolExhausted has few ports: new flows take those of unproven ones, and where
// all are proven there are none.
func TestFullNATPoolExhausted(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		s := modeService(vip4, portFullNAT, lb.UDP, lb.Maglev)
		addBackends(&s, 1, portFullNAT+natPortOffset, false)
		r := newRig(t, hook, lb.State{Services: []lb.RoutedService{s},
			Pool: lb.Pool{Addresses: []netip.Addr{pool4, pool4.Prev()}, FirstPort: 20000, LastPort: 20001}})
		outcomes := openMany(t, r, modePacket(vip4, portFullNAT, true), 300)
		if outcomes["forwarded"] != 300 || r.model.met["taken over"] != 296 {
			t.Errorf("300 flows to one backend with a pool of 4: %v, %d taken over", outcomes,
				r.model.met["taken over"])
		}
		expectKnown(t, r)
		r.model.mayExhaust = []string{"dropped_no_port"}
		p := modePacket(vip4, portFullNAT, true)
		p.sport = 301
		if v := r.check(t, p.build(t)); v.outcome != "dropped_no_port" {
			t.Errorf("all ports are of proven flows, and a new one is %s", v.outcome)
		}
		expectKnown(t, r)
	})
}

// expectKnown sends another packet of each flow of full NAT.
func expectKnown(t *testing.T, r *rig) {
	t.Helper()
	if len(r.model.returns) == 0 {
		t.Error("no flow is known")
	}
	for _, known := range r.model.returns {
		p := modePacket(vip4, portFullNAT, true)
		p.sport = known.port
		if v := r.check(t, p.build(t)); v.outcome != "forwarded" || v.opens || !known.pool.IsValid() {
			t.Errorf("a known flow: %s, opens: %v", v.outcome, v.opens)
		}
	}
}

// TestFullNATTakesOver: a port is taken from the flow that was silent for longest, and packets to the port are the new
// flow's.
func TestFullNATTakesOver(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		s := modeService(vip4, portFullNAT, lb.TCP, lb.Maglev)
		addBackends(&s, 1, portFullNAT+natPortOffset, false)
		r := newRig(t, hook,
			lb.State{Services: []lb.RoutedService{s}, Pool: lb.Pool{Addresses: []netip.Addr{pool4}, FirstPort: 20000,
				LastPort: 20005}})
		var flows []*flow
		for i := range 60 {
			p := modePacket(vip4, portFullNAT, false)
			p.sport = uint16(1 + i)
			// Which is the one that has been silent for longest is the model's to say.
			flows = append(flows, openFlow(t, r, p))
			r.advance(t, 10*time.Millisecond)
		}
		first, last := flows[0], flows[len(flows)-1]
		if v := first.answer(t, "SA"); v.outcome != "returned" {
			t.Errorf("an answer to a port that was taken over: %s", v.outcome)
		}
		if v := first.send(t, "A"); v.outcome != noFlow {
			t.Errorf("a packet of a flow that has gone: %s", v.outcome)
		}
		if v := last.send(t, "A"); v.outcome != "forwarded" || v.opens {
			t.Errorf("the newest flow goes on: %s, opens: %v", v.outcome, v.opens)
		}
	})
}

// openMany sends the first packet of n flows and counts how they end.
func openMany(t *testing.T, r *rig, p packetSpec, n int) map[string]int {
	t.Helper()
	outcomes := map[string]int{}
	for i := range n {
		p.sport = uint16(1 + i)
		outcomes[r.check(t, p.build(t)).outcome]++
	}
	return outcomes
}

// TestFullNATTableFull has room for few flows: a new one takes the place of another.
func TestFullNATTableFull(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		options := testOptions(hook)
		options.UnprovenLimit = 64
		r := newRigWith(t, options,
			lb.State{Services: []lb.RoutedService{modeService(vip4, portFullNAT, lb.UDP, lb.Maglev)},
				Pool: allModes().Pool})
		outcomes := openMany(t, r, modePacket(vip4, portFullNAT, true), 500)
		if n := len(r.model.returns); n < 64 || n > 104 || outcomes["forwarded"] != 500 ||
			r.model.met["evicted"] != uint64(500-n) {
			t.Errorf("500 flows into a table of 13 buckets: %v, %d are known, %d evicted", outcomes, n,
				r.model.met["evicted"])
		}
		expectKnown(t, r)
	})
}

// TestPoolWithoutTheFamily has IPv4 addresses only for a service of IPv6.
func TestPoolWithoutTheFamily(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, lb.State{Services: []lb.RoutedService{modeService(vip6, portFullNAT, lb.UDP, lb.Maglev)},
			Pool: lb.Pool{Addresses: []netip.Addr{pool4}, FirstPort: 20000, LastPort: 20100}})
		r.model.mayExhaust = []string{"dropped_no_port"}
		if v := r.check(t, modePacket(vip6, portFullNAT, true).build(t)); v.outcome != "dropped_no_port" {
			t.Errorf("the model says %s", v.outcome)
		}
	})
}

// TestReturnByTheSameInterface has packets come in on the interface by which
// they leave: there is no other to hand them to, and a tag stays on.
func TestReturnByTheSameInterface(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := freshRig(t, hook)
		occupied, err := attachForeign(nearLink.name)
		if err != nil {
			t.Fatalf("a veth has receive queues for XDP only while it runs XDP: %v", err)
		}
		defer occupied.Close()
		r.model.ingress = nearLink.index
		r.context = func(length int) []byte { return contextFrom(hook, nearLink.index, length) }
		for _, vip := range vips {
			for subnet := range 2 {
				reply := natReply(r.model, vip, true, clientOf(subnet, vip.Is6(), 3)).build(t)
				for _, frame := range [][]byte{reply, tagged(reply, 0x8100)} {
					if v := expectOutcome(t, r, frame, "returned"); v.outcome == "returned" &&
						v.elsewhere != (subnet == 1) {
						t.Errorf("to subnet %d: leaves elsewhere: %v", subnet, v.elsewhere)
					}
				}
			}
		}
	})
}

// TestReturnOfBond: the XDP program of a bond runs at the bond's member devices, which do not forward. The route of a
// reply is that of the bond, and a reply to the same link leaves as it came.
func TestReturnOfBond(t *testing.T) {
	enterTestNet(t)
	member, bond := farLink, nearLink
	d := NewDetached(testOptions(lb.HookXDP), balancerMAC)
	t.Cleanup(func() { d.Close() })
	d.findPorts = func([]string) ([]attach.Port, error) {
		return []attach.Port{{Name: bond.name, Index: bond.index, MAC: balancerMAC}}, nil
	}
	r := rigOf(t, d, testOptions(lb.HookXDP), allModes())
	occupied, err := attachForeign(member.name)
	if err != nil {
		t.Fatalf("a veth has receive queues for XDP only while it runs XDP: %v", err)
	}
	defer occupied.Close()
	for _, family := range []string{"ipv4", "ipv6"} {
		name := "net/" + family + "/conf/" + member.name + "/forwarding"
		if err := testenv.WriteSysctl(name, "0"); err != nil {
			t.Fatal(err)
		}
		defer testenv.WriteSysctl(name, "1")
	}
	r.model.ingress = bond.index
	r.context = func(length int) []byte { return contextFrom(lb.HookXDP, member.index, length) }
	for _, vip := range vips {
		reply := natReply(r.model, vip, true, clientOf(0, vip.Is6(), 3)).build(t)
		if v := expectOutcome(t, r, reply, "returned"); v.outcome == "returned" && v.elsewhere {
			t.Errorf("a reply to %s leaves by another interface", vip)
		}
	}
}

// TestFullNATTakesPortsOfEnded: a pool of few ports, and ever new connections that end, each
// closing order for itself: none is dropped, and those that are open keep their ports.
func TestFullNATTakesPortsOfEnded(t *testing.T) {
	for _, ending := range testenv.Some(t, testenv.HooksTarget, 3,
		[]string{"client first", "backend first", "client's RST", "backend's RST", "refused"}) {
		t.Run(ending, func(t *testing.T) {
			oneHook(t, func(t *testing.T, hook lb.Hook) {
				s := modeService(vip4, portFullNAT, lb.TCP, lb.Maglev)
				addBackends(&s, 1, portFullNAT+natPortOffset, false)
				r := newRig(t, hook,
					lb.State{Services: []lb.RoutedService{s}, Pool: lb.Pool{Addresses: []netip.Addr{pool4},
						FirstPort: 20000, LastPort: 20009}})
				var open []*flow
				for i := range 100 {
					p := modePacket(vip4, portFullNAT, false)
					p.sport = uint16(1 + i)
					f := openFlow(t, r, p)
					if ending != "refused" || i%25 == 0 {
						f.answer(t, "SA")
						f.send(t, "A")
					}
					if i%25 == 0 {
						open = append(open, f)
						continue
					}
					f.end(t, ending)
					r.advance(t, 10*time.Millisecond)
				}
				for _, f := range open {
					if v := f.send(t, "PA"); v.outcome != "forwarded" || v.opens {
						t.Errorf("an open connection goes on: %s, opens: %v", v.outcome, v.opens)
					}
				}
				if r.model.met["taken over"] < 80 {
					t.Errorf("%d ports were taken over by 100 connections from a pool of 10", r.model.met["taken over"])
				}
			})
		})
	}
}

// end ends a flow of full NAT.
func (f *flow) end(t *testing.T, how string) {
	t.Helper()
	switch how {
	case "client first":
		f.send(t, "FA")
		f.answer(t, "FA")
		f.send(t, "A")
	case "backend first":
		f.answer(t, "FA")
		f.send(t, "FA")
		f.answer(t, "A")
	case "client's RST":
		f.send(t, "R")
	case "backend's RST", "refused":
		f.answer(t, "RA")
	}
}

// TestFullNATPrefersPortsWithoutTimeWait: of the flows that are over, those without a connection in the backend's
// TIME-WAIT go first, however young.
func TestFullNATPrefersPortsWithoutTimeWait(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		s := modeService(vip4, portFullNAT, lb.TCP, lb.Maglev)
		addBackends(&s, 1, portFullNAT+natPortOffset, false)
		r := newRig(t, hook,
			lb.State{Services: []lb.RoutedService{s}, Pool: lb.Pool{Addresses: []netip.Addr{pool4}, FirstPort: 20000,
				LastPort: 20001}})
		open := func(sport int) *flow {
			p := modePacket(vip4, portFullNAT, false)
			p.sport = uint16(sport)
			f := openFlow(t, r, p)
			f.answer(t, "SA")
			f.send(t, "A")
			return f
		}
		waits, over := open(1), open(2)
		waits.end(t, "backend first")
		r.advance(t, 5*time.Second)
		over.end(t, "client first")
		if next := open(3); next.pool != over.pool {
			t.Errorf("a new flow has %v, whose last connection is in TIME-WAIT, and not %v", next.pool, over.pool)
		}
		if last := open(4); last.pool != waits.pool {
			t.Errorf("the next one has %v, want %v: nothing else is over", last.pool, waits.pool)
		}
	})
}
