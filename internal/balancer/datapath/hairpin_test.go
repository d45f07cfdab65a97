// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Ports of the hairpins of these tests.
const firstHairpin, lastHairpin = 61000, 61999

// hairpinState is allModes with near clients: those of the first subnet.
func hairpinState() lb.State {
	state := allModes()
	near := lb.Near{}
	for _, vip := range vips {
		near.Prefixes = append(near.Prefixes, clientNetwork(vip))
	}
	state.Hairpin = lb.Hairpin{Near: []lb.Near{near}, FirstPort: firstHairpin, LastPort: lastHairpin}
	return state
}

// hairpinRig is the program alone: the model knows no hairpins, and each test has its own expectations.
func hairpinRig(t *testing.T, hook lb.Hook, state lb.State) *rig {
	t.Helper()
	r := newRig(t, hook, state)
	stayOnThisCPU(t)
	return r
}

// expectSent runs a frame through the program, and reads the frame that comes out.
func (r *rig) expectSent(t *testing.T, frame []byte, want string) (header, []byte) {
	t.Helper()
	_, out := r.run(t, frame)
	outcome := r.movedOutcome(t)
	r.want = r.counters(t)
	if outcome != want {
		t.Fatalf("%s: a packet ended as %q, want %q", r.hook, outcome, want)
	}
	out = slices.Clone(out)
	h, ok := readHeader(out[14:], out[12] == 0x86, 0)
	if !ok {
		t.Fatalf("%s: what came out cannot be read: %x", r.hook, out)
	}
	if h.part != laterFragment && !h.isICMP() && !h.readTransport(out[14:]) {
		t.Fatalf("%s: the ports of what came out cannot be read: %x", r.hook, out)
	}
	return h, out
}

// localTo is the address by which backends know the balancer.
func localTo(six bool) netip.Addr {
	if six {
		return local6
	}
	return local4
}

// eachHairpin tries a packet of a near client for each service of mode nat.
func eachHairpin(t *testing.T, test func(t *testing.T, r *rig, p packetSpec)) {
	t.Helper()
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := hairpinRig(t, hook, hairpinState())
		for _, vip := range vips {
			for _, udp := range []bool{false, true} {
				p := modePacket(vip, portNAT, udp)
				p.from = clientOf(0, vip.Is6(), 7)
				test(t, r, p)
			}
		}
	})
}

// open sends a near client's first packet, and checks how it gets to a backend.
func (r *rig) open(t *testing.T, p packetSpec) (sent header, out []byte) {
	t.Helper()
	sent, out = r.expectSent(t, p.build(t), "forwarded")
	if sent.source != localTo(p.at.Is6()) || sent.sport < firstHairpin || sent.sport > lastHairpin {
		t.Fatalf("%s: a near client's packet is from %s port %d", r.hook, sent.source, sent.sport)
	}
	return sent, out
}

// TestHairpinFlows: a near client's flow goes through full NAT, from the address that its backend knows us
// by, and comes back; its later packets go the same way.
func TestHairpinFlows(t *testing.T) {
	eachHairpin(t, func(t *testing.T, r *rig, p packetSpec) {
		sent, _ := r.open(t, p)
		for range 3 {
			reply := packetSpec{from: sent.destination, at: sent.source, sport: sent.dport, dport: sent.sport,
				udp: p.udp, flags: "SA", payload: 10}
			back, _ := r.expectSent(t, reply.build(t), "returned")
			if back.source != p.at || back.sport != p.dport || back.destination != p.from || back.dport != p.sport {
				t.Errorf("the reply is from %s port %d to %s port %d", back.source, back.sport, back.destination,
					back.dport)
			}
			p.flags = "A"
			if again, _ := r.expectSent(t, p.build(t), "forwarded"); again.source != sent.source ||
				again.sport != sent.sport || again.destination != sent.destination {
				t.Errorf("its flow goes on from %s port %d to %s, and was from %s port %d to %s", again.source,
					again.sport, again.destination, sent.source, sent.sport, sent.destination)
			}
		}
	})
}

// TestHairpinIsForNearClients: a backend sees the address of each other client.
func TestHairpinIsForNearClients(t *testing.T) {
	eachHairpin(t, func(t *testing.T, r *rig, p packetSpec) {
		p.from = clientOf(1, p.at.Is6(), 7)
		if sent, _ := r.expectSent(t, p.build(t), "forwarded"); sent.source != p.from || sent.sport != p.sport {
			t.Errorf("a client that is not near is %s port %d to its backend", sent.source, sent.sport)
		}
	})
}

// TestHairpinLeavesTheHost: a packet that is no reply to a flow of a hairpin is left to the host, at any port.
func TestHairpinLeavesTheHost(t *testing.T) {
	eachHairpin(t, func(t *testing.T, r *rig, p packetSpec) {
		sent, _ := r.open(t, p)
		for _, port := range []uint16{sent.sport ^ 1, 40000} {
			reply := packetSpec{from: sent.destination, at: sent.source, sport: sent.dport, dport: port, udp: p.udp,
				flags: "A", payload: 10}
			if left, _ := r.expectSent(t, reply.build(t), notForwarded); left.source != reply.from {
				t.Errorf("a packet to the host's own port %d was changed", port)
			}
		}
	})
}

// TestHairpinErrors: an ICMP error about a flow's packet reaches its client, who has sent to the VIP.
func TestHairpinErrors(t *testing.T) {
	eachHairpin(t, func(t *testing.T, r *rig, p packetSpec) {
		_, out := r.open(t, p)
		back, frame := r.expectSent(t, icmpError(t, transitRouter(p.at.Is6()), out, 100), "returned")
		quote := frame[14+back.transport+8:]
		quoted, ok := readHeader(quote, p.at.Is6(), 0)
		if back.destination != p.from || !ok || quoted.source != p.from || quoted.destination != p.at {
			t.Errorf("the error is for %s, and about a packet from %s to %s", back.destination, quoted.source,
				quoted.destination)
		}
	})
}

