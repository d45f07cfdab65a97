// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// mirroredNumber is the number of the change that the next hop of TestMirroredReplies belongs to.
const mirroredNumber = 77

// TestMirroredReplies: a reply whose route is mirrored differs by its MAC addresses alone from one that the kernel was
// asked for, and is counted as it is.
func TestMirroredReplies(t *testing.T) {
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, allModes()) // of its own: the mirror, and the clock, stay changed
		asked := map[string]verdict{}
		for _, vip := range vips {
			for _, port := range []uint16{portNAT, portFullNAT} {
				for _, udp := range []bool{false, true} {
					p := modePacket(vip, port, udp)
					p.from = clientOf(0, vip.Is6(), 7)
					reply := backOf(slices.Clone(expectOutcome(t, r, p.build(t), "forwarded").frame))
					for _, frame := range [][]byte{reply, tagged(reply, 0x8100)} {
						v := expectOutcome(t, r, frame, "returned")
						if v.outcome == "returned" { // TC has tags beside the frame, and none in it
							v.frame = slices.Clone(v.frame)
							asked[string(frame)] = v
						}
					}
				}
			}
		}
		routes := routesOf(mirroredNumber)
		routes.IPv6 = true
		routes.Routes = append(routes.Routes, lb.ReplyRoute{Hop: routes.Routes[0].Hop,
			Prefix: netip.MustParsePrefix("2001::/16")})
		if err := errors.Join(r.datapath.WriteReplyRoutes(routes), r.datapath.EnableReplyRoutes(routes)); err != nil {
			t.Fatal(err)
		}
		// From here on the model cannot judge: it knows the kernel's routes alone.
		for frame, v := range asked {
			replyByMirror(t, r, []byte(frame), v)
		}
	})
}

// replyByMirror sends a reply until its next hop is the mirrored one.
func replyByMirror(t *testing.T, r *rig, frame []byte, asked verdict) {
	t.Helper()
	macs := slices.Concat(hopOfChange(10, mirroredNumber), hopOfChange(14, mirroredNumber))
	sent := 0
	returned := func() (packets uint64) {
		for _, c := range r.counters(t).Backends {
			packets += c.ReturnedPackets
		}
		return packets
	}
	before := returned()
	for ; sent < 200; sent++ {
		if sent%4 == 0 { // a CPU learns from two ticks that the clock goes on, and asks the kernel twice in each
			r.datapath.Tick()
		}
		action, out := r.run(t, frame)
		if action != r.action(asked) {
			t.Fatalf("action %d, want %d", action, r.action(asked))
		}
		if !bytes.Equal(out[12:], asked.frame[12:]) {
			t.Fatalf("% x is sent, and by the kernel's route % x", out, asked.frame)
		}
		if bytes.Equal(out[:12], macs) {
			break
		}
	}
	if sent == 200 {
		t.Fatalf("the kernel is asked for each of %d replies whose route is mirrored: % x", sent, frame)
	}
	if got := returned() - before; got != uint64(sent)+1 {
		t.Errorf("%d replies are counted, of %d", got, sent+1)
	}
}
