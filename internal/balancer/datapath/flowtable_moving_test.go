// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// setMovingFlows tells the program of a rig, and its model, that flows are being moved; not any more where the
// time that it may take is over.
func (r *rig) setMovingFlows(until time.Duration) {
	r.model.moving = until > flowtable.Monotonic()
	atomic.StoreUint64(&r.datapath.current.Memory.Head().Moving, uint64(until))
}

// TestFlowsMoving compares program and model while flows are being moved, before and after, and when the
// process was killed meanwhile.
func TestFlowsMoving(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		state := allKinds()
		r := newRig(t, hook, state)
		g := &generator{Rand: rand.New(rand.NewPCG(3, 4)), tb: t, model: r.model, ids: 1, first: state.Services}
		ends := r.feedRandom(t, hook, g, func(part int) {
			switch part % 3 {
			case 0:
				r.setMovingFlows(0)
			case 1:
				r.setMovingFlows(flowtable.Monotonic() + time.Hour)
			case 2:
				r.setMovingFlows(flowtable.Monotonic() - time.Second)
			}
		}, func() bool { return r.model.moving })
		if ends[true]["dropped_flows_moving"] == 0 || ends[true]["forwarded"] == 0 ||
			ends[false]["dropped_flows_moving"] != 0 {
			t.Errorf("packets ended so while no flows were moved: %v, and so while they were: %v", ends[false],
				ends[true])
		}
	})
}

// TestFlowsBeginAtTheExchange: flows begin in tables of another layout between the last copy and the exchange of the
// programs: until the next copy, their packets are not sent to another backend, nor to the client from another address,
// and then they go on.
func TestFlowsBeginAtTheExchange(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := freshRig(t, hook)
		var begun []packetSpec
		var backends []lb.BackendKey
		for _, vip := range vips {
			for port := uint16(portIPIP); port <= portFullNATAlike; port++ {
				service := r.model.service(vip, port, false)
				if !isTracked(service) {
					continue
				}
				p := modePacket(vip, port, false)
				expectOutcome(t, r, p.build(t), "forwarded")
				begun = append(begun, p)
				backends = append(backends,
					r.model.lookUp(r.model.flowOf(service, clientPacket{client: netip.AddrPortFrom(p.from,
						p.sport)})).backend)
			}
		}
		if len(begun) < 4 {
			t.Fatalf("flows that are remembered: %d", len(begun))
		}
		moving := r.missLastCopy(t, allModes(), anotherLayout(t))
		for i, p := range begun {
			for _, flags := range []string{"A", "PA", "FA"} {
				if got := r.outcome(t, with(p, func(p *packetSpec) { p.flags = flags }).build(t)); got != flowsMoving {
					t.Errorf("%s to %s, port %d, while its flow is in the old tables: %s", flags, p.at, p.dport, got)
				}
			}
			service := r.model.service(p.at, p.dport, false)
			if service.Mode != lb.NAT {
				continue
			}
			reply := packetSpec{from: backends[i].Address, sport: backends[i].Port, at: p.from, dport: p.sport,
				flags: "SA"}
			if got := r.outcome(t, reply.build(t)); got != "returned" && got != "passed_to_route" {
				t.Errorf("the answer of %s meanwhile: %s", backends[i].Address, got)
			}
		}
		moving.Finish()
		for _, p := range begun {
			expectOutcome(t, r, with(p, func(p *packetSpec) { p.flags = "A" }).build(t), "forwarded")
		}
	})
}

// TestDatagramsBeginAtTheExchange does the same with UDP, whose packets are not held back: nothing tells the first
// packet of a flow from the next. By a hash, a flow goes on with its backend in any case. Where its entry decides, it
// does so too if its next packet comes after the copies; if that comes before, it goes on with the backend of that
// packet, as does its client under persistence: it moves once at most.
func TestDatagramsBeginAtTheExchange(t *testing.T) {
	const byHash, byTurns, byClient = 5001, 5002, 5003
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		clients := testService(vip4, byClient, lb.UDP, lb.RoundRobin, 3)
		clients.Persistence.Timeout = time.Hour
		state := lb.State{Services: []lb.RoutedService{testService(vip4, byHash, lb.UDP, lb.Maglev, 3),
			testService(vip4, byTurns, lb.UDP, lb.RoundRobin, 3), clients}}
		r := newRig(t, hook, state)
		backendOf := func(host byte, sport, dport uint16) string {
			t.Helper()
			frame := packetSpec{from: netip.AddrFrom4([4]byte{203, 0, 113, host}), at: vip4, sport: sport, dport: dport,
				udp: true, payload: 20}.build(t)
			action, out := r.run(t, frame)
			if action == actions[hook].drop || action == actions[hook].pass {
				t.Errorf("a datagram to port %d ended with action %d", dport, action)
			}
			return net.HardwareAddr(out[:6]).String()
		}
		ports := []uint16{byHash, byTurns, byClient}
		const goesOn, first, later = 2, 1000, 1001
		waiting := []byte{1, 3}
		begun := map[byte]map[uint16]string{}
		for _, waits := range waiting {
			begun[waits] = map[uint16]string{}
			for _, port := range ports {
				begun[waits][port] = backendOf(waits, first, port)
			}
		}
		hashed := backendOf(goesOn, first, byHash)
		for _, port := range ports[1:] {
			backendOf(goesOn, first, port)
		}
		moving := r.missLastCopy(t, state, anotherLayout(t))
		meanwhile := map[uint16]string{}
		for _, port := range ports {
			meanwhile[port] = backendOf(goesOn, first, port)
		}
		if meanwhile[byHash] != hashed {
			t.Errorf("by a hash, a flow went from %s to %s", hashed, meanwhile[byHash])
		}
		moving.Finish()
		for range 3 {
			for _, waits := range waiting {
				for _, port := range ports {
					if is := backendOf(waits, first, port); is != begun[waits][port] {
						t.Errorf("port %d: a flow without a packet meanwhile went from %s to %s", port,
							begun[waits][port], is)
					}
				}
				if is := backendOf(waits, later, byClient); is != begun[waits][byClient] {
					t.Errorf("a client without a packet meanwhile went from %s to %s", begun[waits][byClient], is)
				}
			}
			for _, port := range ports {
				if is := backendOf(goesOn, first, port); is != meanwhile[port] {
					t.Errorf("port %d: a flow with a packet meanwhile went once more, from %s to %s", port,
						meanwhile[port], is)
				}
			}
			if is := backendOf(goesOn, later, byClient); is != meanwhile[byClient] {
				t.Errorf("a client with a packet meanwhile went once more, from %s to %s", meanwhile[byClient], is)
			}
		}
	})
}

