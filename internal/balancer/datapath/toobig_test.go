// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestTooBig sends packets of sizes around the largest that fits the path to each backend of each service.
func TestTooBig(t *testing.T) {
	eachMode(t, func(t *testing.T, r *rig, s *lb.RoutedService) {
		base := modePacket(s.VIP, s.Port, s.Protocol == lb.UDP)
		for backend := range s.Backends {
			base.sport = sportOf(t, r.model, s, base.from, backend)
			room := mtuTo(s, backend) - overhead(s.Mode, s.Backends[backend].Address) - headersOf(base)
			for _, more := range []int{-1, 0, 1, 50} {
				want := "forwarded"
				if more > 0 {
					want = "answered_too_big"
				}
				p := base
				p.payload = room + more
				frame := p.build(t)
				// Round robin goes by turns, not by the port.
				v := r.check(t, frame)
				if s.Scheduler == lb.Maglev && v.outcome != want {
					t.Errorf("%d beyond: the model says %s, the table %s", more, v.outcome, want)
				}
				r.check(t, tagged(frame, 0x8100))
				p.df = true
				r.check(t, p.build(t))
			}
		}
	})
}

// headersOf is the length of a packet's headers in bytes.
func headersOf(p packetSpec) int {
	size := 20
	if p.at.Is6() {
		size = 40
	}
	if p.udp {
		return size + 8
	}
	return size + 20
}

// bigPacket is too big for any path of the service.
func bigPacket(vip netip.Addr) packetSpec {
	p := modePacket(vip, portGUE, false)
	p.payload = 1500
	return p
}

// TestTooBigIsNotAnswered sends packets that are too big and whose sender cannot be told.
func TestTooBigIsNotAnswered(t *testing.T) {
	from := func(text string) []byte {
		a := netip.MustParseAddr(text)
		p := bigPacket(vip4)
		if a.Is6() {
			p = bigPacket(vip6)
		}
		p.from = a
		return p.build(t)
	}
	big := bigPacket(vip4)
	big.payload = 3 * 1600
	cases := []packetCase{
		{"answered", bigPacket(vip4).build(t), "answered_too_big"},
		{"answered, IPv6", bigPacket(vip6).build(t), "answered_too_big"},
		{"wrong checksum", patched(bigPacket(vip4).build(t), 50, 1, 2), "answered_too_big"},
		{"options", ipv6WithExtensions(bigPacket(vip6).build(t), [2]byte{60, 4}), "answered_too_big"},
		{"padding", append(bigPacket(vip4).build(t), make([]byte, 100)...), "answered_too_big"},
		{"first fragment", fragment(big.build(t), 31, 0, 1600), "answered_too_big"},
		{"what follows it", fragment(big.build(t), 31, 1600, 3200), "dropped_fragment"},
		{"first fragment that fits", fragment(big.build(t), 32, 0, 104), "forwarded"},
		{"later fragment", fragment(big.build(t), 32, 1600, 3200), "dropped_too_big"},
	}
	for _, text := range []string{"224.0.0.1", "239.255.255.255", "0.0.0.0", "255.255.255.255", "127.0.0.1",
		"127.9.9.9", "::", "::1", "ff02::1"} {
		cases = append(cases, packetCase{"from " + text, from(text), "dropped_too_big"})
	}
	runCases(t, freshRig, cases)
}

// TestBackendWithoutPath: a packet that chose a backend just before that went down, and reads its row after the path
// has left it, is dropped. It is not too big.
func TestBackendWithoutPath(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRigWith(t, testOptions(hook), allModes())
		memory := r.datapath.current.Memory
		for _, vip := range vips {
			for _, port := range []uint16{portIPIP, portGUE, portDSCP, portNAT} {
				frame := modePacket(vip, port, false).build(t)
				if action, _ := r.run(t, frame); action == actions[hook].drop {
					t.Fatalf("%v, port %d: dropped, although there is a path", vip, port)
				}
				for key, at := range r.datapath.register.Places.Backends {
					row := memory.Rows.Get(at.Index)
					service := lb.ServiceKey{VIP: vip, Port: port, Protocol: lb.TCP}
					if key.Service != service || row.Mtu == 0 {
						continue
					}
					if memory.Rows.Spares() == 0 {
						t.Fatal("no spare row is left")
					}
					row.Mtu = 0
					memory.Rows.Set(at.Index, &row, memory.Grace)
				}
				if action, _ := r.run(t, frame); action != actions[hook].drop {
					t.Errorf("%v, port %d: action %d without a path, want %d", vip, port, action, actions[hook].drop)
				}
			}
		}
	})
}

// TestTooBigRate bounds the answers: a flood of packets that are too big is not
// answered with a flood.
func TestTooBigRate(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		options := testOptions(hook)
		options.TooBigRate = 3
		r := newRigWith(t, options, allModes())
		answered := 0
		for _, vip := range slices.Repeat(vips, 200) {
			frame := bigPacket(vip).build(t)
			action, _ := r.run(t, frame)
			want := "dropped_too_big"
			if action == actions[hook].transmit {
				want = "answered_too_big"
				answered++
			} else if action != actions[hook].drop {
				t.Fatalf("action %d", action)
			}
			countVerdict(&r.want, verdict{outcome: want})
		}
		if problem := r.compareCounters(t); problem != "" {
			t.Error(problem)
		}
		// The limit is per CPU, and the test may move; it takes some seconds at the
		// very most.
		if answered == 0 || answered > 200 {
			t.Errorf("%d of 400 packets were answered at 3 a second", answered)
		}
	})
}

// TestGSO gives TC a packet that the kernel will cut: its size does not matter, because it is the segments that travel.
func TestGSO(t *testing.T) {
	r := newRig(t, lb.HookTC, allModes())
	r.model.gso = true
	p := modePacket(vip4, portNAT, false)
	p.flags, p.payload = "A", 2400
	frame := p.build(t)
	r.context = func(length int) []byte {
		context := contextFrom(lb.HookTC, 0, length)
		binary.NativeEndian.PutUint32(context[164:], 2)    // gso_segs
		binary.NativeEndian.PutUint32(context[176:], 1200) // gso_size
		return context
	}
	if v, problem := r.feed(t, frame); v.outcome != "forwarded" || problem != "" {
		t.Errorf("%s: %s", v.outcome, problem)
	}
	// On the wire there are two, and the counter says so.
	if got := r.counters(t).Outcomes[0]; got.Packets != 2 {
		t.Errorf("%s is %d after a packet of two segments", got.Name, got.Packets)
	}
}
