// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// Packets that cannot be sent on: dropped, or answered, by the service's setting.

// withAnswers makes services answer packets that they cannot send on.
func withAnswers(state lb.State) lb.State {
	state.Services = slices.Clone(state.Services)
	for i := range state.Services {
		state.Services[i].Limits.Refuse = lb.RefuseByReset
	}
	return state
}

// withoutPaths takes the ways to all backends away.
func withoutPaths(state lb.State) lb.State {
	state.Services = slices.Clone(state.Services)
	for i := range state.Services {
		state.Services[i].Paths = nil
	}
	return state
}

// answered is the outcome instead of this one where the packet is answered.
func answered(outcome string, udp bool) string {
	by := "reset_"
	if udp {
		by = "unreachable_"
	}
	return by + strings.TrimPrefix(outcome, "dropped_")
}

// TestNoBackendIsAnswered: by each mode, of both families, and by no packet that must not be
// answered; where a service says drop, nothing is.
func TestNoBackendIsAnswered(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, withoutPaths(withAnswers(allModes())))
		try := func(s *lb.RoutedService, want func(flags string) string) {
			base := modePacket(s.VIP, s.Port, s.Protocol == lb.UDP)
			for _, flags := range []string{"S", "A", "PA", "FA", "F", "SA", "SF", "", "R", "RA"} {
				base.flags = flags
				for _, payload := range []int{1, 1400} {
					base.payload = payload
					frame := base.build(t)
					frames := [][]byte{frame}
					if r.model.tags {
						frames = append(frames, tagged(frame, 0x8100))
					}
					if s.VIP.Is6() {
						frames = append(frames, ipv6WithExtensions(frame, [2]byte{0, 1}, [2]byte{60, 2}))
					}
					for _, frame := range frames {
						// Counters are looked at once: that takes longer than the packets.
						if v, problem := r.feed(t, frame); v.outcome != want(flags) || problem != "" {
							t.Errorf("%s, %q: the model says %s, the test %s; %s", s.Name, flags, v.outcome,
								want(flags), problem)
						}
					}
				}
				if s.Protocol == lb.UDP {
					break
				}
			}
		}
		for _, answer := range []bool{true, false} {
			for i := range r.model.state.Services {
				s := &r.model.state.Services[i]
				try(s, func(flags string) string {
					outcome := noBackend
					if s.Mode == lb.FullNAT && s.Protocol == lb.TCP && !slices.Contains([]string{"S", "SF"}, flags) {
						outcome = noFlow
					}
					if !answer || strings.Contains(flags, "R") {
						return outcome
					}
					return answered(outcome, s.Protocol == lb.UDP)
				})
			}
			r.apply(t, withoutPaths(allModes()))
		}
	})
}

// TestRefusalsThatAreNotAnswered: no answer goes to multicast addresses or to an address that is no host's, nor about
// fragments, ICMP errors, and truncated packets.
func TestRefusalsThatAreNotAnswered(t *testing.T) {
	four, datagram, six := modePacket(vip4, portIPIP, false), modePacket(vip4, portIPIP, true),
		modePacket(vip6, portGUE, true)
	from := func(p packetSpec, text string) []byte {
		p.from = netip.MustParseAddr(text)
		return p.build(t)
	}
	cut := four.build(t)
	cases := []packetCase{
		{"answered", four.build(t), "reset_no_backend"},
		{"answered, UDP", datagram.build(t), "unreachable_no_backend"},
		{"with a wrong checksum", patched(datagram.build(t), 40, 1, 2), "unreachable_no_backend"},
		{"longer than the frame", cut[:len(cut)-1], malformed},
		{"first fragment", fragment(four.build(t), 31, 0, 64), noBackend},
		{"what follows it", fragment(four.build(t), 31, 64, 120), "dropped_fragment"},
		{"first fragment, UDP", fragment(datagram.build(t), 32, 0, 64), noBackend},
		{"first fragment, IPv6", fragment(six.build(t), 33, 0, 64), noBackend},
		{"an error", icmpError(t, transitRouter(false), datagram.answer().build(t), 100), noBackend},
		{"an error, IPv6", icmpError(t, transitRouter(true), six.answer().build(t), 100), noBackend},
	}
	for _, text := range []string{"224.0.0.1", "239.255.255.255", "0.0.0.0", "255.255.255.255", "127.0.0.1"} {
		cases = append(cases, packetCase{"from " + text, from(four, text), noBackend},
			packetCase{"UDP from " + text, from(datagram, text), noBackend})
	}
	for _, text := range []string{"::", "::1", "ff02::1"} {
		cases = append(cases, packetCase{"UDP from " + text, from(six, text), noBackend})
	}
	runCases(t, func(t *testing.T, hook lb.Hook) *rig {
		return newRig(t, hook,
			withoutPaths(withAnswers(allModes())))
	}, cases)
}

