// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Entries of flows: their states, and when they expire.

// Whether a flow has proven itself, for tables.
const proven, unproven = true, false

// flowScript is a script of packets from both ends of a flow, and the entry that it leaves.
type flowScript struct {
	name, script string
	state        flowState
	proven       bool
	// active: the flow counts for its backend.
	active uint32
}

// playScripts plays conversations, each with a service by rr in the mode of a port.
func playScripts(t *testing.T, port uint16, all []flowScript) {
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			runScenario(t, modeService(vip4, port, lb.TCP, lb.RoundRobin), func(y *scenario) {
				y.play(1000, c.script)
				y.expectEntry(1000, c.state, c.proven)
				if got := y.r.model.standings[y.s.Key()].active; got != c.active {
					y.t.Errorf("%d flows are active, want %d", got, c.active)
				}
			})
		})
	}
}

// TestStatesOfFlows plays conversations and compares their entries.
func TestStatesOfFlows(t *testing.T) {
	playScripts(t, portNAT, []flowScript{
		{"a SYN", "S", stateOpening, unproven, 1},
		{"a SYN that is sent again", "S S S", stateOpening, unproven, 1},
		{"a handshake", "S <SA A", stateEstablished, proven, 1},
		{"a SYN in an established flow", "S A S", stateEstablished, proven, 1},
		{"data before the handshake's end", "S PA", stateEstablished, proven, 1},
		{"what the backend sends proves nothing", "S <SA <A <PA", stateOpening, unproven, 1},
		{"FIN of the client", "S A PA FA", stateClientFIN, proven, 0},
		{"FIN of the backend", "S A <FA", stateBackendFIN, proven, 0},
		{"FIN of both, the client first", "S A FA <FA", stateClosed, proven, 0},
		{"FIN of both, the backend first", "S A <FA FA", stateTimeWait, proven, 0},
		{"FIN of the client twice", "S A FA FA", stateClientFIN, proven, 0},
		{"FIN of the backend twice", "S A <FA <FA", stateBackendFIN, proven, 0},
		{"data after FIN", "S A FA PA <PA", stateClientFIN, proven, 0},
		{"RST of the client", "S A R", stateClosed, proven, 0},
		{"RST of the backend", "S A <R", stateClosed, proven, 0},
		{"data after RST", "S A R PA", stateClosed, proven, 0},
		{"a refused connection", "S <RA", stateRefused, unproven, 0},
		{"FIN before the handshake's end", "S FA A", stateClientFIN, unproven, 0},
		{"RST and FIN together", "S A FR", stateClosed, proven, 0},
		{"a port that is used again after FIN", "S A FA S+", stateOpening, unproven, 1},
		{"a port that is used again after RST", "S A R S+", stateOpening, unproven, 1},
		{"and once more", "S A R S+ A FA <FA S+ A", stateEstablished, proven, 1},
		{"a late FIN of the port's last connection", "S A FA S+ <FA", stateOpening, unproven, 1},
		{"a late RST of the port's last connection", "S A FA S+ <R", stateOpening, unproven, 1},
		{"and the new connection goes on", "S A FA S+ <FA <R <SA A", stateEstablished, proven, 1},
		{"and the new connection is refused", "S A FA S+ <R <RA", stateRefused, unproven, 0},
		{"a SYN with FIN", "SF", stateOpening, unproven, 1},
		{"the middle of an unknown flow", "A", stateFree, unproven, 0},
		{"a handshake's answer to nothing", "SA", stateFree, unproven, 0},
		{"the end of an unknown flow", "FA R", stateFree, unproven, 0},
	})
}

// TestResetBeforeProof: in full NAT a backend may answer the first SYN from a port for its last
// connection, held in TIME-WAIT, beside the SYN itself. The client resets the one and goes on by
// the other, and its flow with it.
func TestResetBeforeProof(t *testing.T) {
	playScripts(t, portFullNAT, []flowScript{
		{"of what a stray ACK belongs to", "S <A R", stateOpening, unproven, 1},
		{"and the SYN is answered as well", "S <A R <SA A", stateEstablished, proven, 1},
		{"and the SYN is sent again", "S <A R S <SA A", stateEstablished, proven, 1},
		{"of the connection itself, before it is proven", "S <SA R", stateOpening, unproven, 1},
		{"of the connection once it is proven", "S <SA A R", stateClosed, proven, 0},
	})
}

