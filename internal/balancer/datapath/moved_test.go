// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Services without flow entries, and the entries that they get while backends change.

// TestSteadyServicesRememberNothing: not even where flows are of all kinds.
func TestSteadyServicesRememberNothing(t *testing.T) {
	runScenario(t, testService(vip4, 80, lb.TCP, lb.Maglev, 4), func(y *scenario) {
		for port := 1; port < 50; port++ {
			y.play(port, "S A PA FA R")
		}
		y.expectNothing()
	})
}

// expectNothing says that no flow is remembered.
func (y *scenario) expectNothing() {
	y.t.Helper()
	if n := len(y.r.model.flows.known) + len(y.r.model.newcomers.known); n != 0 {
		y.t.Errorf("%d flows are remembered", n)
	}
}

// TestMovedSlots: after a backend begins to drain, each of its slots has another owner.
func TestMovedSlots(t *testing.T) {
	const old = 1
	for _, test := range []struct {
		name   string
		script string
		// before: the last packet goes to the backend of before.
		before bool
		state  flowState
		proven bool
	}{
		{"a SYN is remembered towards the new backend", "S", false, stateOpening, false},
		{"its flow is proven like any other", "S A", false, stateEstablished, true},
		{"the middle of a flow goes to the old backend, and is remembered", "A", true, stateSeen, false},
		{"the next packet proves that it is one", "A A", true, stateEstablished, true},
		{"a SYN after the middle of a flow is another's, and the old backend takes none", "A S+", false,
			stateOpening, false},
		{"a SYN after the flow's end moves the port", "A FA S+", false, stateOpening, false},
		{"the end of a flow is like its middle", "FA", true, stateSeen, false},
		{"an RST is not remembered", "R", true, stateFree, false},
		{"nor one with ACK", "RA", true, stateFree, false},
		{"a handshake's answer is the middle of a flow", "SA", true, stateSeen, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			runScenario(t, testService(vip4, 80, lb.TCP, lb.Maglev, 5), func(y *scenario) {
				port := y.portsTo(old, 1)[0]
				y.drain(old)
				v := y.play(port, test.script)
				if got := indexOfBackend(&y.s, v.backend); v.outcome != "forwarded" || got == old != test.before {
					y.t.Errorf("%s to backend %d, and backend %d drains", v.outcome, got, old)
				}
				y.expectEntry(port, test.state, test.proven)
				y.expectUncounted()
			})
		})
	}
	t.Run("datagrams go to the old backend, and are remembered", func(t *testing.T) {
		runScenario(t, testService(vip6, 53, lb.UDP, lb.Maglev, 5), func(y *scenario) {
			port := y.portsTo(old, 1)[0]
			y.drain(old)
			if got := y.to(port, ""); got != old {
				y.t.Errorf("the first to backend %d, and backend %d drains", got, old)
			}
			y.expectEntry(port, stateFirst, false)
			y.to(port, "")
			y.expectEntry(port, stateUDP, true)
		})
	})
	t.Run("slots that have not moved remember nothing", func(t *testing.T) {
		runScenario(t, testService(vip4, 80, lb.TCP, lb.Maglev, 5), func(y *scenario) {
			ports := y.portsTo(2, 20)
			y.drain(old)
			moved := 0
			for _, port := range ports {
				if y.play(port, "S A"); y.entry(port) != nil {
					moved++
				}
			}
			if moved > 2 {
				y.t.Errorf("%d of 20 flows of other backends are remembered", moved)
			}
		})
	})
}

// expectUncounted: a service without limits counts no flows.
func (y *scenario) expectUncounted() {
	y.t.Helper()
	for i := range y.s.Backends {
		if y.active(i) != 0 {
			y.t.Errorf("backend %d counts %d flows", i, y.active(i))
		}
	}
}

