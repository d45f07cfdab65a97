// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// How schedulers share new flows, and which ones limits refuse.

// scheduled is a service of backends with these weights.
func scheduled(scheduler lb.Scheduler, weights ...uint16) lb.RoutedService {
	s := testService(vip4, 80, lb.TCP, scheduler, len(weights))
	weigh(&s, weights...)
	return s
}

// TestTurns: rr and wrr share exactly.
func TestTurns(t *testing.T) {
	for _, test := range []struct {
		scheduler lb.Scheduler
		weights   []uint16
		// flows have these ends.
		flows int
		want  []int
	}{
		{lb.RoundRobin, []uint16{1, 1, 1}, 30, []int{10, 10, 10}},
		{lb.RoundRobin, []uint16{1, 2, 0, 4}, 30, []int{10, 10, 0, 10}},
		{lb.WeightedRoundRobin, []uint16{1, 2, 4}, 70, []int{10, 20, 40}},
		{lb.WeightedRoundRobin, []uint16{1, 2, 4}, 7, []int{1, 2, 4}},
		{lb.WeightedRoundRobin, []uint16{100, 200, 0, 300}, 60, []int{10, 20, 0, 30}},
		{lb.WeightedRoundRobin, []uint16{1, 300}, 301, []int{1, 300}},
	} {
		runScenario(t, scheduled(test.scheduler, test.weights...), func(y *scenario) {
			if got := y.spread(1, test.flows); !slices.Equal(got, test.want) {
				y.t.Errorf("%s with weights %v: %v, want %v", test.scheduler, test.weights, got, test.want)
			}
		})
	}
}

// TestTurnsAreSpread: the turns of a heavy backend do not come all at once; where a
// round ends and the next begins, two may meet.
func TestTurnsAreSpread(t *testing.T) {
	runScenario(t, scheduled(lb.WeightedRoundRobin, 4, 1, 1, 2), func(y *scenario) {
		last, row := -1, 0
		for port := 1; port <= 64; port++ {
			backend := y.to(port, "S")
			if row++; backend != last {
				last, row = backend, 1
			}
			if row > 2 {
				y.t.Fatalf("backend %d has %d turns one after the other", backend, row)
			}
		}
	})
}

// TestPortUsedAgainTakesATurn: only after the end of its flow.
func TestPortUsedAgainTakesATurn(t *testing.T) {
	runScenario(t, scheduled(lb.RoundRobin, 1, 1, 1), func(y *scenario) {
		first := y.to(1000, "S")
		for _, flags := range []string{"S", "A", "S", "PA"} {
			if v := y.expect(1000, flags, "forwarded"); v.opens || indexOfBackend(&y.s, v.backend) != first {
				y.t.Errorf("%s: to %v, opens: %v; want backend %d", flags, v.backend, v.opens, first)
			}
		}
		y.to(1000, "FA")
		if v := y.expect(1000, "S+", "forwarded"); !v.opens || indexOfBackend(&y.s, v.backend) != (first+1)%3 {
			y.t.Errorf("after FIN: to %v, opens: %v; want the backend after %d", v.backend, v.opens, first)
		}
	})
}

// TestUnknownFlowsTakeNoTurn: a packet in the middle of an unknown flow goes by its hash and leaves no entry.
func TestUnknownFlowsTakeNoTurn(t *testing.T) {
	runScenario(t, scheduled(lb.RoundRobin, 1, 1, 1), func(y *scenario) {
		first := y.to(1, "S")
		for port := 100; port < 150; port++ {
			if v := y.expect(port, "A", "forwarded"); v.opens || y.entry(port) != nil {
				y.t.Fatal("a stranger's packet opens a flow")
			}
		}
		if second := y.to(2, "S"); second != (first+1)%3 {
			y.t.Errorf("after strangers, the turn is backend %d's; it was %d's", second, first)
		}
	})
}

