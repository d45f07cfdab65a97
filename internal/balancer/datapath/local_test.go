// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/local"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// emptyCgroup makes a control group that no process is in, and that goes with the test.
func emptyCgroup(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	root, err := local.Cgroup("")
	if err != nil && os.Getenv("JEOUL_TEST_ROOT") != "" {
		t.Fatal(err)
	} else if err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp(root, testenv.CgroupPrefix()+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Errorf("%s is left: %v", filepath.Base(dir), err)
		}
	})
	return dir
}

// TestAnswersOfTheHost: where programs of this host ask for services, backends' answers to them are left to the host
// untranslated, of services that track each flow, too; replies to hairpins and to other clients go where they went
// before.
func TestAnswersOfTheHost(t *testing.T) {
	cgroup := emptyCgroup(t)
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		state := hairpinState()
		state.Local = cgroup
		for i := range state.Services {
			if s := &state.Services[i]; s.Mode == lb.NAT {
				s.Scheduler = lb.RoundRobin
			}
		}
		r := hairpinRig(t, hook, state)
		for _, vip := range vips {
			for _, udp := range []bool{false, true} {
				p := modePacket(vip, portNAT, udp)
				p.from = clientOf(1, vip.Is6(), 7)
				sent, _ := r.expectSent(t, p.build(t), "forwarded")
				near := p
				near.from = clientOf(0, vip.Is6(), 7)
				hairpin, _ := r.open(t, near)
				for _, flags := range []string{"SA", "A", "FA", "R"} {
					reply := packetSpec{from: sent.destination, at: localTo(vip.Is6()), sport: sent.dport, dport: 40000,
						udp: udp, flags: flags, payload: 10}
					if left, _ := r.expectSent(t, reply.build(t), notForwarded); left.source != reply.from ||
						left.dport != reply.dport {
						t.Errorf("%s: an answer to this host was changed", hook)
					}
				}
				toHairpin := packetSpec{from: hairpin.destination, at: hairpin.source, sport: hairpin.dport,
					dport: hairpin.sport, udp: udp, flags: "A", payload: 10}
				if back, _ := r.expectSent(t, toHairpin.build(t), "returned"); back.destination != near.from {
					t.Errorf("%s: a reply to a near client went to %s", hook, back.destination)
				}
				toClient := packetSpec{from: sent.destination, at: p.from, sport: sent.dport, dport: p.sport, udp: udp,
					flags: "A", payload: 10}
				if back, _ := r.expectSent(t, toClient.build(t), "returned"); back.source != vip {
					t.Errorf("%s: a reply to a client is from %s", hook, back.source)
				}
			}
		}
	})
}
