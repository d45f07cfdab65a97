// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// Flows whose backend cannot take another one, and clients that use a port again: the table
// of docs/internals/state.md, row by row.

// backendFault is an event that befalls the backend of a flow.
type backendFault struct {
	name string
	// strike makes it happen to a backend. Nobody has to undo it.
	strike func(y *scenario, backend int)
	// down: it can serve nothing, not even the flows that it has.
	down bool
}

var backendFaults = []backendFault{
	{"drained", func(y *scenario, backend int) { y.drain(backend) }, false},
	{"of weight 0", func(y *scenario, backend int) {
		y.change(func(s *lb.RoutedService) { s.Backends[backend].Weight = 0 })
	}, false},
	{"full", func(y *scenario, backend int) {
		y.change(func(s *lb.RoutedService) { s.Backends[backend].Upper = 1 })
	}, false},
	{"down", func(y *scenario, backend int) { y.losePath(backend) }, true},
}

// counting are the schedulers that remember every flow, and those that remember the flows of
// slots that have changed hands.
var counting = []lb.Scheduler{lb.RoundRobin, lb.WeightedRoundRobin, lb.LeastConnections, lb.WeightedLeastConnections,
	lb.TwoChoices}

// synDestination is the backend that a SYN goes to, and whether the entry that it met remains.
type synDestination int

const (
	toOwner synDestination = iota
	// toAnother: the entry of before has gone.
	toAnother
	// toAnotherKeepingOld: the entry of before is there still.
	toAnotherKeepingOld
)

// TestSYNs is the table of docs/internals/state.md for a service whose flows are all remembered.
func TestSYNs(t *testing.T) {
	for _, row := range []struct {
		// state is the state at the end of the script.
		state  flowState
		script string
		// Where the same SYN goes while the backend takes flows, and while it takes no new ones; and where another
		// connection's goes.
		again, againDrained   synDestination
		another, otherDrained synDestination
	}{
		{stateOpening, "S", toOwner, toOwner, toOwner, toAnother},
		{stateEstablished, "S A", toOwner, toOwner, toOwner, toAnotherKeepingOld},
		{stateClientFIN, "S A FA", toOwner, toOwner, toAnother, toAnother},
		{stateBackendFIN, "S A <FA", toOwner, toOwner, toAnother, toAnother},
		{stateClosed, "S A R", toAnother, toAnother, toAnother, toAnother},
	} {
		t.Run(fmt.Sprintf("state %d", row.state), func(t *testing.T) {
			runScenario(t, modeService(vip4, portNAT, lb.TCP, lb.RoundRobin), func(y *scenario) {
				port := 1000
				try := func(what, flags string, strike func(*scenario, int), want synDestination) {
					y.t.Helper()
					port++
					y.isns[port] = 1<<32 - 2
					before := y.s
					y.play(port, row.script)
					y.expectEntry(port, row.state, row.state != stateOpening)
					owner := indexOfBackend(&y.s, y.entry(port).backend)
					// Its turn comes to another, so that a new choice is seen.
					for strike == nil && want == toAnother &&
						y.r.model.standings[y.s.Key()].turn%uint64(len(y.s.Backends)) == uint64(owner) {
						y.to(port+500, "S+")
					}
					if strike != nil {
						strike(y, owner)
					}
					y.expectSYN(what, port, flags, owner, want)
					y.change(func(s *lb.RoutedService) { *s = before })
				}
				try("the same SYN", "S", nil, row.again)
				try("another SYN", "S+", nil, row.another)
				for _, plight := range backendFaults[:2] {
					try("the same SYN, "+plight.name, "S", plight.strike, row.againDrained)
					try("another SYN, "+plight.name, "S+", plight.strike, row.otherDrained)
				}
				// That it was sent before is of no use where nothing can be sent.
				down := row.otherDrained
				try("the same SYN, down", "S", backendFaults[3].strike, down)
				try("another SYN, down", "S+", backendFaults[3].strike, down)
			})
		})
	}
}