// TestLateEndOfThePoolPort: a pool port has gone to a new flow while a FIN or RST of its last connection was on the
// way. It must not end the newcomer, whose port would be given away. A refusal has the flag ACK, which that RST lacks
// (RFC 9293 section 3.10.7.1).
func TestLateEndOfThePoolPort(t *testing.T) {
	playScripts(t, portFullNAT, []flowScript{
		{"FIN", "S <FA", stateOpening, unproven, 1},
		{"RST", "S <R", stateOpening, unproven, 1},
		{"and the connection opens", "S <FA <R <SA A", stateEstablished, proven, 1},
		{"and the connection ends", "S <FA <SA A <FA", stateBackendFIN, proven, 0},
		{"and the SYN is refused", "S <R <RA", stateRefused, unproven, 0},
	})
}

// expectEntry compares the entry of a flow.
func (y *scenario) expectEntry(port int, state flowState, proven bool) {
	y.t.Helper()
	e := y.entry(port)
	switch {
	case e == nil && state != stateFree:
		y.t.Errorf("the flow of port %d is not remembered, want state %d", port, state)
	case e != nil && (e.state != state || (e.at == y.r.model.flows) != proven):
		y.t.Errorf("the flow of port %d is in state %d (proven: %v), want %d (%v)", port, e.state,
			e.at == y.r.model.flows, state, proven)
	}
}

// TestStatesOfDatagrams: the second one proves that there is more than one.
func TestStatesOfDatagrams(t *testing.T) {
	runScenario(t, modeService(vip6, portNAT, lb.UDP, lb.RoundRobin), func(y *scenario) {
		first := y.to(9, "")
		y.expectEntry(9, stateFirst, false)
		if again := y.to(9, ""); again != first {
			y.t.Errorf("the second datagram goes to backend %d, the first went to %d", again, first)
		}
		y.expectEntry(9, stateUDP, true)
		y.reply(9, "")
		y.expectEntry(9, stateUDP, true)
	})
}

// TestForgotten: each flow is forgotten after the silence that its state allows,
// and not before.
func TestForgotten(t *testing.T) {
	for _, test := range []struct {
		name, script string
		silence      time.Duration
	}{
		{"opening", "S", testTimeouts.Opening},
		{"established", "S A", testTimeouts.Established},
		{"FIN of the client", "S A FA", testTimeouts.Fin},
		{"FIN of the backend", "S A <FA", testTimeouts.Fin},
		{"closed", "S A R", testTimeouts.Closed},
	} {
		t.Run(test.name, func(t *testing.T) {
			runScenario(t, modeService(vip4, portNAT, lb.TCP, lb.RoundRobin), func(y *scenario) {
				y.play(1, test.script)
				y.advance(test.silence - 2*time.Second)
				if y.entry(1) == nil {
					y.t.Fatal("it is forgotten too soon")
				}
				y.advance(4 * time.Second)
				if problem := y.r.compareAll(y.t); y.entry(1) != nil || problem != "" {
					y.t.Errorf("it is not forgotten: %s", problem)
				}
			})
		})
	}
	t.Run("a flow that goes on", func(t *testing.T) {
		runScenario(t, modeService(vip4, portNAT, lb.TCP, lb.RoundRobin), func(y *scenario) {
			backend := y.to(1, "S")
			for range 5 {
				if got := y.to(1, "A"); got != backend {
					y.t.Errorf("it goes to backend %d, and began with %d", got, backend)
				}
				y.advance(testTimeouts.Established - time.Minute)
			}
		})
	})
	t.Run("datagrams", func(t *testing.T) {
		runScenario(t, modeService(vip4, portNAT, lb.UDP, lb.RoundRobin), func(y *scenario) {
			y.play(1, "-")
			y.play(2, "- -")
			y.advance(testTimeouts.First + time.Second)
			if y.entry(1) != nil || y.entry(2) == nil {
				y.t.Error("want the first to be forgotten, and the second not")
			}
			y.advance(testTimeouts.UDP)
			if y.entry(2) != nil {
				y.t.Error("the second is not forgotten")
			}
		})
	})
}