// TestHairpinFragments: the parts of a near client's datagram follow the first.
func TestHairpinFragments(t *testing.T) {
	eachHairpin(t, func(t *testing.T, r *rig, p packetSpec) {
		p.payload = 300
		parts := threeParts(p.build(t), 7)
		for i, part := range parts {
			if sent, _ := r.expectSent(t, part, "forwarded"); sent.source != localTo(p.at.Is6()) {
				t.Errorf("part %d is from %s", i, sent.source)
			}
		}
	})
}

// TestHairpinWithoutAddress: where this host has no address that the backends could answer, near clients are
// refused under a name, and others are served.
func TestHairpinWithoutAddress(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		state := hairpinState()
		for i := range state.Services {
			s := &state.Services[i]
			s.Paths = slices.Clone(s.Paths)
			for j := range s.Paths {
				s.Paths[j].Local = netip.Addr{}
			}
		}
		r := hairpinRig(t, hook, state)
		p := modePacket(vip4, portNAT, false)
		p.from = clientOf(0, false, 7)
		r.expectSent(t, p.build(t), "dropped_no_address")
		p.from = clientOf(1, false, 7)
		r.expectSent(t, p.build(t), "forwarded")
		r.applyAll(t, withAnswers(state))
		r.want = r.counters(t)
		for _, udp := range []bool{false, true} {
			p := modePacket(vip4, portNAT, udp)
			p.from = clientOf(0, false, 7)
			r.expectSent(t, p.build(t), answered("dropped_no_address", udp))
		}
	})
}

// TestHairpinWithoutPorts: where the host's own connections take all ports, near clients are refused under a
// name.
func TestHairpinWithoutPorts(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		state := hairpinState()
		state.Hairpin.FirstPort, state.Hairpin.LastPort = 0, 0
		r := hairpinRig(t, hook, state)
		p := modePacket(vip4, portNAT, false)
		p.from = clientOf(0, false, 7)
		r.expectSent(t, p.build(t), "dropped_no_port")
		p.from = clientOf(1, false, 7)
		r.expectSent(t, p.build(t), "forwarded")
	})
}

// TestHairpinFollowsTheAddress: with another address of ours on the path to a backend, the flows from the previous one
// end, and new ones are from the new one.
func TestHairpinFollowsTheAddress(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		state := hairpinState()
		r := hairpinRig(t, hook, state)
		p := modePacket(vip4, portNAT, false)
		p.from = clientOf(0, false, 7)
		r.open(t, p)
		for i := range state.Services {
			s := &state.Services[i]
			s.Paths = slices.Clone(s.Paths)
			for j := range s.Paths {
				s.Paths[j].Local = localTo(s.Paths[j].Local.Is6()).Next()
			}
		}
		r.applyAll(t, state)
		r.want = r.counters(t)
		p.flags = "A"
		r.expectSent(t, p.build(t), "dropped_no_flow")
		p.flags = "S"
		if sent, _ := r.expectSent(t, p.build(t), "forwarded"); sent.source != local4.Next() {
			t.Errorf("a new flow is from %s, and the address is %s", sent.source, local4.Next())
		}
	})
}

// TestHairpinIsCountedWithItsService: others know one service, and its backends.
func TestHairpinIsCountedWithItsService(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := hairpinRig(t, hook, hairpinState())
		p := modePacket(vip4, portNAT, false)
		for subnet := range 2 {
			p.from = clientOf(subnet, false, 7)
			r.expectSent(t, p.build(t), "forwarded")
		}
		r.datapath.janitor.Advance(0)
		counters, err := r.datapath.Counters()
		if err != nil {
			t.Fatal(err)
		}
		key := lb.ServiceKey{VIP: vip4, Port: portNAT, Protocol: lb.TCP}
		var packets uint64
		for backend, count := range counters.Backends {
			if backend.Service == key {
				packets += count.Packets
			}
			if backend.Service.Hairpin {
				t.Errorf("%v is told of", backend)
			}
		}
		if service := counters.Services[key]; packets != 2 || service.Hairpins != 1 {
			t.Errorf("%d packets and %d flows of near clients were counted, want 2 and 1", packets, service.Hairpins)
		}
		flows, _, err := r.datapath.Flows(func(f *lb.Flow) bool { return f.Client.Addr() == clientOf(0, false, 7) }, 10)
		if err != nil || len(flows) != 1 || flows[0].Source.Addr() != local4 || flows[0].Backend.Service != key {
			t.Errorf("the flow is shown as %v, %v", flows, err)
		}
	})
}

// TestHairpinComesAndGoes by a change of who is near, and the program is another one only then.
func TestHairpinComesAndGoes(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		with, without := hairpinState(), hairpinState()
		without.Hairpin = lb.Hairpin{}
		r := hairpinRig(t, hook, without)
		p := modePacket(vip4, portNAT, false)
		p.from = clientOf(0, false, 7)
		for _, step := range []struct {
			state lb.State
			from  netip.Addr
		}{{without, p.from}, {with, local4}, {without, p.from}} {
			r.applyAll(t, step.state)
			r.want = r.counters(t)
			p.sport++
			if sent, _ := r.expectSent(t, p.build(t), "forwarded"); sent.source != step.from {
				t.Errorf("the backend sees %s, want %s", sent.source, step.from)
			}
		}
	})
}