// TestUnreachableRate bounds the ICMP errors, and resets are not among them.
func TestUnreachableRate(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		options := testOptions(hook)
		options.TooBigRate = 3
		r := newRigWith(t, options, withoutPaths(withAnswers(allModes())))
		count := map[uint32]int{}
		for range 400 {
			action, _ := r.run(t, modePacket(vip4, portNAT, true).build(t))
			count[action]++
		}
		// The limit is per CPU, and the test may move.
		if a := actions[hook]; count[a.transmit] == 0 || count[a.transmit] > 200 || count[a.transmit]+
			count[a.drop] != 400 {
			t.Errorf("400 datagrams, 3 answers a second: %v", count)
		}
		for range 400 {
			if action, _ := r.run(t, modePacket(vip4, portNAT, false).build(t)); action != actions[hook].transmit {
				t.Fatalf("a segment: action %d", action)
			}
		}
	})
}

// TestFlowThatCannotGoOnIsAnswered: its backend is away.
func TestFlowThatCannotGoOnIsAnswered(t *testing.T) {
	for _, mode := range []uint16{portIPIP, portNAT, portFullNAT} {
		oneHook(t, func(t *testing.T, hook lb.Hook) {
			state := withAnswers(lb.State{Services: []lb.RoutedService{modeService(vip4, mode, lb.TCP, lb.RoundRobin)},
				Pool: allModes().Pool})
			r := newRig(t, hook, state)
			p := modePacket(vip4, mode, false)
			r.check(t, p.build(t))
			p.flags = "A"
			expectOutcome(t, r, p.build(t), "forwarded")
			r.apply(t, withoutPaths(state))
			for flags, want := range map[string]string{"A": "reset_backend_down", "PA": "reset_backend_down",
				"R": backendDown} {
				p.flags = flags
				expectOutcome(t, r, p.build(t), want)
			}
		})
	}
}

// TestIdleFullNATIsAnswered: both ends of a connection that is forgotten learn of it by the answer to their next
// packet, if a service of full NAT answers; the answer has acceptable sequence numbers.
func TestIdleFullNATIsAnswered(t *testing.T) {
	for _, vip := range vips {
		oneHook(t, func(t *testing.T, hook lb.Hook) {
			silent := modeService(vip, portFullNATAlike, lb.TCP, lb.Maglev)
			state := lb.State{Services: []lb.RoutedService{silent,
				modeService(vip, portFullNAT, lb.TCP, lb.RoundRobin)}, Pool: allModes().Pool}
			r := newRig(t, hook, state)
			f := openFlow(t, r, modePacket(vip, portFullNAT, false))
			f.send(t, "A")
			if v := f.answer(t, "PA"); v.outcome != "returned" {
				t.Errorf("a reply: %s", v.outcome)
			}
			r.advance(t, testTimeouts.Established+time.Minute)
			for _, want := range []struct{ client, backend string }{{noFlow, noFlow},
				{"reset_no_flow", "reset_no_flow"}} {
				if v := f.send(t, "PA"); v.outcome != want.client {
					t.Errorf("a client's later data: %s, want %s", v.outcome, want.client)
				}
				if v := f.answer(t, "PA"); v.outcome != want.backend {
					t.Errorf("a backend's later data: %s, want %s", v.outcome, want.backend)
				}
				if v := f.answer(t, "R"); v.outcome != noFlow {
					t.Errorf("a backend's reset: %s", v.outcome)
				}
				// By a reload, without a new program.
				r.apply(t, lb.State{Services: []lb.RoutedService{silent, withAnswers(state).Services[1]},
					Pool: state.Pool})
			}
			if v := r.check(t, with(f.reply(""), func(p *packetSpec) {
				p.udp = true
			}).build(t)); v.outcome != "unreachable_no_flow" {
				t.Errorf("a datagram to the pool: %s", v.outcome)
			}
			if v := r.check(t, modePacket(vip, portFullNATAlike, false).build(t)); v.outcome != "forwarded" {
				t.Errorf("a service that drops: %s", v.outcome)
			}
		})
	}
}