// expectSYN sends a SYN of a flow that is known, and reports whether it goes where it is to.
func (y *scenario) expectSYN(what string, port int, flags string, owner int, want synDestination) {
	y.t.Helper()
	old := *y.entry(port)
	v := y.expect(port, flags, "forwarded")
	m, got := y.r.model, indexOfBackend(&y.s, v.backend)
	proven, unproven := m.flows.known[old.flowName], m.newcomers.known[old.flowName]
	switch want {
	case toOwner:
		if got != owner || v.opens || y.entry(port).state != old.state || y.entry(port).isn != y.isns[port] {
			y.t.Errorf("%s: to backend %d, a new flow: %v, state %d; want it at %d, in state %d", what, got, v.opens,
				y.entry(port).state, owner, old.state)
		}
	case toAnother:
		if got == owner || !v.opens || proven != nil || unproven == nil || unproven.state != stateOpening {
			y.t.Errorf("%s: to backend %d, a new flow: %v, a proven one: %v; want a new one elsewhere", what, got,
				v.opens, proven != nil)
		}
	case toAnotherKeepingOld:
		if got == owner || !v.opens || proven == nil || proven.state != stateContested || unproven == nil {
			y.t.Errorf("%s: to backend %d, a new flow: %v; want one beside the first, which is contested", what,
				got, v.opens)
		}
	}
}

// TestContestedFlows plays the packets that may follow the SYN that contests a flow.
func TestContestedFlows(t *testing.T) {
	for _, plight := range backendFaults {
		for _, mode := range lb.PacketModes {
			if mode == lb.FullNAT || plight.name == "of weight 0" {
				continue
			}
			t.Run(plight.name+", "+string(mode), func(t *testing.T) {
				s := testService(vip6, 80, lb.TCP, lb.LeastConnections, 3)
				s.Mode, s.DSCP = mode, 5
				runScenario(t, s, func(y *scenario) { y.contests(plight) })
			})
		}
	}
}

// contests plays the stories of a contested flow.
func (y *scenario) contests(plight backendFault) {
	var old, other uint32 = 1 << 20, 1<<32 - 5
	at := func(port int, flags string, isn uint32) int {
		y.t.Helper()
		v := y.sendAs(port, flags, isn)
		if v.outcome != "forwarded" {
			return -1
		}
		return indexOfBackend(&y.s, v.backend)
	}
	begin := func(port int) (owner int) {
		y.t.Helper()
		before := y.s
		y.change(func(s *lb.RoutedService) { s.Backends = slices.Clone(before.Backends) })
		owner = at(port, "S", old)
		at(port, "A", old)
		return owner
	}
	undo := y.s
	defer y.change(func(s *lb.RoutedService) { *s = undo })
	owner := begin(1)
	plight.strike(y, owner)
	alive := owner
	if plight.down {
		alive = -1
	}
	expect := func(what string, got, want int) {
		y.t.Helper()
		if got != want {
			y.t.Errorf("%s: to backend %d, want %d", what, got, want)
		}
	}
	// A stranger's SYN moves no flow: the flow's own packets go where they went.
	next := at(1, "S", other)
	if next == owner || next < 0 {
		y.t.Fatalf("another connection begins at backend %d, and %d takes none", next, owner)
	}
	expect("what the first connection goes on with", at(1, "PA", old), alive)
	expect("the SYN again", at(1, "S", other), next)
	expect("the end of the first connection", at(1, "FA", old), alive)
	if y.entry(1).state != stateContested {
		y.t.Errorf("the FIN of a contested flow leaves it in state %d", y.entry(1).state)
	}
	// The client's own has an acknowledgement, and the next number: it is the one.
	expect("the first segment of the second connection", at(1, "A", other), next)
	if e := y.entry(1); e.state != stateEstablished || indexOfBackend(&y.s, e.backend) != next ||
		y.active(owner) != 0 && owner != next {
		y.t.Errorf("the second connection is in state %d at %s, %d are active at the first's", e.state,
			e.backend.Address, y.active(owner))
	}
	expect("what comes later", at(1, "PA", other+1<<30), next)

	// A flow that has been contested without success is as it was.
	y.change(func(s *lb.RoutedService) { *s = undo })
	owner = begin(2)
	plight.strike(y, owner)
	at(2, "S", other)
	y.advance(testTimeouts.Opening + 1)
	at(2, "A", old)
	y.expectEntry(2, stateEstablished, true)
	// A client that answers for its first connection by a RST has one, at most.
	at(2, "S", other)
	at(2, "R", old)
	if e := y.entry(2); e == nil || e.state != stateOpening || y.active(owner) != 0 {
		y.t.Errorf("after a RST of the first connection it is remembered: %+v", e)
	}
}

