// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// exceptOf returns allModes with exceptions of the services of mode nat.
func exceptOf(prefixes ...string) lb.State {
	state := allModes()
	for i := range state.Services {
		s := &state.Services[i]
		if s.Mode != lb.NAT {
			continue
		}
		for _, text := range prefixes {
			if prefix := netip.MustParsePrefix(text); prefix.Addr().Is6() == s.VIP.Is6() {
				s.Untranslated = append(s.Untranslated, prefix)
			}
		}
	}
	return state
}

// TestExceptions: packets to the networks that a service has under untranslated stay as they
// are, whatever the kernel would say of their way and whatever ways are known, and a list
// that changes counts from the next packet on, without another program.
func TestExceptions(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := freshRig(t, hook)
		stayOnThisCPU(t)
		reply := func(vip netip.Addr, udp bool, subnet int, number byte) packetSpec {
			return natReply(r.model, vip, udp, clientOf(subnet, vip.Is6(), number))
		}
		program := r.datapath.Program()
		expect := func(subnet int, number byte, want string) {
			t.Helper()
			for _, vip := range vips {
				for _, udp := range []bool{false, true} {
					for _, flags := range []string{"SA", "A", "A", "FA", "R"} {
						p := reply(vip, udp, subnet, number)
						p.flags = flags
						for _, frame := range [][]byte{p.build(t), tagged(p.build(t), 0x8100)} {
							expectOutcome(t, r, frame, want)
						}
					}
				}
			}
		}
		expect(0, 7, "returned")
		for _, list := range [][]string{
			{"198.18.1.7/32", "2001:2::1:7/128"},
			{"198.18.1.0/29", "198.18.5.0/24", "2001:2::1:0/125", "2001:2::5:0/112"},
		} {
			r.applyAll(t, exceptOf(list...))
			expect(0, 7, untranslated)
			expect(0, 8, "returned")
		}
		expect(3, 7, untranslated) // unreachable
		expect(4, 7, "dropped_no_route")
		r.applyAll(t, exceptOf("0.0.0.0/0", "::/0"))
		expect(0, 8, untranslated)
		expect(6, 8, untranslated) // no route
		r.applyAll(t, exceptOf())
		expect(0, 7, "returned")
		expect(0, 8, "returned")
		if r.datapath.Program() != program {
			t.Error("the program was loaded anew for a list of exceptions")
		}
		if lists := r.datapath.shared.Prefixes.Lists; len(lists) > 0 {
			t.Errorf("lists that no service has: %v", lists)
		}
		if got := elementsOf(t, r.datapath.shared.Prefixes.Map); got != 0 {
			t.Errorf("%d prefixes that no service has", got)
		}
	})
}

// elementsOf counts the elements of a map.
func elementsOf(t *testing.T, m *ebpf.Map) (n int) {
	t.Helper()
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	all := m.Iterate()
	for all.Next(&key, &value) {
		n++
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestExceptionsAreOfTheirService: a packet that one service leaves alone is a reply of another one, of the same VIP
// and to the same client, one after the other.
func TestExceptionsAreOfTheirService(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		state := exceptOf("198.18.1.0/24", "2001:2::1:0/112")
		for i := range state.Services {
			if s := &state.Services[i]; s.Protocol == lb.TCP && s.Mode == lb.NAT {
				s.Untranslated = nil
			}
			if s := &state.Services[i]; s.Protocol == lb.TCP && s.Port == portDSCP {
				s.Mode, s.DSCP, s.Untranslated = lb.NAT, 0, []netip.Prefix{clientNetwork(s.VIP)}
			}
		}
		r := newRig(t, hook, state)
		stayOnThisCPU(t)
		for _, vip := range vips {
			client := clientOf(0, vip.Is6(), 9)
			other := r.model.service(vip, portDSCP, false).Backends[0]
			for range 3 {
				expectOutcome(t, r, natReply(r.model, vip, false, client).build(t), "returned")
				expectOutcome(t, r, natReply(r.model, vip, true, client).build(t), untranslated)
				expectOutcome(t, r, with(natReply(r.model, vip, false, client), func(p *packetSpec) {
					p.from, p.sport = other.Address, other.Port
				}).build(t), untranslated)
			}
		}
	})
}

// clientNetwork is the network of the clients on the near link.
func clientNetwork(vip netip.Addr) netip.Prefix {
	if vip.Is6() {
		return netip.MustParsePrefix(clientSubnets[0].six)
	}
	return netip.MustParsePrefix(clientSubnets[0].four)
}

// TestExceptionsOfFragmentsAndErrors: later fragments go where their first one went, and
// errors about a client's own packets to a backend are not its service's.
func TestExceptionsOfFragmentsAndErrors(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, exceptOf("198.18.1.0/24", "2001:2::1:0/112"))
		for _, vip := range vips {
			client := clientOf(0, vip.Is6(), 9)
			p := natReply(r.model, vip, true, client)
			p.payload = 300
			parts := threeParts(p.build(t), 77)
			expectOutcome(t, r, parts[0], untranslated)
			for _, part := range parts[1:] {
				expectOutcome(t, r, part, unserved)
			}
			// The client's packet to the backend itself, and a router's error about it.
			sent := p.answer().build(t)
			for _, from := range []netip.Addr{p.from, transitRouter(vip.Is6())} {
				expectOutcome(t, r, icmpError(t, from, sent, 100), untranslated)
			}
		}
	})
}