// missLastCopy puts all flows of a rig with a state into tables of another layout, as if the programs had just
// been exchanged and nothing were copied yet.
func (r *rig) missLastCopy(t *testing.T, state lb.State, layout *snapshot.FlowLayout) *sharedmaps.Move {
	t.Helper()
	d := r.datapath
	c, err := d.register.Plan(state, testTableSize, d.now())
	if err != nil {
		t.Fatal(err)
	}
	// The program that runs goes on with its own tables, and finds nothing in them.
	own := *d.shared
	proven, unproven, _ := asForeignTables(t, d, layout)
	made := *d.shared
	*d.shared = own
	made.CloseUnless(d.shared)
	for _, table := range []*flowtable.Table{own.Proven, own.Unproven} {
		clear(table.Buckets)
	}
	if own.FullNAT != nil {
		clear(own.FullNAT.Buckets)
	}
	for _, table := range []sharedmaps.PreviousTable{proven.table, unproven.table} {
		t.Cleanup(table.Close)
	}
	d.current.Adopted = false
	previous := d.previous
	d.previous = nil
	m := &sharedmaps.Move{Janitor: d.janitor, From: d.shared, To: d.shared, Previous: previous,
		Returns: c.ReplyKeys(d.secret),
		Memory:  d.current.Memory, Begun: true}
	atomic.StoreUint64(&d.current.Memory.Head().Moving, uint64(flowtable.Monotonic()+time.Hour))
	return m
}

// outcome runs a frame through the program alone, and says how it ended.
func (r *rig) outcome(t *testing.T, frame []byte) string {
	t.Helper()
	r.run(t, frame)
	ended := r.movedOutcome(t)
	r.want = r.counters(t)
	return ended
}

// TestMoveCountsWhatHasNoRoom moves flows into tables that are too small for them: the number of lost ones is known,
// and reported once.
func TestMoveCountsWhatHasNoRoom(t *testing.T) {
	from, to := &sharedmaps.Maps{Proven: flowtable.NewTable(100, 0x5eed), Unproven: flowtable.NewTable(100, 0x5eed)},
		&sharedmaps.Maps{Proven: flowtable.NewTable(10, 0x5eed), Unproven: flowtable.NewTable(10, 0x5eed)}
	const proven, unproven = 60, 40
	for n := range proven + unproven {
		table, state := from.Proven, objects.XDPFlowStateFLOW_ESTABLISHED
		if n >= proven {
			table, state = from.Unproven, objects.XDPFlowStateFLOW_OPENING
		}
		if !table.Insert(sampleFlow(n), state, 1) {
			t.Fatalf("flow %d has no room", n)
		}
	}
	m := sharedmaps.Move{Janitor: flowtable.NewJanitor(lb.Timeouts{}), From: from, To: to,
		Memory: &generation.Memory{Storage: make(mapmem.Storage, mapmem.CacheLine/8)}}
	m.Begin()
	m.Finish()
	if there := len(to.Proven.Places()) + len(to.Unproven.Places()); m.Lost == 0 || there+m.Lost != proven+unproven {
		t.Errorf("of %d flows %d are there, and %d had no room", proven+unproven, there, m.Lost)
	}
	d := &Datapath{keeper: &keeper.Keeper{}}
	d.noteLostFlows(0)
	if d.keeper.Note != "" {
		t.Errorf("without a loss it says %q", d.keeper.Note)
	}
	if d.noteLostFlows(m.Lost); !strings.Contains(d.keeper.Note, fmt.Sprintf("%d had no room", m.Lost)) {
		t.Errorf("it says %q, and %d flows had no room", d.keeper.Note, m.Lost)
	}
}