// TestDeadHost: a client comes again from the ports whose connections a dead host holds, lap
// after lap, and no SYN and no datagram is lost.
func TestDeadHost(t *testing.T) {
	schedulers := slices.Concat(counting, []lb.Scheduler{lb.Maglev, lb.SourceHash, lb.Failover})
	for _, scheduler := range testenv.Some(t, testenv.HooksTarget, 4, schedulers) {
		for _, mode := range []lb.Mode{lb.L2DSR, lb.FullNAT} {
			for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
				t.Run(fmt.Sprint(scheduler, ", ", mode, ", ", protocol), func(t *testing.T) {
					s := testService(vip4, 80, protocol, scheduler, 4)
					s.Mode = mode
					runScenario(t, s, (*scenario).killBackend)
				})
			}
		}
	}
}

// killBackend lets a backend go out of sight permanently, whatever has become of its slots before.
func (y *scenario) killBackend() {
	const ports = 40
	for port := 1; port <= ports; port++ {
		y.play(port, "S A")
	}
	dead := indexOfBackend(&y.s, y.expect(1, "A", "forwarded").backend)
	// It has flapped, and its flows are remembered since.
	y.losePath(dead)
	y.restorePath(dead)
	for port := 1; port <= ports; port++ {
		y.expect(port, "A", "forwarded")
	}
	y.losePath(dead)
	for lap := range 3 {
		for port := 1; port <= ports; port++ {
			if got := y.to(port, "S+"); got == dead {
				y.t.Fatalf("lap %d: port %d goes to the dead backend", lap, port)
			}
			if got := y.to(port, "A"); got == dead {
				y.t.Fatalf("lap %d: port %d goes to the dead backend", lap, port)
			}
		}
	}
	if n := y.active(dead); n != 0 {
		y.t.Errorf("%d flows are counted at the dead backend", n)
	}
}

// TestMovedFlowsBeginAnew where their slot's previous backend is drained: a connection that it
// has reset, unseen, must not lead there.
func TestMovedFlowsBeginAnew(t *testing.T) {
	for _, scheduler := range []lb.Scheduler{lb.Maglev, lb.Failover, lb.SourceHash} {
		t.Run(string(scheduler), func(t *testing.T) {
			runScenario(t, testService(vip4, 80, lb.TCP, scheduler, 4), func(y *scenario) {
				drained := y.to(1, "S")
				y.drain(drained)
				// The one is met once since, and the other has proven itself.
				for port, script := range map[int]string{1: "A", 2: "A A", 3: "A A A"} {
					if port != 1 && y.s.Scheduler == lb.Maglev {
						port = y.portsOf(drained, port)
					}
					y.play(port, script)
					if e := y.entry(port); e == nil || indexOfBackend(&y.s, e.backend) != drained {
						y.t.Fatalf("port %d is not remembered at the drained backend", port)
					}
					if got := y.to(port, "S+"); got == drained {
						y.t.Errorf("a SYN from port %d goes to the drained backend", port)
					}
					if got := y.to(port, "A"); got == drained {
						y.t.Errorf("the new connection from port %d goes to the drained backend", port)
					}
					y.expectEntry(port, stateEstablished, true)
				}
			})
		})
	}
}

// portsOf is the nth port whose packets the base's table sends to a backend.
func (y *scenario) portsOf(backend, n int) int {
	y.t.Helper()
	at := y.r.model.standings[y.s.Key()]
	for port := 2; port < 1<<16; port++ {
		a := clientPacket{client: netip.AddrPortFrom(y.from, uint16(port))}
		if base, usable := at.baseOf(y.r.model, selectionHash(&y.s, a)); usable && base == backend {
			if n--; n == 0 {
				return port
			}
		}
	}
	y.t.Fatal("no port leads to the backend")
	return 0
}