// TestExceptionsOfPreviousBackends: a backend that has left the configuration goes on to serve
// those who reach it by its own address.
func TestExceptionsOfPreviousBackends(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		state := exceptOf("198.18.1.0/24")
		r := newRig(t, hook, state)
		left := natReply(r.model, vip4, false, clientOf(0, false, 9))
		fewer := exceptOf("198.18.1.0/24")
		for i := range fewer.Services {
			s := &fewer.Services[i]
			if at := slices.IndexFunc(s.Backends, func(b lb.Backend) bool {
				return b.Address == left.from && b.Port == left.sport
			}); at >= 0 {
				s.Backends, s.Paths = slices.Delete(slices.Clone(s.Backends), at, at+1),
					slices.Delete(slices.Clone(s.Paths), at, at+1)
			}
		}
		expectOutcome(t, r, left.build(t), untranslated)
		r.apply(t, fewer)
		expectOutcome(t, r, left.build(t), untranslated)
		r.apply(t, exceptOf("198.18.4.0/24"))
		expectOutcome(t, r, left.build(t), "returned")
	})
}

// TestTraceOfExceptions: a packet that is left alone is not called a reply.
func TestTraceOfExceptions(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, exceptOf("198.18.1.0/24"))
		for subnet, want := range map[int]trace.Packet{
			0: {Outcome: untranslated, Reasons: []trace.Reason{trace.FromBackend}},
			1: {Outcome: "returned", Reasons: []trace.Reason{trace.Reply}},
			6: {Outcome: notForwarded, Reasons: []trace.Reason{trace.FromBackend}},
		} {
			p := natReply(r.model, vip4, false, clientOf(subnet, false, 7))
			got, err := r.datapath.Explain(trace.Question{Source: p.from, SourcePort: p.sport, Destination: p.at,
				DestinationPort: p.dport,
				Protocol:        lb.TCP, Flags: []string{"ack"}})
			if err != nil {
				t.Fatal(err)
			}
			if got.Outcome != want.Outcome || !slices.Equal(got.Reasons, want.Reasons) || got.Path != nil ||
				got.Backend == nil {
				t.Errorf("to %v: %s because %v, by %v, from %v; want %s because %v", p.at, got.Outcome, got.Reasons,
					got.Path, got.Backend, want.Outcome, want.Reasons)
			}
		}
	})
}

// TestClientsThroughTheBalancer: in namespaces, a client that the service has under
// untranslated reaches a backend by its own address through the balancer, and others the VIP.
func TestClientsThroughTheBalancer(t *testing.T) {
	for _, scheduler := range []lb.Scheduler{lb.Maglev, lb.RoundRobin} {
		oneHook(t, func(t *testing.T, hook lb.Hook) {
			s := modeService(vip4, portNAT, lb.TCP, scheduler)
			s.Backends, s.Paths = s.Backends[:1], s.Paths[:1]
			backend := netip.AddrPortFrom(s.Backends[0].Address, s.Backends[0].Port)
			balancer, host, client := testenv.Namespace(t), testenv.Namespace(t), testenv.Namespace(t)
			ours, theirs := testenv.Veth(t,
				testenv.End{Namespace: balancer, Name: "in", Addresses: prefixes("198.18.0.1/16")},
				testenv.End{Namespace: host, Name: "out",
					Addresses: []netip.Prefix{netip.PrefixFrom(backend.Addr(), 16)}})
			testenv.Veth(t, testenv.End{Namespace: balancer, Name: "front", Addresses: prefixes("192.0.2.1/24")},
				testenv.End{Namespace: client, Name: "out", Addresses: prefixes("192.0.2.7/24")})
			testenv.In(t, host, func() error {
				listener, err := net.Listen("tcp", backend.String())
				if err != nil {
					return err
				}
				t.Cleanup(func() { listener.Close() })
				go echo(listener)
				return defaultRoute("out", "198.18.0.1")
			})
			testenv.In(t, client, func() error { return defaultRoute("out", "192.0.2.1") })
			var d *Datapath
			testenv.In(t, balancer, func() (err error) {
				if err := testenv.WriteSysctl("net/ipv4/ip_forward", "1"); err != nil {
					return err
				}
				in, err := net.InterfaceByName("in")
				if err != nil {
					return err
				}
				s.Paths[0] = lb.Path{Interface: in.Index, MAC: theirs, Source: ours}
				interfaces := []string{"in"}
				if hook == lb.HookTC {
					interfaces = append(interfaces, "front")
				}
				if d, err = Open(Options{Interfaces: interfaces, Hook: hook, TableSize: testTableSize}); err != nil {
					return err
				}
				t.Cleanup(func() { d.Close() })
				return d.Apply(lb.State{Services: []lb.RoutedService{s}})
			})
			reach := func(who string, to netip.AddrPort) {
				t.Helper()
				testenv.In(t, client, func() error {
					if err := exchange("tcp", to); err != nil {
						return fmt.Errorf("%s at %v: %v", who, to, err)
					}
					return nil
				})
			}
			if hook == lb.HookTC {
				// By XDP the frame would be lost at a veth whose peer has no program.
				reach("the service", serviceAt(&s))
			}
			s.Untranslated = prefixes("192.0.2.7/32")
			testenv.In(t, balancer, func() error { return d.Apply(lb.State{Services: []lb.RoutedService{s}}) })
			reach("the backend itself", backend)
			s.Untranslated = prefixes("192.0.2.8/29")
			testenv.In(t, balancer, func() error { return d.Apply(lb.State{Services: []lb.RoutedService{s}}) })
			if hook == lb.HookTC {
				reach("the service", serviceAt(&s))
			}
			counters, err := d.Counters()
			if err != nil {
				t.Fatal(err)
			}
			for _, outcome := range counters.Outcomes {
				if outcome.Name == untranslated && outcome.Packets < 2 {
					t.Errorf("%d packets were %s", outcome.Packets, outcome.Name)
				}
			}
		})
	}
}

// prefixes reads some.
func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// defaultRoute sets the default route to a gateway.
func defaultRoute(device, gateway string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)})
}