// TestUsedUpIsAnswered: there is no port of the pool, or no room in the table.
func TestUsedUpIsAnswered(t *testing.T) {
	for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
		oneHook(t, func(t *testing.T, hook lb.Hook) {
			s := modeService(vip4, portFullNAT, protocol, lb.Maglev)
			addBackends(&s, 1, portFullNAT+natPortOffset, false)
			state := withAnswers(lb.State{Services: []lb.RoutedService{s}, Pool: lb.Pool{Addresses: []netip.Addr{pool4},
				FirstPort: 20000, LastPort: 20000}})
			r := newRig(t, hook, state)
			p := modePacket(vip4, portFullNAT, protocol == lb.UDP)
			openFlow(t, r, p)
			p.flags = "A"
			r.check(t, p.build(t))
			r.model.mayExhaust = []string{answered(noPort, protocol == lb.UDP)}
			p.flags = "S"
			p.sport++
			expectOutcome(t, r, p.build(t), answered(noPort, protocol == lb.UDP))
		})
		tiny := func(_ lb.Hook, o *Options) { o.FlowLimit, o.UnprovenLimit = 5, 50 }
		s := testService(vip4, 80, protocol, lb.RoundRobin, 3)
		s.Limits = lb.Limits{Connections: 1 << 20, Refuse: lb.RefuseByReset}
		runScenarioWith(t, tiny, s, func(y *scenario) {
			ends := map[string]int{}
			for port := 1; port <= 300; port++ {
				v := y.send(port, "S")
				if ends[v.outcome]++; v.outcome == "forwarded" {
					y.to(port, "A")
				}
			}
			if want := answered(noRoomForFlow, protocol == lb.UDP); ends["forwarded"]+ends[want] != 300 ||
				ends[want] == 0 {
				y.t.Errorf("300 flows into tables of 10 buckets and 1: %v", ends)
			}
		})
	}
}

// TestRefusalReachesItsClient: a client's kernel accepts the answers of a service without backends, to new connections
// and to datagrams.
func TestRefusalReachesItsClient(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		balancer, client := testenv.Namespace(t), testenv.Namespace(t)
		mac, _ := testenv.Veth(t, testenv.End{Namespace: balancer, Name: "in"},
			testenv.End{Namespace: client, Name: "out",
				Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.77/24"),
					netip.MustParsePrefix("2001:2::77/64")}})
		testenv.In(t, client, func() error { return addClientHost(t, "out", mac) })
		testenv.In(t, balancer, func() error {
			d, err := Open(Options{Interfaces: []string{"in"}, Hook: hook, TableSize: testTableSize})
			if err != nil {
				return err
			}
			t.Cleanup(func() { d.Close() })
			var state lb.State
			for _, vip := range vips {
				state.Services = append(state.Services, testService(vip, 80, lb.TCP, lb.Maglev, 2),
					testService(vip, 53, lb.UDP, lb.RoundRobin, 2))
			}
			return d.Apply(withoutPaths(withAnswers(state)))
		})
		for _, offload := range []bool{true, false} {
			testenv.In(t, client, func() error { return checksumOffload("out", offload) })
			for _, vip := range vips {
				testenv.In(t, client, func() error {
					for network, port := range map[string]uint16{"tcp": 80, "udp": 53} {
						if err := exchange(network, netip.AddrPortFrom(vip, port)); !errors.Is(err, unix.ECONNREFUSED) {
							return fmt.Errorf("%s to %v, checksums by the device: %v: %v, want a refusal", network, vip,
								offload, err)
						}
					}
					return nil
				})
			}
		}
	})
}

// exchange connects, sends, and waits for an answer.
func exchange(network string, to netip.AddrPort) error {
	dialer := net.Dialer{Timeout: testenv.WaitLimit}
	connection, err := dialer.Dial(network, to.String())
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(testenv.WaitLimit)); err != nil {
		return err
	}
	if _, err := connection.Write(make([]byte, 100)); err != nil {
		return err
	}
	_, err = connection.Read(make([]byte, 100))
	return err
}
