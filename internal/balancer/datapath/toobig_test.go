// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
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

// gsoCases are packets that stand for several on the wire: segments counts those, 0 where a device does not, and size
// is the length of their payload, in bytes; 0: as much as the path to the backend takes, without TCP options. The
// header of a big one has no length.
var gsoCases = []struct {
	name           string
	port           uint16
	reply          bool
	subnet         int
	payload        int
	options        []byte
	segments, size int
	big            bool
	want           string
}{
	{name: "to a backend", port: portNAT, payload: 2400, segments: 2, size: 1200, want: "forwarded"},
	{name: "segments that are too big", port: portNAT, payload: 3200, segments: 2, size: 1600, want: "answered_too_big"},
	{name: "as large as the path takes", port: portNAT, payload: 2860, segments: 2, want: "forwarded"},
	{name: "too big by their options", port: portNAT, payload: 2860, segments: 2, options: []byte{1, 1, 1, 1},
		want: "answered_too_big"},
	{name: "segments that no tunnel has room for", port: portIPIP, payload: 3200, segments: 2, size: 1600,
		want: "answered_too_big"},
	{name: "replies", reply: true, payload: 2400, segments: 2, size: 1200, want: "returned"},
	{name: "replies whose segments are not counted", reply: true, payload: 2400, size: 1200, want: "returned"},
	{name: "replies that exceed the route", reply: true, subnet: 2, payload: 2600, segments: 2, size: 1300,
		want: "answered_too_big"},
	{name: "BIG TCP to a backend", port: portNAT, payload: 2400, segments: 2, size: 1200, big: true, want: "forwarded"},
	{name: "BIG TCP to no service", port: 9, payload: 2400, segments: 2, size: 1200, big: true,
		want: "passed_no_service"},
	{name: "BIG TCP segments that are too big", port: portNAT, payload: 3200, segments: 2, size: 1600, big: true,
		want: "answered_too_big"},
	{name: "BIG TCP replies", reply: true, payload: 2400, segments: 2, size: 1200, big: true, want: "returned"},
	{name: "replies that fit the route", reply: true, subnet: 2, payload: 900, segments: 3, size: 300, want: "returned"},
}

// removeLength makes the length field of a frame's IP header 0, as the kernel does for a packet that is too long for
// it.
func removeLength(frame []byte) {
	if frame[12] == 0x86 {
		binary.BigEndian.PutUint16(frame[14+4:], 0)
		return
	}
	header := frame[14 : 14+ipv4Size]
	binary.BigEndian.PutUint16(header[2:], 0)
	binary.BigEndian.PutUint16(header[10:], 0)
	binary.BigEndian.PutUint16(header[10:], ^sum(header))
}

// TestGSO gives TC packets that the kernel will cut: their size does not matter, because it is the segments that
// travel.
func TestGSO(t *testing.T) {
	for _, c := range gsoCases {
		for _, vip := range vips {
			t.Run(c.name+"-"+vip.String(), func(t *testing.T) {
				const pathMTU = 1500
				state := allModes()
				for _, s := range state.Services {
					for i := range s.Paths {
						s.Paths[i].MTU = pathMTU
					}
				}
				r := newRig(t, lb.HookTC, state)
				p := modePacket(vip, c.port, false)
				size := cmp.Or(c.size, pathMTU-headersOf(p))
				r.model.gso = size
				if c.reply {
					p = natReply(r.model, vip, false, clientOf(c.subnet, vip.Is6(), 7))
				}
				p.flags, p.payload, p.tcpOptions, p.df = "A", c.payload, c.options, true
				r.context = func(length int) []byte {
					context := contextFrom(lb.HookTC, 0, length)
					binary.NativeEndian.PutUint32(context[164:], uint32(c.segments)) // gso_segs
					binary.NativeEndian.PutUint32(context[176:], uint32(size))       // gso_size
					return context
				}
				frame := p.build(t)
				if c.big {
					removeLength(frame)
				}
				if v, problem := r.feed(t, frame); v.outcome != c.want || problem != "" {
					t.Errorf("%s, want %s: %s", v.outcome, c.want, problem)
				}
				// On the wire there are several, and the counter says so. What is answered is cut, and then one packet.
				packets := uint64((c.payload + size - 1) / size)
				for _, got := range r.counters(t).Outcomes {
					if got.Name == c.want && c.want != "answered_too_big" && got.Packets != packets {
						t.Errorf("%s is %d after a packet of %d segments", got.Name, got.Packets, packets)
					}
				}
			})
		}
	}
}