// TestMovedSlotsOfABackendThatLeft: only the new backend can have its flows. One that has a packet meanwhile began
// there by another balancer, or is reset there.
func TestMovedSlotsOfABackendThatLeft(t *testing.T) {
	runScenario(t, testService(vip4, 80, lb.TCP, lb.Maglev, 5), func(y *scenario) {
		ports := y.portsTo(1, 20)
		before := y.s
		y.change(func(s *lb.RoutedService) { *s = withoutBackend(*s, 1) })
		at := map[int]lb.BackendKey{}
		for _, port := range ports[:10] {
			y.play(port, "R")
		}
		y.expectNothing()
		for _, port := range ports[:10] {
			at[port] = y.expect(port, "A", "forwarded").backend
			y.expectEntry(port, stateSeen, false)
		}
		// It comes back: its slots are those that it had before.
		y.change(func(s *lb.RoutedService) { *s = before })
		for _, port := range ports[:10] {
			if got := y.expect(port, "A", "forwarded").backend; got != at[port] {
				y.t.Errorf("port %d goes to %v after backend 1 came back, and went to %v", port, got, at[port])
			}
		}
		for _, port := range ports[10:] {
			if got := y.to(port, "A"); got != 1 {
				y.t.Errorf("port %d goes to backend %d after backend 1 came back", port, got)
			}
		}
	})
}

// TestBeginnersInAnOrphanedSlot: a flow that begins in the slot of a backend that is away
// stays where it began, when the slot moves again.
func TestBeginnersInAnOrphanedSlot(t *testing.T) {
	for name, away := range map[string]struct {
		goes, comes func(*scenario, lb.RoutedService)
	}{
		"out of sight": {func(y *scenario, _ lb.RoutedService) { y.losePath(1) }, func(y *scenario, _ lb.RoutedService) {
			y.restorePath(1)
		}},
		"left": {func(y *scenario, s lb.RoutedService) {
			y.change(func(now *lb.RoutedService) { *now = withoutBackend(s, 1) })
		},
			func(y *scenario, s lb.RoutedService) { y.change(func(now *lb.RoutedService) { *now = s }) }},
	} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			t.Run(name+", "+protocol.String(), func(t *testing.T) {
				runScenario(t, testService(vip4, 80, protocol, lb.Maglev, 5), func(y *scenario) {
					ports, before, at := y.portsTo(1, 30), y.s, map[int]lb.BackendKey{}
					away.goes(y, before)
					for _, port := range ports {
						at[port] = y.expect(port, "S", "forwarded").backend
						if y.entry(port) == nil {
							y.t.Fatalf("port %d is not remembered", port)
						}
					}
					expect := func(what string) {
						y.t.Helper()
						for port, backend := range at {
							if v := y.expect(port, "A", "forwarded"); v.backend != backend {
								y.t.Errorf("%s: the flow of port %d goes to %s, and began with %s", what, port,
									v.backend.Address, backend.Address)
							}
						}
					}
					expect("at first")
					// The slots move again, for another backend drains.
					y.drain(indexOfBackend(&y.s, backendKeyOf(&before, 3)))
					expect("after another change")
					away.comes(y, before)
					expect("after it came back")
				})
			})
		}
	}
}

// TestChangesSettle: after the window the new table is the only one; flows that are
// remembered stay.
func TestChangesSettle(t *testing.T) {
	runScenario(t, testService(vip4, 80, lb.TCP, lb.Maglev, 5), func(y *scenario) {
		ports := y.portsTo(1, 3)
		y.drain(1)
		y.play(ports[0], "A A")
		y.play(ports[1], "S A")
		for range 4 {
			y.advance(4 * time.Minute)
			y.play(ports[0], "A")
			y.play(ports[1], "A")
		}
		if got := y.to(ports[0], "A"); got != 1 {
			y.t.Errorf("the remembered flow goes to backend %d now", got)
		}
		if got := y.to(ports[2], "A"); got == 1 {
			y.t.Error("a flow that was silent for a quarter of an hour still goes to the old backend")
		}
		if y.entry(ports[2]) != nil {
			y.t.Error("a settled slot remembers a new flow")
		}
		y.play(ports[0], "FA")
		y.play(ports[1], "FA")
		y.advance(testTimeouts.Fin + time.Second)
		y.advance(time.Second)
		y.advance(time.Second)
		y.expectNothing()
		for _, port := range ports {
			y.play(port, "S A")
		}
		y.expectNothing()
	})
}