// TestFewestFlows: lc levels uneven backends, wlc to the weights.
func TestFewestFlows(t *testing.T) {
	runScenario(t, scheduled(lb.LeastConnections, 5, 1, 1), func(y *scenario) {
		if got := y.spread(1, 30); !slices.Equal(got, []int{10, 10, 10}) {
			y.t.Errorf("lc: %v", got)
		}
		// Six flows of the second end: the next six are its.
		for port, ended := 1, 0; ended < 6; port++ {
			if e := y.entry(port); e.backend == backendKeyOf(&y.s, 1) {
				y.play(port, "A FA")
				ended++
			}
		}
		if got := y.spread(101, 106); got[1] != 6 {
			y.t.Errorf("after six of its flows have ended, it has %d of six new ones", got[1])
		}
	})
	runScenario(t, scheduled(lb.WeightedLeastConnections, 1, 2, 4), func(y *scenario) {
		if got := y.spread(1, 70); !slices.Equal(got, []int{10, 20, 40}) {
			y.t.Errorf("wlc with weights 1, 2, 4: %v", got)
		}
	})
	runScenario(t, testService(vip6, 80, lb.TCP, lb.LeastConnections, 100), func(y *scenario) {
		if got := y.spread(1, 400); slices.Max(got) > 8 || slices.Min(got) == 0 {
			y.t.Errorf("lc of 100, through a window: %v", got)
		}
	})
}

// TestFewestFlowsAgain: lc, which remembers how many flows the least loaded has, sees who
// has fewer from now on: because flows were forgotten that came to nothing, because it has
// come back, or because it is new.
func TestFewestFlowsAgain(t *testing.T) {
	// One more than makes all even: by then it is known that no backend has fewer than those.
	const flows, silent = 41, 6
	for name, fewer := range map[string]func(y *scenario) (backend int){
		"flows forgotten": func(y *scenario) int {
			for port, left := 201, silent; port <= 200+flows; port++ {
				if y.entry(port).backend == backendKeyOf(&y.s, 1) && left > 0 {
					left--
				} else {
					y.to(port, "A")
				}
			}
			y.advance(lb.DefaultTimeouts.Opening + time.Second)
			return 1
		},
		"connections closed": func(y *scenario) int {
			for port, left := 201, silent; left > 0; port++ {
				if y.entry(port).backend == backendKeyOf(&y.s, 2) {
					y.play(port, "A FA")
					left--
				}
			}
			return 2
		},
		"back again": func(y *scenario) int {
			y.losePath(3)
			y.spread(301, 301+3*silent-1)
			y.restorePath(3)
			return 3
		},
		"new": func(y *scenario) int {
			y.change(func(s *lb.RoutedService) {
				more := testService(vip4, 80, lb.TCP, lb.LeastConnections, 5)
				s.Backends, s.Paths = more.Backends, more.Paths
			})
			return 4
		},
	} {
		t.Run(name, func(t *testing.T) {
			runScenario(t, testService(vip4, 80, lb.TCP, lb.LeastConnections, 4), func(y *scenario) {
				y.spread(201, 200+flows)
				backend := fewer(y)
				least := int(y.active((backend+1)%4)) - int(y.active(backend))
				if least < 2 {
					y.t.Fatalf("backend %d has %d flows, another %d", backend, y.active(backend),
						y.active((backend+1)%4))
				}
				if got := y.spread(401, 400+least-1); got[backend] != least-1 {
					y.t.Errorf("of %d new flows backend %d has %v", least-1, backend, got)
				}
			})
		})
	}
}

// TestTwoChoicesLevel: flows spread about as the weights say.
func TestTwoChoicesLevel(t *testing.T) {
	runScenario(t, scheduled(lb.TwoChoices, 1, 1, 1, 1, 1), func(y *scenario) {
		if got := y.spread(1, 500); slices.Max(got) > 110 || slices.Min(got) < 90 {
			y.t.Errorf("500 flows to 5 backends: %v", got)
		}
	})
}