// TestKnownFlowsStay changes the inputs of the choice for new flows: known flows stay where they are.
func TestKnownFlowsStay(t *testing.T) {
	for _, scheduler := range []lb.Scheduler{lb.RoundRobin, lb.LeastConnections, lb.TwoChoices} {
		t.Run(string(scheduler), func(t *testing.T) {
			runScenario(t, testService(vip4, 80, lb.TCP, scheduler, 4), func(y *scenario) {
				at := map[int]int{}
				for port := 1; port <= 40; port++ {
					at[port] = y.to(port, "S")
					y.to(port, "A")
				}
				for name, how := range map[string]func(*lb.RoutedService){
					"unhealthy": func(s *lb.RoutedService) {
						s.Observed = s.Observed.With(1, lb.Observed{Unhealthy: "answers 503"})
					},
					"draining":          func(s *lb.RoutedService) { s.Backends[1].Draining = true },
					"weight 0":          func(s *lb.RoutedService) { s.Backends[2].Weight = 0 },
					"another scheduler": func(s *lb.RoutedService) { s.Scheduler = lb.Failover; bound(s, 1000, 0) },
					"other bounds":      func(s *lb.RoutedService) { bound(s, 1, 1) },
					"a cap":             func(s *lb.RoutedService) { s.Limits.Connections = 1 },
					"another mode":      func(s *lb.RoutedService) { s.Mode, s.DSCP = lb.DSCP, 5 },
				} {
					y.change(how)
					for port, backend := range at {
						if v := y.expect(port, "PA", "forwarded"); indexOfBackend(&y.s, v.backend) != backend ||
							v.opens {
							y.t.Fatalf("%s: the flow of port %d goes to %v, and began with backend %d", name, port,
								v.backend, backend)
						}
					}
				}
			})
		})
	}
}

// TestBackendOutOfSight: packets of its flows are dropped while its MAC address is unknown, though those that end a
// flow are noted, and the flows go on after.
func TestBackendOutOfSight(t *testing.T) {
	runScenario(t, testService(vip4, 80, lb.TCP, lb.RoundRobin, 3), func(y *scenario) {
		backend := y.to(1, "S")
		y.to(1, "A")
		y.losePath(backend)
		y.expect(1, "A", backendDown)
		y.expectEntry(1, stateEstablished, true)
		y.expect(1, "FA", backendDown)
		y.expectEntry(1, stateClientFIN, true)
		y.restorePath(backend)
		if got := y.to(1, "A"); got != backend {
			y.t.Errorf("the flow goes to backend %d, and began with %d", got, backend)
		}
	})
}

// TestFlowsOfABackendThatLeft begin again with another, or go by the hash.
func TestFlowsOfABackendThatLeft(t *testing.T) {
	runScenario(t, testService(vip4, 80, lb.TCP, lb.RoundRobin, 3), func(y *scenario) {
		y.play(1, "S A")
		y.play(2, "S A")
		left := y.entry(1).backend
		before := y.s
		y.change(func(s *lb.RoutedService) { *s = withoutBackend(*s, indexOfBackend(s, left)) })
		if v := y.expect(1, "S", "forwarded"); !v.opens || v.backend == left {
			y.t.Errorf("a SYN: opens: %v, to %v", v.opens, v.backend)
		}
		y.change(func(s *lb.RoutedService) { *s = before })
		y.to(1, "A")
		y.to(2, "A")
		y.to(3, "A")
	})
}

// TestFloodOfSYNs fills the table of flows that are not proven: a flow that is
// stays, and new ones go by their hash, or take the place of others where flows must be
// counted.
func TestFloodOfSYNs(t *testing.T) {
	tiny := func(_ lb.Hook, o *Options) { o.FlowLimit, o.UnprovenLimit = 50, 50 }
	for _, test := range []struct {
		name string
		with func(*lb.RoutedService)
		// known says that a flow has an entry in any case.
		known bool
	}{
		{"rr", func(*lb.RoutedService) {}, false},
		{"rr with a cap", func(s *lb.RoutedService) { s.Limits.Connections = 1 << 20 }, true},
		{"rr with bounds", func(s *lb.RoutedService) { bound(s, 1<<20, 0) }, true},
		{"rr persistent", func(s *lb.RoutedService) { persist(s, 32, 128) }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)
			test.with(&s)
			runScenarioWith(t, tiny, s, func(y *scenario) {
				backend := y.to(60000, "S")
				y.to(60000, "A")
				for port := 1; port <= 600; port++ {
					y.send(port, "S")
				}
				known := 0
				for port := 1; port <= 600; port++ {
					if y.entry(port) != nil {
						known++
					}
				}
				if known < 50 || known > 80 {
					y.t.Errorf("%d of 600 are remembered in a table of 10 buckets", known)
				}
				y.expect(601, "S", "forwarded")
				if got := y.entry(601) != nil; got != test.known {
					y.t.Errorf("one more is remembered: %v", got)
				}
				if got := y.to(60000, "PA"); got != backend {
					y.t.Errorf("the established flow goes to backend %d, and began with %d", got, backend)
				}
				y.expectEntry(60000, stateEstablished, true)
				y.advance(testTimeouts.Opening + time.Second)
				if v := y.expect(601, "S", "forwarded"); !v.opens || y.entry(601) == nil {
					y.t.Error("after the flood, a flow is not remembered")
				}
			})
		})
	}
}