// TestFlowsOfTheSchedulerBefore: a service that remembers every flow becomes one that goes by
// the hash, while all of its backends drain. Its flows stay where they are, after the window
// and when the backends take flows again, too.
func TestFlowsOfTheSchedulerBefore(t *testing.T) {
	for _, scheduler := range []lb.Scheduler{lb.Maglev, lb.Failover} {
		t.Run(string(scheduler), func(t *testing.T) {
			service := testService(vip4, 80, lb.TCP, lb.RoundRobin, 4)
			service.Transition.Window = time.Minute
			runScenario(t, service, func(y *scenario) {
				at := map[int]int{}
				for port := 1; port <= 12; port++ {
					v := y.play(port, "S A A")
					at[port] = indexOfBackend(&y.s, v.backend)
				}
				stay := func(when string) {
					y.t.Helper()
					for port, backend := range at {
						if got := y.to(port, "A"); got != backend {
							y.t.Errorf("%s, port %d goes to backend %d, and was at backend %d", when, port,
								got, backend)
						}
					}
				}
				y.change(func(s *lb.RoutedService) {
					for i := range s.Backends {
						s.Backends[i].Draining = true
					}
				})
				y.change(func(s *lb.RoutedService) { s.Scheduler = scheduler })
				stay("while all drain")
				for range 4 {
					y.advance(2 * time.Minute)
				}
				stay("after the window")
				y.change(func(s *lb.RoutedService) {
					for i := range s.Backends {
						s.Backends[i].Draining = false
					}
				})
				stay("with all back")
				y.advance(5 * time.Minute)
				stay("after another window")
			})
		})
	}
}

// TestFlowsFromBeforeItRemembered: a service that goes by the hash begins to remember its flows, and later one of its
// backends drains. A flow that sends within the window stays at its backend after it, and counts there.
func TestFlowsFromBeforeItRemembered(t *testing.T) {
	for _, scheduler := range []lb.Scheduler{lb.LeastConnections, lb.Maglev} {
		t.Run(string(scheduler), func(t *testing.T) {
			runScenario(t, testService(vip4, 80, lb.TCP, lb.Maglev, 4), func(y *scenario) {
				at := map[int]int{}
				for port := 1; port <= 40; port++ {
					v := y.play(port, "S A")
					at[port] = indexOfBackend(&y.s, v.backend)
				}
				y.change(func(s *lb.RoutedService) { s.Scheduler, s.Limits.Connections = scheduler, 1000 })
				y.drain(2)
				y.advance(time.Hour)
				y.change(func(s *lb.RoutedService) { s.Backends[2].Draining = false })
				y.advance(time.Hour)
				unknown := y.portsTo(1, 60)[58:]
				y.drain(1)
				for _, port := range unknown {
					y.play(port, "R")
					y.expectEntry(port, stateFree, false)
				}
				for round := range 4 {
					y.advance(4 * time.Minute)
					for port, backend := range at {
						y.play(port, "A")
						if got := y.to(port, "A"); got != backend {
							y.t.Fatalf("after %d rounds: port %d goes to backend %d, and began with %d", round, port,
								got, backend)
						}
					}
				}
				if y.active(1) == 0 {
					y.t.Error("the flows that stay at the backend that drains are not counted")
				}
				for _, port := range unknown {
					y.play(port, "A")
					y.expectEntry(port, stateFree, false)
				}
			})
		})
	}
}

