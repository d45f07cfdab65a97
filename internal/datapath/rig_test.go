// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/testenv"
)

// What a program returns for an outcome, by hook: XDP_DROP, XDP_PASS, XDP_TX;
// TC_ACT_SHOT, TC_ACT_UNSPEC, TC_ACT_REDIRECT.
var actions = map[lb.Hook]struct{ drop, pass, transmit uint32 }{
	lb.HookXDP: {1, 2, 3},
	lb.HookTC:  {2, 0xffffffff, 7},
}

// Small tables keep the tests quick; they are primes all the same.
const testTableSize = 251

var (
	balancerMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	routerMAC   = net.HardwareAddr{2, 0, 0, 0, 0, 0xfe}
	vip4        = netip.MustParseAddr("198.18.0.100")
	vip6        = netip.MustParseAddr("2001:2::100")
	client4     = netip.MustParseAddr("198.18.1.7")
	client6     = netip.MustParseAddr("2001:2::1:7")
)

// testService returns a service of n backends whose MAC addresses are known.
func testService(vip netip.Addr, port uint16, protocol lb.Protocol, scheduler lb.Scheduler, n int) Service {
	s := Service{Service: lb.Service{
		Name: fmt.Sprintf("%s-%s-%d", scheduler, protocol, port), VIP: vip, Port: port,
		Protocol: protocol, Mode: lb.L2DSR, Scheduler: scheduler,
	}}
	address := netip.MustParseAddr("198.18.2.1")
	if vip.Is6() {
		address = netip.MustParseAddr("2001:2::2:1")
	}
	for i := range n {
		s.Backends = append(s.Backends, lb.Backend{
			Name: fmt.Sprintf("web%02d", i+1), Address: address, Port: port, Weight: 1})
		s.Paths = append(s.Paths, Path{MAC: net.HardwareAddr{2, 0, 0, byte(port), byte(i >> 8), byte(i + 1)}, Source: balancerMAC})
		address = address.Next()
	}
	return s
}

// testState has a service of each kind, one without a usable backend, and one
// of whose backends is down.
func testState() State {
	empty := testService(vip4, 81, lb.TCP, lb.Maglev, 2)
	empty.Paths = nil
	partly := testService(vip4, 82, lb.TCP, lb.Maglev, 3)
	partly.Paths[1].MAC = nil
	partly.Backends[2].Weight = 0
	return State{Services: []Service{
		testService(vip4, 80, lb.TCP, lb.Maglev, 5),
		testService(vip4, 53, lb.UDP, lb.Maglev, 5),
		testService(vip6, 80, lb.TCP, lb.Maglev, 5),
		testService(vip6, 53, lb.UDP, lb.Maglev, 5),
		testService(vip4, 8080, lb.TCP, lb.RoundRobin, 3),
		testService(vip4, 5353, lb.UDP, lb.RoundRobin, 3),
		testService(vip6, 8080, lb.TCP, lb.RoundRobin, 3),
		empty,
		partly,
	}}
}

// rig is the real program of one hook beside the model of it.
type rig struct {
	hook     lb.Hook
	datapath *Datapath
	model    *model
	last     Counters
}

func newRig(tb testing.TB, hook lb.Hook, state State) *rig {
	tb.Helper()
	testenv.Root(tb)
	r := &rig{hook: hook, datapath: NewDetached(Options{Hook: hook, TableSize: testTableSize, FlowEntries: 1 << 16}, balancerMAC)}
	tb.Cleanup(func() { r.datapath.Close() })
	if err := r.datapath.Apply(state); err != nil {
		tb.Fatalf("%s: %v", hook, err)
	}
	var err error
	if r.model, err = newModel(balancerMAC, state, testTableSize); err != nil {
		tb.Fatal(err)
	}
	r.last = r.counters(tb)
	return r
}

func (r *rig) counters(tb testing.TB) Counters {
	tb.Helper()
	counters, err := r.datapath.Counters()
	if err != nil {
		tb.Fatal(err)
	}
	return counters
}

// apply changes the configuration of the program and of the model.
func (r *rig) apply(tb testing.TB, state State) {
	tb.Helper()
	if err := r.datapath.Apply(state); err != nil {
		tb.Fatal(err)
	}
	if err := r.model.apply(state, testTableSize); err != nil {
		tb.Fatal(err)
	}
	r.last = r.counters(tb)
}

// testable says whether BPF_PROG_TEST_RUN takes the frame: as a socket buffer
// it must be linear in a page, and hold the IP header that its type announces.
func testable(hook lb.Hook, frame []byte) bool {
	if hook != lb.HookTC {
		return len(frame) >= 14
	}
	least := 14
	if len(frame) >= least {
		switch binary.BigEndian.Uint16(frame[12:]) {
		case 0x0800:
			least += 20
		case 0x86dd:
			least += 40
		}
	}
	return len(frame) > 14 && len(frame) >= least && len(frame) < 3000
}

// dump prints as much of a frame as a person can use.
func dump(frame []byte) string {
	return fmt.Sprintf("%d bytes: %x", len(frame), frame[:min(len(frame), 128)])
}

// check runs a frame through the program and compares verdict, bytes and all
// counters with the model's; it returns the model's verdict.
func (r *rig) check(tb testing.TB, frame []byte) verdict {
	tb.Helper()
	want := r.model.decide(frame)
	action, out, err := r.datapath.Program().Test(frame)
	if err != nil {
		tb.Fatalf("%s: running %s: %v", r.hook, dump(frame), err)
	}
	if wanted := r.action(want.outcome); action != wanted {
		tb.Errorf("%s: action %d, want %d (%s)\n%s", r.hook, action, wanted, want.outcome, dump(frame))
	}
	if !bytes.Equal(want.frame, out) {
		tb.Errorf("%s: %s: bytes (-want +got):\n%s\n%s", r.hook, want.outcome, cmp.Diff(want.frame, out), dump(frame))
	}
	got := r.counters(tb)
	// cmp takes its time over a map: it is asked only what differs, not whether.
	if wanted := moved(r.last, want); !wanted.equal(got) {
		tb.Errorf("%s: %s: counters (-want +got):\n%s\n%s", r.hook, want.outcome, cmp.Diff(wanted, got), dump(frame))
	}
	r.last = got
	return want
}

func (r *rig) action(outcome string) uint32 {
	a := actions[r.hook]
	switch outcome[:4] {
	case "forw":
		return a.transmit
	case "pass":
		return a.pass
	}
	return a.drop
}

// moved returns the counters as they must be after a packet: those of its
// outcome and its backend have moved, and no other.
func moved(c Counters, v verdict) Counters {
	next := Counters{Outcomes: append([]OutcomeCount(nil), c.Outcomes...), Backends: map[lb.BackendKey]BackendCount{}}
	for i := range next.Outcomes {
		if next.Outcomes[i].Name == v.outcome {
			next.Outcomes[i].Packets++
		}
	}
	for key, count := range c.Backends {
		if v.outcome == "forwarded" && key == v.backend {
			count.Packets++
			count.Bytes += v.ipLength
			if v.opens {
				count.Connections++
			}
		}
		next.Backends[key] = count
	}
	return next
}

func (c Counters) equal(o Counters) bool {
	return slices.Equal(c.Outcomes, o.Outcomes) && maps.Equal(c.Backends, o.Backends)
}

// bothHooks runs a test for XDP and for TC.
func bothHooks(t *testing.T, test func(t *testing.T, hook lb.Hook)) {
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
		t.Run(string(hook), func(t *testing.T) { test(t, hook) })
	}
}
