// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// The flows of a backend whose health checks fail.

// onDownService is a service of a mode whose backends fail one day.
func onDownService(vip netip.Addr, mode lb.Mode, protocol lb.Protocol, scheduler lb.Scheduler,
	onDown lb.OnDown) lb.RoutedService {
	const port = 8600
	s := testService(vip, port, protocol, scheduler, 3)
	if s.Mode = mode; mode.Translates() {
		addBackends(&s, 3, port+natPortOffset, vip.Is6())
	}
	s.DSCP = 7
	s.Checks = lb.Checks{List: []lb.Check{{Type: lb.CheckTCP}}, OnDown: onDown}
	return s
}

// failChecks has the checks of a backend fail; cure has them pass.
func (y *scenario) failChecks(backend int) {
	y.t.Helper()
	y.change(func(s *lb.RoutedService) {
		s.Observed = s.Observed.With(backend, lb.Observed{Unhealthy: "refuses connections"})
	})
}

func (y *scenario) passChecks(backend int) {
	y.t.Helper()
	y.change(func(s *lb.RoutedService) { s.Observed = s.Observed.With(backend, lb.Observed{}) })
}

// eachOnDown tells a story in every mode and family, for a scheduler that remembers, one that
// hashes the flow and one that hashes the source.
func eachOnDown(t *testing.T, protocol lb.Protocol, onDown lb.OnDown, test func(*scenario)) {
	for _, mode := range lb.PacketModes {
		for _, vip := range vips {
			for _, scheduler := range []lb.Scheduler{lb.LeastConnections, lb.Maglev, lb.SourceHash} {
				s := onDownService(vip, mode, protocol, scheduler, onDown)
				t.Run(string(mode)+"/"+map[bool]string{true: "IPv6", false: "IPv4"}[vip.Is6()]+"/"+string(scheduler),
					func(t *testing.T) { runScenario(t, s, test) })
			}
		}
	}
}

// TestOnDownKeep: an established connection goes on with a backend that fails, and with the same
// when it is cured; a new one goes to another.
func TestOnDownKeep(t *testing.T) {
	eachOnDown(t, lb.TCP, lb.KeepFlows, func(y *scenario) {
		sick := y.to(1, "S")
		y.to(1, "A")
		y.failChecks(sick)
		for _, flags := range []string{"PA", "A"} {
			if at := y.to(1, flags); at != sick {
				t.Errorf("%s: to backend %d, want %d", flags, at, sick)
			}
		}
		if at := y.to(2, "S"); at == sick {
			t.Error("a new connection went to the backend that fails")
		}
		y.passChecks(sick)
		if at := y.to(1, "PA"); at != sick {
			t.Errorf("cured: to backend %d, want %d", at, sick)
		}
	})
}

// TestOnDownReset: an established connection with an entry is answered by a reset as soon as its backend fails,
// although no other packet that cannot be sent on is answered, and no longer counts for the backend. One without an
// entry goes to another backend, which resets it. The client's next one goes to another, from the same port too.
func TestOnDownReset(t *testing.T) {
	eachOnDown(t, lb.TCP, lb.ResetFlows, func(y *scenario) {
		sick := y.to(1, "S")
		y.to(1, "A")
		y.failChecks(sick)
		if !isTracked(&y.s) {
			if at := y.to(1, "PA"); at == sick {
				t.Error("to the backend that fails")
			}
			if at := y.to(1, "S+"); at == sick {
				t.Error("a new connection went to the backend that fails")
			}
			return
		}
		for _, flags := range []string{"PA", "A", "FA"} {
			y.expect(1, flags, "reset_backend_down")
		}
		if n := y.active(sick); n != 0 {
			t.Errorf("%d flows count for the backend", n)
		}
		y.expect(1, "R", backendDown)
		y.passChecks(sick)
		y.failChecks(sick)
		if at := y.to(1, "S+"); at == sick {
			t.Error("a new connection went to the backend that fails")
		}
		y.to(1, "A")
	})
}

// TestOnDownResetsWithoutPath: a backend that packets do not reach is down, too.
func TestOnDownResetsWithoutPath(t *testing.T) {
	runScenario(t, onDownService(vip4, lb.L2DSR, lb.TCP, lb.RoundRobin, lb.ResetFlows), func(y *scenario) {
		lost := y.to(1, "S")
		y.to(1, "A")
		y.losePath(lost)
		y.expect(1, "PA", "reset_backend_down")
	})
}

// TestOnDownResetOfMoved: a flow that is remembered since its slot moved is reset, too.
func TestOnDownResetOfMoved(t *testing.T) {
	runScenario(t, onDownService(vip4, lb.L2DSR, lb.TCP, lb.Maglev, lb.ResetFlows), func(y *scenario) {
		port := y.portsTo(1, 1)[0]
		y.to(port, "S")
		y.to(port, "A")
		y.drain(1)
		if at := y.to(port, "PA"); at != 1 {
			t.Fatalf("drained: to backend %d, want 1", at)
		}
		y.failChecks(1)
		y.expect(port, "PA", "reset_backend_down")
		if e := y.entry(port); e == nil || e.state != stateClosed {
			t.Errorf("remembered: %+v", e)
		}
	})
}

// TestOnDownMove: datagrams go on to another backend, and stay there when the first is cured,
// where flows are remembered.
func TestOnDownMove(t *testing.T) {
	eachOnDown(t, lb.UDP, lb.MoveFlows, func(y *scenario) {
		sick := y.to(1, "")
		y.to(1, "")
		y.failChecks(sick)
		now := y.to(1, "")
		if now == sick {
			t.Error("to the backend that fails")
		}
		if at := y.to(1, ""); at != now {
			t.Errorf("to backend %d, and then to %d", now, at)
		}
		y.passChecks(sick)
		if at := y.to(1, ""); at != now && isTracked(&y.s) {
			t.Errorf("cured: to backend %d, want %d", at, now)
		}
	})
}
