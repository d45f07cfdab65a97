// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// modesThatSee are the modes in which a backend's refusals are seen.
var modesThatSee = []lb.Mode{lb.NAT, lb.FullNAT}

// seenService is a service of three backends in such a mode.
func seenService(mode lb.Mode, scheduler lb.Scheduler, weights ...uint16) lb.RoutedService {
	s := scheduled(scheduler, weights...)
	s.Mode = mode
	return s
}

// openAndRefuse has each backend but the one that refuses hold so many connections, and then
// opens others, one after the other, from the next ports: those that meet it are refused, and
// the rest end at once. It returns how many were refused.
func (y *scenario) openAndRefuse(refuses, held, others int) (refused int) {
	y.t.Helper()
	port, have := 1, make([]int, len(y.s.Backends))
	for slices.ContainsFunc(have, func(n int) bool { return n < held }) {
		at := y.to(port, "S")
		if at == refuses {
			y.reply(port, "RA")
			have[at] = held
		} else {
			y.play(port, "<SA A")
			have[at]++
		}
		port++
	}
	for range others {
		if y.to(port, "S") == refuses {
			y.reply(port, "RA")
			refused++
		} else {
			y.play(port, "<SA A <FA FA")
		}
		port++
	}
	return refused
}

// TestRefusalsWeigh: a program is dead, its host resets each connection, and it would have the
// fewest for ever. It gets a few, until it is known, and no more.
func TestRefusalsWeigh(t *testing.T) {
	for _, mode := range modesThatSee {
		for _, test := range []struct {
			scheduler lb.Scheduler
			weights   []uint16
			most      int
		}{
			{lb.LeastConnections, []uint16{1, 1, 1}, 8},
			{lb.WeightedLeastConnections, []uint16{2, 1, 1}, 8},
			// One pair of draws in nine is twice the same.
			{lb.TwoChoices, []uint16{1, 1, 1}, 20},
		} {
			t.Run(string(mode)+"/"+string(test.scheduler), func(t *testing.T) {
				runScenario(t, seenService(mode, test.scheduler, test.weights...), func(y *scenario) {
					if n := y.openAndRefuse(0, 20, 100); n > test.most {
						y.t.Errorf("%d of 100 connections go to a backend that refuses them, want at most %d",
							n, test.most)
					}
				})
			})
		}
	}
}

// TestRefusalsAreNoMerit: however slowly connections come, a backend that refuses gets no more of them than the others,
// though they hold some and it none.
func TestRefusalsAreNoMerit(t *testing.T) {
	for _, mode := range modesThatSee {
		runScenario(t, seenService(mode, lb.LeastConnections, 1, 1, 1), func(y *scenario) {
			y.openAndRefuse(0, 20, 10)
			refused := 0
			for port := 1001; port <= 1030; port++ {
				y.advance(20 * time.Second)
				if y.to(port, "S") == 0 {
					y.reply(port, "RA")
					refused++
				} else {
					y.play(port, "<SA A <FA FA")
				}
			}
			if refused > 10 {
				y.t.Errorf("%d of 30 connections, one each 20 s, go to a backend that refuses them, want a third",
					refused)
			}
		})
	}
}

// TestRefusalsAreForgiven: when its program is back, a backend gets its share at once, and soon has caught up.
func TestRefusalsAreForgiven(t *testing.T) {
	for _, mode := range modesThatSee {
		runScenario(t, seenService(mode, lb.LeastConnections, 1, 1, 1), func(y *scenario) {
			y.openAndRefuse(0, 20, 100)
			y.advance(10 * time.Second)
			counts := make([]int, 3)
			for port := 1001; port <= 1040; port++ {
				at := y.to(port, "S")
				y.play(port, "<SA A")
				counts[at]++
			}
			if counts[0] < 20 {
				y.t.Errorf("of 40 connections after its program is back, it has %d, the others %v", counts[0],
					counts[1:])
			}
		})
	}
}

// TestRefusalsPass: without a new connection that comes about, too, and whatever the others
// hold.
func TestRefusalsPass(t *testing.T) {
	runScenario(t, seenService(lb.NAT, lb.LeastConnections, 1, 1, 1), func(y *scenario) {
		y.openAndRefuse(0, 20, 100)
		y.advance((refusalLasts + 10) * time.Second)
		y.spreadTo(0, 1001, 1010)
	})
}

// TestRefusedTakesNoPlace: a refused connection counts for no limit, and the same client from the same port gets
// through to another.
func TestRefusedTakesNoPlace(t *testing.T) {
	for _, mode := range modesThatSee {
		bounded := seenService(mode, lb.LeastConnections, 1, 1)
		bound(&bounded, 3, 0)
		bounded.Limits = lb.Limits{Connections: 4}
		runScenario(t, bounded, func(y *scenario) {
			// The first is idle again and again, for it refuses.
			for port := 1; port <= 40; port++ {
				for y.to(port, "S") == 0 {
					y.reply(port, "RA")
					y.expectEntry(port, stateRefused, false)
				}
				y.play(port, "<SA A <FA FA")
			}
			if got := y.r.model.standings[y.s.Key()].active + y.active(0); got != 0 {
				y.t.Errorf("%d flows count as active after all have ended", got)
			}
			// Refusals leave the bounds as they are: three each, four in all.
			for port := 101; port <= 104; port++ {
				y.to(port, "S")
			}
			y.expect(105, "S", overConnections)
		})
	}
}

// TestRefusalsDoNotTurn: rr gives each its turn, as it is defined.
func TestRefusalsDoNotTurn(t *testing.T) {
	runScenario(t, seenService(lb.NAT, lb.RoundRobin, 1, 1, 1), func(y *scenario) {
		if n := y.openAndRefuse(0, 20, 99); n != 33 {
			y.t.Errorf("%d of 99 connections go to a backend that refuses them, want a third", n)
		}
	})
}

// TestRefusalsOfOneThatLeft: a backend that has the index next begins without a penalty.
func TestRefusalsOfOneThatLeft(t *testing.T) {
	runScenario(t, seenService(lb.NAT, lb.LeastConnections, 1, 1, 1), func(y *scenario) {
		y.openAndRefuse(0, 20, 100)
		all := y.s
		y.change(func(s *lb.RoutedService) { s.Backends, s.Paths = s.Backends[1:], s.Paths[1:] })
		y.advance(time.Second)
		y.change(func(s *lb.RoutedService) { s.Backends, s.Paths = all.Backends, all.Paths })
		y.spreadTo(0, 1001, 1010)
	})
}

// TestOthersResets: RST in the middle of a connection, or the client's, is no refusal.
func TestOthersResets(t *testing.T) {
	for _, mode := range modesThatSee {
		runScenario(t, seenService(mode, lb.LeastConnections, 1, 1, 1), func(y *scenario) {
			y.spread(1, 9)
			for port := 1; port <= 3; port++ {
				y.play(port, "<SA A <R")
			}
			for port := 4; port <= 6; port++ {
				y.play(port, "<SA R")
			}
			for i := range 3 {
				if p := y.r.model.lives[backendKeyOf(&y.s, i)].load.penalty; p != 0 {
					y.t.Errorf("backend %d bears a penalty of %d for connections that it took", i, p)
				}
			}
		})
	}
}