// TestUnknownFlowsInMovedSlots: where all flows have been remembered since the service began, one in midstream that is
// not may be at any backend. It leaves no entry, which would count for a backend that resets it.
func TestUnknownFlowsInMovedSlots(t *testing.T) {
	runScenario(t, testService(vip4, 80, lb.TCP, lb.RoundRobin, 4), func(y *scenario) {
		ports := y.portsTo(1, 3)
		y.drain(1)
		for _, port := range ports {
			y.play(port, "A A")
		}
		y.expectNothing()
	})
}

// TestWindowsAreAsLongAsToldTo: of UDP, and of a service that says so.
func TestWindowsAreAsLongAsToldTo(t *testing.T) {
	told := testService(vip4, 80, lb.TCP, lb.Maglev, 5)
	told.Transition.Window = 40 * time.Second
	for _, test := range []struct {
		s     lb.RoutedService
		lasts time.Duration
	}{{told, 40 * time.Second}, {testService(vip4, 53, lb.UDP, lb.Maglev, 5), 30 * time.Second}} {
		runScenario(t, test.s, func(y *scenario) {
			ports := y.portsTo(1, 2)
			y.drain(1)
			y.advance(test.lasts - 2*time.Second)
			if got := y.to(ports[0], "A"); got != 1 {
				y.t.Errorf("%s: within the window to backend %d", y.s.Protocol, got)
			}
			y.advance(4 * time.Second)
			if got := y.to(ports[1], "A"); got == 1 {
				y.t.Errorf("%s: after the window to the old backend", y.s.Protocol)
			}
		})
	}
}

// TestFlowsSurviveFlaps: a backend goes out of sight and comes back a hundred times.
// The flows of the others do not mind, nor do its own that speak in between.
func TestFlowsSurviveFlaps(t *testing.T) {
	// The others take turns of the same code.
	for scheduler, flaps := range map[lb.Scheduler]int{lb.Maglev: 100, lb.SourceHash: 10, lb.RoundRobin: 20,
		lb.LeastConnections: 10} {
		t.Run(string(scheduler), func(t *testing.T) {
			runScenario(t, testService(vip4, 80, lb.TCP, scheduler, 5), func(y *scenario) {
				at := map[int]int{}
				begin := func(first, last int) {
					for port := first; port <= last; port++ {
						at[port] = y.to(port, "S")
						y.to(port, "A")
					}
				}
				begin(1, 15)
				for i := range flaps {
					y.losePath(i % 2)
					if i%10 == 0 {
						begin(1000+i, 1002+i)
					}
					for port, backend := range at {
						if backend != i%2 && y.to(port, "A") != backend {
							y.t.Fatalf("flap %d: the flow of port %d has left backend %d", i, port, backend)
						}
					}
					y.restorePath(i % 2)
					for port, backend := range at {
						if y.to(port, "A") != backend {
							y.t.Fatalf("after flap %d: the flow of port %d has left backend %d", i, port, backend)
						}
					}
					y.advance(10 * time.Second)
				}
			})
		})
	}
}

// TestLastBackendDrains: its flows go on, and new ones have nowhere to go.
func TestLastBackendDrains(t *testing.T) {
	for _, scheduler := range []lb.Scheduler{lb.Maglev, lb.RoundRobin, lb.Failover} {
		runScenario(t, testService(vip4, 80, lb.TCP, scheduler, 2), func(y *scenario) {
			at := map[int]int{}
			for port := 1; port < 20; port++ {
				at[port] = y.to(port, "S")
				y.to(port, "A")
			}
			y.drain(0)
			y.drain(1)
			y.expect(30, "S", noBackend)
			for port, backend := range at {
				if got := y.to(port, "A"); got != backend {
					y.t.Errorf("%s: the flow of port %d goes to backend %d, and began with %d", scheduler, port,
						got, backend)
				}
			}
			y.change(func(s *lb.RoutedService) { s.Backends[0].Draining = false })
			if got := y.to(31, "S"); got != 0 {
				y.t.Errorf("%s: a new flow goes to backend %d, and only 0 takes them", scheduler, got)
			}
			for port, backend := range at {
				if got := y.to(port, "A"); got != backend {
					y.t.Errorf("%s: the flow of port %d goes to backend %d, and began with %d", scheduler, port,
						got, backend)
				}
			}
		})
	}
}

