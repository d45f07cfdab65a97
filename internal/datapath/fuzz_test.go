// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"testing"

	"github.com/jeoul/jeoul/internal/lb"
)

// randomPacket makes a packet that is near enough to a good one to get past
// the first check, and in a third of the cases something about it lies.
func randomPacket(t *testing.T, r *rand.Rand, state State) []byte {
	s := state.Services[r.IntN(len(state.Services))]
	p := packetSpec{at: s.VIP, dport: s.Port, udp: s.Protocol == lb.UDP, from: client4,
		sport: uint16(1 + r.IntN(64)), payload: r.IntN(3) * r.IntN(400)}
	if s.VIP.Is6() {
		p.from = client6
	}
	p.flags = []string{"S", "S", "A", "PA", "FA", "R", "SA", "SF", ""}[r.IntN(9)]
	if r.IntN(8) == 0 {
		p.dport = uint16(r.IntN(3)) + 79
	}
	if r.IntN(16) == 0 {
		p.udp = !p.udp
	}
	a := p.from.AsSlice()
	a[len(a)-1] = byte(r.IntN(4))
	p.from, _ = netip.AddrFromSlice(a)
	frame := p.build(t)
	if s.VIP.Is6() {
		frame = randomExtensions(r, frame)
	}
	if r.IntN(3) == 0 {
		frame = mutate(r, frame)
	}
	return frame
}

func randomExtensions(r *rand.Rand, frame []byte) []byte {
	var extensions [][2]byte
	for range r.IntN(6) * r.IntN(2) {
		extensions = append(extensions, [2]byte{[]byte{0, 43, 60, 44}[r.IntN(4)], 1})
		if last := &extensions[len(extensions)-1]; last[0] != 44 {
			last[1] += byte(r.IntN(3))
		}
	}
	return ipv6WithExtensions(frame, extensions...)
}

// mutate changes bits of the headers, cuts the packet, or adds to it.
func mutate(r *rand.Rand, frame []byte) []byte {
	for range 1 + r.IntN(3) {
		switch r.IntN(6) {
		case 0:
			frame = frame[:14+r.IntN(len(frame)-13)]
		case 1:
			frame = append(frame, make([]byte, r.IntN(64))...)
		case 2:
			at := 16
			if binary.BigEndian.Uint16(frame[12:]) == 0x86dd {
				at = 18
			}
			if len(frame) > at+2 {
				binary.BigEndian.PutUint16(frame[at:], uint16(r.IntN(2*len(frame))))
			}
		default:
			frame[r.IntN(min(len(frame), 80))] ^= 1 << r.IntN(8)
		}
	}
	return frame
}

// TestRandomPackets compares the programs with the model on many packets, while
// the configuration changes. JEOUL_FUZZ_PACKETS sets how many, for long runs;
// JEOUL_FUZZ_SEED repeats one.
func TestRandomPackets(t *testing.T) {
	packets, seed := number(t, "JEOUL_FUZZ_PACKETS", 6000), number(t, "JEOUL_FUZZ_SEED", 1)
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		random := rand.New(rand.NewPCG(seed, 0))
		state := testState()
		r := newRig(t, hook, state)
		ends := map[string]int{}
		for i := uint64(0); i < packets && !t.Failed(); i++ {
			if i%500 == 499 {
				state = randomChange(random, state)
				r.apply(t, state)
			}
			frame := randomPacket(t, random, testState())
			if testable(hook, frame) {
				ends[r.check(t, frame).outcome]++
			}
		}
		if t.Failed() {
			t.Logf("repeat with JEOUL_FUZZ_SEED=%d", seed)
		}
		t.Logf("%d packets: %v", packets, ends)
		for _, outcome := range r.last.Outcomes {
			if ends[outcome.Name] == 0 {
				t.Errorf("no packet ended as %s: the generator does not reach it", outcome.Name)
			}
		}
	})
}

// randomChange returns a state that differs from the last in its backends.
func randomChange(r *rand.Rand, last State) State {
	next := State{}
	for i, s := range testState().Services {
		old := last.Services[i]
		s.Backends = append([]lb.Backend(nil), s.Backends...)
		switch r.IntN(4) {
		case 0: // as before
			s = old
		case 1: // one leaves
			s.Backends, s.Paths = s.Backends[1:], s.Paths[min(1, len(s.Paths)):]
		case 2: // one is lost from sight
			if len(s.Paths) > 0 {
				s.Paths[r.IntN(len(s.Paths))].MAC = nil
			}
		case 3: // one takes no new flows
			s.Backends[r.IntN(len(s.Backends))].Weight = 0
		}
		next.Services = append(next.Services, s)
	}
	return next
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// FuzzPacket looks for a packet on which program and model differ.
func FuzzPacket(f *testing.F) {
	for _, p := range []packetSpec{web4(), web6(),
		{from: client4, at: vip4, sport: 1, dport: 53, udp: true},
		{from: client6, at: vip6, sport: 1, dport: 53, udp: true},
		{from: client4, at: vip4, sport: 1, dport: 8080, flags: "S"}} {
		f.Add(p.build(f))
	}
	f.Add(ipv6WithExtensions(web6().build(f), [2]byte{0, 1}, [2]byte{44, 1}))
	rigs := []*rig{newRig(f, lb.HookXDP, testState()), newRig(f, lb.HookTC, testState())}
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, r := range rigs {
			if testable(r.hook, frame) && len(frame) < 3000 {
				r.check(t, frame)
			}
		}
	})
}