// TestBySource: all flows of a client go to one backend, those of clients together
// to all.
func TestBySource(t *testing.T) {
	hashed := scheduled(lb.Maglev, 1, 1, 1, 1)
	hashed.Hash = lb.HashSource
	for _, s := range []lb.RoutedService{scheduled(lb.SourceHash, 1, 1, 1, 1), hashed} {
		runScenario(t, s, func(y *scenario) {
			met := map[int]bool{}
			for number := range byte(neighbours) {
				y.from = clientOf(0, false, number)
				backend := y.to(1, "S")
				met[backend] = true
				for port := 2; port < 10; port++ {
					if got := y.to(port, "S"); got != backend {
						y.t.Fatalf("%s: flows of one client go to backends %d and %d", y.s.Scheduler, backend, got)
					}
				}
			}
			if len(met) != 4 {
				y.t.Errorf("%s: %d clients meet %d of 4 backends", y.s.Scheduler, neighbours, len(met))
			}
		})
	}
}

// TestFailover: the first that is there has all, and gets them again when it is back.
func TestFailover(t *testing.T) {
	runScenario(t, scheduled(lb.Failover, 1, 1, 1), func(y *scenario) {
		y.spreadTo(0, 1, 20)
		y.losePath(0)
		y.spreadTo(1, 21, 40)
		y.drain(1)
		y.spreadTo(2, 41, 60)
		y.restorePath(0)
		y.spreadTo(0, 61, 80)
	})
	bounded := scheduled(lb.Failover, 1, 1, 1)
	bound(&bounded, 5, 0)
	runScenario(t, bounded, func(y *scenario) {
		y.spreadTo(0, 1, 5)
		y.spreadTo(1, 6, 10)
		y.spreadTo(2, 11, 15)
		y.expect(16, "S", overConnections)
		y.play(3, "A FA")
		y.spreadTo(0, 17, 17)
	})
}

// spreadTo opens flows that must all go to one backend.
func (y *scenario) spreadTo(backend, first, last int) {
	y.t.Helper()
	if got := y.spread(first, last); got[backend] != last-first+1 {
		y.t.Errorf("flows %d to %d: %v, want all at backend %d", first, last, got, backend)
	}
}

// TestThresholds: at upper a backend is full, until it has less than lower.
func TestThresholds(t *testing.T) {
	bounded := scheduled(lb.RoundRobin, 1, 1)
	bounded.Backends[0].Upper, bounded.Backends[0].Lower = 4, 2
	runScenario(t, bounded, func(y *scenario) {
		if got := y.spread(1, 12); !slices.Equal(got, []int{4, 8}) {
			y.t.Errorf("12 flows: %v, want 4 for the first", got)
		}
		y.end(0, 2) // 2 left: not less than lower
		y.spreadTo(1, 20, 25)
		y.end(0, 1)
		if got := y.spread(30, 35); got[0] != 3 {
			y.t.Errorf("after it had less than lower: %v, want 3 for the first", got)
		}
	})
	all := scheduled(lb.Maglev, 1, 1)
	bound(&all, 3, 0)
	all.Limits.Refuse = lb.RefuseByReset
	runScenario(t, all, func(y *scenario) {
		if got := y.spread(1, 6); !slices.Equal(got, []int{3, 3}) {
			y.t.Errorf("6 flows: %v, want 3 each", got)
		}
		y.expect(7, "S", "reset_connection_limit")
		y.expect(1, "PA", "forwarded")
		y.end(0, 1)
		y.spreadTo(0, 8, 8)
		y.change(func(s *lb.RoutedService) { bound(s, 0, 0) })
		y.spread(10, 30)
	})
}

// end lets n flows of a backend end.
func (y *scenario) end(backend, n int) {
	y.t.Helper()
	for port := 1; port < 1000 && n > 0; port++ {
		if e := y.entry(port); e != nil && e.backend == backendKeyOf(&y.s, backend) && e.state.live() {
			y.to(port, "R")
			n--
		}
	}
}