// TestNoRoomInATransition: a flow that cannot be remembered begins with the old backend,
// where packets in the middle of an unknown flow go, too.
func TestNoRoomInATransition(t *testing.T) {
	tiny := func(_ lb.Hook, o *Options) { o.FlowLimit, o.UnprovenLimit = 5, 5 }
	runScenarioWith(t, tiny, testService(vip4, 80, lb.TCP, lb.Maglev, 3), func(y *scenario) {
		ports := y.portsTo(1, 60)
		y.drain(1)
		beyond := 0
		for _, port := range ports {
			backend := y.to(port, "S")
			if y.entry(port) == nil {
				beyond++
				if backend != 1 {
					y.t.Errorf("port %d is not remembered and goes to backend %d", port, backend)
				}
			}
			if got := y.to(port, "A"); got != backend {
				y.t.Errorf("the flow of port %d goes to backend %d, and began with %d", port, got, backend)
			}
		}
		if beyond < 40 {
			y.t.Errorf("%d of 60 flows had no room in two buckets", beyond)
		}
	})
}

// TestAnotherTableSize moves every slot: flows go on all the same.
func TestAnotherTableSize(t *testing.T) {
	runScenario(t, testService(vip4, 80, lb.TCP, lb.Maglev, 4), func(y *scenario) {
		at := map[int]int{}
		for port := 1; port < 40; port++ {
			at[port] = y.to(port, "S")
		}
		y.change(func(s *lb.RoutedService) { s.TableSize = 509 })
		for port, backend := range at {
			if got := y.to(port, "A"); got != backend {
				y.t.Errorf("the flow of port %d goes to backend %d, and began with %d", port, got, backend)
			}
		}
	})
}

// TestWeightsMoveSlots: a backend that gets more weight gets new flows, and the old
// ones stay where they are.
func TestWeightsMoveSlots(t *testing.T) {
	runScenario(t, testService(vip4, 80, lb.TCP, lb.Maglev, 4), func(y *scenario) {
		at := map[int]int{}
		for port := 1; port < 60; port++ {
			at[port] = y.to(port, "S")
		}
		y.change(func(s *lb.RoutedService) { weigh(s, 1, 1, 1, 20) })
		for port, backend := range at {
			if got := y.to(port, "A"); got != backend {
				y.t.Errorf("the flow of port %d goes to backend %d, and began with %d", port, got, backend)
			}
		}
		if got := y.spread(1000, 1059); got[3] < 40 {
			y.t.Errorf("of 60 new flows %v, and the last has 20 of 23 shares", got)
		}
	})
}

// TestErrorsAndFragmentsNoteNothing: they follow a flow and do not change its entry.
func TestErrorsAndFragmentsNoteNothing(t *testing.T) {
	runScenario(t, modeService(vip4, portNAT, lb.TCP, lb.RoundRobin), func(y *scenario) {
		sent := y.play(1, "S")
		about := packetSpec{from: y.s.VIP, at: y.from, sport: y.s.Port, dport: 1, flags: "A"}.build(y.t)
		v := y.r.check(y.t, icmpError(y.t, transitRouter(false), about, 60))
		if v.outcome != "forwarded" || v.backend != sent.backend {
			y.t.Errorf("%s to %v, and the flow is at %v", v.outcome, v.backend, sent.backend)
		}
		y.expectEntry(1, stateOpening, false)
		unknown := packetSpec{from: y.s.VIP, at: y.from, sport: y.s.Port, dport: 2, flags: "A"}.build(y.t)
		y.r.check(y.t, icmpError(y.t, transitRouter(false), unknown, 60))
		y.expectEntry(2, stateFree, false)
	})
}