// TestProvenFlowsStay where there is no room for them among the proven, and no new flow that
// must be remembered takes the place of one.
func TestProvenFlowsStay(t *testing.T) {
	tiny := func(_ lb.Hook, o *Options) { o.FlowLimit, o.UnprovenLimit = 5, 50 }
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)
	s.Limits.Connections = 1 << 20
	runScenarioWith(t, tiny, s, func(y *scenario) {
		at := map[int]int{}
		for port := 1; port <= 300; port++ {
			if v := y.send(port, "S"); v.outcome == "forwarded" {
				at[port] = y.to(port, "A")
			}
		}
		if len(at) < 60 || len(at) > 88 {
			y.t.Errorf("%d of 300 flows have proven themselves in tables of 10 buckets and 1", len(at))
		}
		y.expect(301, "S", noRoomForFlow)
		for port, backend := range at {
			if got := y.to(port, "A"); got != backend || y.entry(port) == nil {
				y.t.Errorf("the flow of port %d goes to backend %d, and began with %d", port, got, backend)
			}
		}
	})
}

// TestNoRoomForProvenFlows: they stay where they are, and go on.
func TestNoRoomForProvenFlows(t *testing.T) {
	tiny := func(_ lb.Hook, o *Options) { o.FlowLimit, o.UnprovenLimit = 10, 1000 }
	runScenarioWith(t, tiny, testService(vip6, 80, lb.TCP, lb.RoundRobin, 3), func(y *scenario) {
		at := map[int]int{}
		proven := 0
		for port := 1; port <= 60; port++ {
			at[port] = y.to(port, "S")
			y.to(port, "A")
			if y.entry(port).at == y.r.model.flows {
				proven++
			}
		}
		if proven > 16 || proven < 10 {
			y.t.Errorf("%d of 60 flows are in a table of 2 buckets", proven)
		}
		for port, backend := range at {
			if got := y.to(port, "A"); got != backend || y.entry(port).state != stateEstablished {
				y.t.Errorf("the flow of port %d goes to backend %d, and began with %d", port, got, backend)
			}
		}
	})
}

// TestServicesThatBeginToRemember: and those that end it, while flows go on.
func TestServicesThatBeginToRemember(t *testing.T) {
	runScenario(t, testService(vip4, 80, lb.TCP, lb.RoundRobin, 4), func(y *scenario) {
		at := map[int]int{}
		for port := 1; port <= 40; port++ {
			at[port] = y.to(port, "S")
			y.to(port, "A")
		}
		expect := func(what string) {
			y.t.Helper()
			for port, backend := range at {
				if got := y.to(port, "A"); got != backend {
					y.t.Fatalf("%s: the flow of port %d goes to backend %d, and began with %d", what, port,
						got, backend)
				}
			}
		}
		y.change(func(s *lb.RoutedService) { s.Scheduler = lb.Maglev })
		expect("without memory")
		if y.active(0) != 0 {
			y.t.Errorf("%d flows are counted that will never be counted off", y.active(0))
		}
		y.play(100, "S A")
		if y.entry(100) != nil {
			y.t.Error("a flow of a steady table is remembered")
		}
		y.change(func(s *lb.RoutedService) { s.Scheduler = lb.LeastConnections })
		expect("with memory again")
		if y.active(0) != 10 {
			y.t.Errorf("%d flows are counted, want 10", y.active(0))
		}
	})
}