// TestCap: a service has so many flows at most, whichever backends have them.
func TestCap(t *testing.T) {
	for _, udp := range []bool{false, true} {
		for _, refuse := range []lb.Refusal{lb.RefuseByDrop, lb.RefuseByReset} {
			s := testService(vip6, 80, lb.TCP, lb.Maglev, 3)
			if udp {
				s = testService(vip6, 53, lb.UDP, lb.Maglev, 3)
			}
			s.Limits = lb.Limits{Connections: 5, Refuse: refuse}
			refused := overConnections
			if refuse == lb.RefuseByReset {
				refused = map[bool]string{false: "reset_connection_limit", true: "unreachable_connection_limit"}[udp]
			}
			runScenario(t, s, func(y *scenario) {
				y.spread(1, 5)
				y.expect(6, "S", refused)
				y.expect(5, "S", "forwarded")
				y.advance(testTimeouts.Opening + testTimeouts.First)
				y.expect(6, "S", "forwarded")
			})
		}
	}
}

// TestRate: connections beyond the rate are refused. The clock is the kernel's: the test asserts only properties that
// hold at any speed, and the model compares each verdict with the time.
func TestRate(t *testing.T) {
	slow := lb.Limits{Rate: 1, Burst: 4, Refuse: lb.RefuseByReset}
	for _, scheduler := range []lb.Scheduler{lb.Maglev, lb.RoundRobin} {
		s := scheduled(scheduler, 1, 1)
		s.Limits = slow
		runScenario(t, s, func(y *scenario) {
			y.spread(1, 5)
			next := y.untilRefused(6, "S", "reset_rate_limit")
			y.expect(next, "A", "forwarded")
			y.expect(1, "A", "forwarded")
		})
	}
	datagrams := testService(vip4, 53, lb.UDP, lb.Maglev, 2)
	datagrams.Limits = lb.Limits{Rate: 1, Refuse: lb.RefuseByReset}
	runScenario(t, datagrams, func(y *scenario) {
		y.expect(1, "", "forwarded")
		y.untilRefused(2, "", "unreachable_rate_limit")
		y.expect(1, "", "forwarded")
	})
}

// TestPersistence: a client's next flow goes where its last one went.
func TestPersistence(t *testing.T) {
	s := scheduled(lb.RoundRobin, 1, 1, 1)
	persist(&s, 24, 0)
	runScenario(t, s, func(y *scenario) {
		backend := y.to(1, "S")
		y.to(1, "A")
		y.spreadTo(backend, 2, 10)
		y.from = clientOf(0, false, 9) // of the same prefix
		y.spreadTo(backend, 1, 5)
		y.from = clientOf(1, false, 9)
		if other := y.to(1, "S"); other == backend {
			y.t.Error("another prefix has the same turn")
		}
		y.from = clientOf(0, false, 7)
		y.advance(y.s.Persistence.Timeout - 2*time.Second)
		y.spreadTo(backend, 20, 20)
		y.advance(y.s.Persistence.Timeout - 2*time.Second)
		y.spreadTo(backend, 21, 21)
		y.drain(backend)
		moved := y.to(22, "S")
		y.to(22, "A")
		if moved == backend {
			y.t.Error("a backend that drains gets a new flow")
		}
		y.spreadTo(moved, 23, 30)
		y.advance(y.s.Persistence.Timeout + 2*time.Second)
		if got := y.spread(40, 40); got[backend] != 0 {
			y.t.Error("a backend that drains gets a new flow")
		}
	})
}

// TestPersistenceOutlivesItsProof: a client of whom a flow is proven is remembered
// among the proven.
func TestPersistenceOutlivesItsProof(t *testing.T) {
	s := scheduled(lb.RoundRobin, 1, 1, 1)
	persist(&s, 32, 128)
	runScenario(t, s, func(y *scenario) {
		affinity := func() *remembered {
			m := y.r.model
			return m.lookUp(flowName{client: y.from, service: m.standings[y.s.Key()].id, affinity: true})
		}
		y.play(1, "S")
		if e := affinity(); e == nil || e.state != stateAffinityNew || e.at != y.r.model.newcomers {
			y.t.Fatalf("after a SYN: %+v", e)
		}
		y.play(1, "A")
		if e := affinity(); e == nil || e.state != stateAffinity || e.at != y.r.model.flows {
			y.t.Fatalf("after the handshake: %+v", e)
		}
	})
}
