// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/test/testpacket"
)

// actions are the return codes of a program, by hook: XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT; TC_ACT_SHOT,
// TC_ACT_UNSPEC, TC_ACT_REDIRECT.
var actions = map[lb.Hook]struct{ drop, pass, transmit, redirect uint32 }{
	lb.HookXDP: {1, 2, 3, 4},
	lb.HookTC:  {2, 0xffffffff, 7, 7},
}

// rig is the real program of one hook beside the model of it. It belongs to the
// goroutine that made it, whose thread is in the ground.
type rig struct {
	hook     lb.Hook
	datapath *Datapath
	model    *model
	// context makes the program's context beside the frame; nil: the kernel's default.
	context func(length int) []byte
	// want has the counters' expected values; last has their previous ones.
	want, last lb.Counters
	out        []byte
	// owners are the backends by their places.
	owners map[generation.Place]lb.BackendKey
}

// testOptions are such that few packets meet a bound.
func testOptions(hook lb.Hook) Options {
	return Options{Hook: hook, TableSize: testTableSize, FlowLimit: 10000, UnprovenLimit: 5000, Timeouts: testTimeouts,
		TooBigRate: 1 << 30}
}

func newRig(tb testing.TB, hook lb.Hook, state lb.State) *rig {
	tb.Helper()
	return newRigWith(tb, testOptions(hook), state)
}

func newRigWith(tb testing.TB, options Options, state lb.State) *rig {
	tb.Helper()
	enterTestNet(tb)
	r := makeRig(tb, options, state)
	tb.Cleanup(func() { r.datapath.Close() })
	return r
}

// makeRig makes a rig that the caller closes.
func makeRig(tb testing.TB, options Options, state lb.State) *rig {
	tb.Helper()
	return rigOf(tb, NewDetached(options, balancerMAC), options, state)
}

// rigOf makes a rig of a data plane to which no state has been applied.
func rigOf(tb testing.TB, d *Datapath, options Options, state lb.State) *rig {
	tb.Helper()
	r := &rig{hook: options.Hook, datapath: d, out: make([]byte, 1<<15)}
	// The same packets are to meet the same places in each run.
	r.datapath.secret = 0x5eed
	// Time passes when the test says so.
	r.datapath.expiring = true
	r.model = newModel(balancerMAC, options)
	r.model.programInputs = r.programInputs()
	r.datapath.janitor.Advance(time.Duration(r.model.clock-r.datapath.janitor.Now()) * time.Millisecond)
	r.datapath.now = func() time.Time { return r.model.now }
	r.model.tags = options.Hook == lb.HookXDP
	r.applyAll(tb, state)
	r.last = r.counters(tb)
	r.want = cloneCounters(r.last)
	return r
}

// applyAll applies a configuration to program and model.
func (r *rig) applyAll(tb testing.TB, state lb.State) {
	tb.Helper()
	from := uint64(flowtable.Monotonic())
	if err := r.datapath.Apply(state); err != nil {
		tb.Fatalf("%s: %v", r.hook, err)
	}
	until := uint64(flowtable.Monotonic())
	// Who applies a configuration here is who runs the program: no packet is on its way
	// meanwhile, and to wait for the others of the machine would be most of a long run.
	r.datapath.current.Memory.Grace.Synchronize = func() {}
	if err := r.model.apply(state); err != nil {
		tb.Fatal(err)
	}
	r.learnOwners()
	r.learnDues(tb, from, until)
}

// freshRig returns a rig with the state of allModes that has met no packet.
func freshRig(t *testing.T, hook lb.Hook) *rig {
	t.Helper()
	return newRig(t, hook, allModes())
}

// sharedRigs are those with the state of allModes, by hook: the kernel takes its time to verify a program, and most
// tests do not mind other tests' packets.
var sharedRigs = map[lb.Hook]*rig{}

// sharedRig returns the rig that tests share, one after the other.
func sharedRig(t *testing.T, hook lb.Hook) *rig {
	t.Helper()
	enterTestNet(t)
	r := sharedRigs[hook]
	if r == nil {
		d := NewDetached(testOptions(hook), balancerMAC)
		pool.keep(d)
		r = rigOf(t, d, testOptions(hook), allModes())
		sharedRigs[hook] = r
	}
	t.Cleanup(func() {
		if t.Failed() {
			// Program and model may know different flows now.
			delete(sharedRigs, hook)
			r.datapath.Close()
		}
	})
	return r
}

// compareCountersOf checks that the counters of a service that are read by themselves are those among all.
func (r *rig) compareCountersOf(tb testing.TB, all lb.Counters) {
	tb.Helper()
	for key := range all.Services { // one of them, another each time
		got, err := r.datapath.CountersOf(map[lb.ServiceKey]bool{key: true})
		want := maps.Clone(all.Backends)
		maps.DeleteFunc(want, func(b lb.BackendKey, _ lb.BackendCount) bool { return b.Service != key })
		if err != nil || !maps.Equal(got.Backends, want) || len(got.Services) != 1 {
			tb.Errorf("the counters of %v by themselves are %v, and %v among all (%v)", key, got, want, err)
		}
		return
	}
}

func (r *rig) counters(tb testing.TB) lb.Counters {
	tb.Helper()
	counters, err := r.datapath.Counters()
	if err != nil {
		tb.Fatal(err)
	}
	r.compareCountersOf(tb, counters)
	// Flows are compared by themselves.
	counters.Flows, counters.Services = lb.FlowCounts{}, nil
	for key, count := range counters.Backends {
		count.Active, count.Flows, count.PortsHeld = 0, 0, 0
		counters.Backends[key] = count
	}
	return counters
}

// apply changes the configuration of the program and of the model. The counters of backends that stay, and of outcomes,
// must stay too.
func (r *rig) apply(tb testing.TB, state lb.State) {
	tb.Helper()
	r.applyAll(tb, state)
	backends := map[lb.BackendKey]lb.BackendCount{}
	for _, s := range state.Services {
		for _, b := range s.Backends {
			backends[s.BackendKey(b)] = r.want.Backends[s.BackendKey(b)]
		}
	}
	r.want.Backends = backends
	if problem := r.compareCounters(tb); problem != "" {
		tb.Errorf("%s: after a change of the configuration: %s", r.hook, problem)
	}
}

// testable reports whether BPF_PROG_TEST_RUN takes the frame.
func testable(hook lb.Hook, frame []byte) bool {
	if hook != lb.HookTC {
		return len(frame) >= 14
	}
	return testpacket.FitsSocketBuffer(frame)
}

// check runs a frame through the program and compares verdict, bytes and all
// counters with the model's; it returns the model's verdict.
func (r *rig) check(tb testing.TB, frame []byte) verdict {
	tb.Helper()
	want, problem := r.feed(tb, frame)
	if counters := r.compareCounters(tb); counters != "" {
		problem += counters
		r.want = cloneCounters(r.last)
	}
	problem += r.compareAll(tb)
	if problem != "" {
		tb.Errorf("%s: %s\n%s", r.hook, problem, testpacket.Dump(frame))
	}
	return want
}

// expectOutcome checks a frame whose outcome the test knows: the model must
// agree before it may judge.
func expectOutcome(t *testing.T, r *rig, frame []byte, want string) verdict {
	t.Helper()
	if !r.model.tags && isTag(binary.BigEndian.Uint16(frame[12:])) {
		want = "passed_not_ip"
	}
	v := r.check(t, frame)
	if v.outcome != want {
		t.Errorf("%s: the model says %s, the test %s", r.hook, v.outcome, want)
	}
	return v
}

// feed runs a frame through the program and the model and returns their difference; the counters are left to settle.
func (r *rig) feed(tb testing.TB, frame []byte) (want verdict, problem string) {
	tb.Helper()
	if r.model.stale {
		r.forgetReplyPaths(tb)
		r.model.stale = false
	}
	from := uint64(flowtable.Monotonic())
	action, out := r.run(tb, frame)
	seen := seen{pool: r.poolOf, due: r.dueOf, from: from, until: uint64(flowtable.Monotonic())}
	if len(r.model.mayExhaust) > 0 {
		seen.dropped = r.movedOutcome(tb)
	}
	want = r.model.decide(frame, seen)
	countVerdict(&r.want, want)
	return want, r.compare(want, action, out) + r.compareTouched(tb)
}

// forgetReplyPaths makes the program look up the next hop of each reply again, as it does after the
// next tick of the clock.
func (r *rig) forgetReplyPaths(tb testing.TB) {
	tb.Helper()
	cache := r.datapath.shared.RouteCache
	keys := make([]uint32, cache.MaxEntries())
	for i := range keys {
		keys[i] = uint32(i)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		tb.Fatal(err)
	}
	// As bytes, which the library copies; of structs it would look at each field.
	if _, err := cache.BatchUpdate(keys, slices.Repeat([][]byte{make([]byte, cache.ValueSize())}, len(keys)*cpus),
		nil); err != nil {
		tb.Fatal(err)
	}
}

// run runs a frame through the program. The frame that it returns is overwritten by the next run.
func (r *rig) run(tb testing.TB, frame []byte) (action uint32, out []byte) {
	tb.Helper()
	options := ebpf.RunOptions{Data: frame, DataOut: r.out, Repeat: 1}
	if r.context != nil {
		options.Context = r.context(len(frame))
	}
	action, err := r.datapath.Program().Run(&options)
	if err != nil {
		tb.Fatalf("%s: running %s: %v", r.hook, testpacket.Dump(frame), err)
	}
	return action, options.DataOut
}

// compare returns the difference between the program's result and the verdict.
func (r *rig) compare(want verdict, action uint32, out []byte) string {
	var problem strings.Builder
	if wanted := r.action(want); action != wanted {
		fmt.Fprintf(&problem, "action %d, want %d (%s)\n", action, wanted, want.outcome)
	}
	if want.complaint != "" {
		fmt.Fprintln(&problem, want.complaint)
	}
	if problem.Len() == 0 && !strings.HasPrefix(want.outcome, "dropped_") && !want.rewritten.is(out) {
		fmt.Fprintf(&problem, "%s: bytes (-want +got):\n%s\n", want.outcome, cmp.Diff(want.frame, slices.Clone(out)))
	}
	return problem.String()
}

// is compares bytes, but for fields in which 0 and 0xffff mean the same.
func (r *rewritten) is(out []byte) bool {
	if bytes.Equal(r.frame, out) {
		return true
	}
	if len(r.frame) != len(out) {
		return false
	}
	frame := slices.Clone(r.frame)
	for _, fromEnd := range r.equal {
		at := len(frame) - fromEnd
		want, got := binary.BigEndian.Uint16(frame[at:]), binary.BigEndian.Uint16(out[at:])
		if want%0xffff == 0 && got%0xffff == 0 {
			copy(frame[at:at+2], out[at:])
		}
	}
	return bytes.Equal(frame, out)
}

func (r *rig) action(v verdict) uint32 {
	a := actions[r.hook]
	switch {
	case strings.HasPrefix(v.outcome, "answered_"), strings.HasPrefix(v.outcome, "reset_"),
		strings.HasPrefix(v.outcome, "unreachable_"):
		return a.transmit
	case v.outcome == "forwarded" || v.outcome == "returned":
		if v.elsewhere {
			return a.redirect
		}
		return a.transmit
	case strings.HasPrefix(v.outcome, "passed_"):
		return a.pass
	}
	return a.drop
}

// compareCounters reads the counters and returns their difference from the sum of the verdicts.
func (r *rig) compareCounters(tb testing.TB) string {
	tb.Helper()
	r.last = r.counters(tb)
	if equalCounters(r.want, r.last) {
		return ""
	}
	return "counters (-want +got):\n" + cmp.Diff(r.want, r.last)
}

// movedOutcome names the outcome whose counter has moved since the last packet.
func (r *rig) movedOutcome(tb testing.TB) string {
	tb.Helper()
	for i, now := range r.counters(tb).Outcomes {
		if now.Packets != r.want.Outcomes[i].Packets {
			return now.Name
		}
	}
	return ""
}

// count moves the counters that a verdict moves: that of the outcome, and those
// of the backend, if it is still there.
func countVerdict(c *lb.Counters, v verdict) {
	for i := range c.Outcomes {
		if c.Outcomes[i].Name == v.outcome {
			c.Outcomes[i].Packets++
		}
	}
	count, listed := c.Backends[v.backend]
	if !listed {
		return
	}
	switch v.sign {
	case answeredSignal:
		count.Answered++
	case refusedSignal:
		count.Refused++
	case unreachableSignal:
		count.Unreachable++
	}
	c.Backends[v.backend] = count
	switch v.outcome {
	case "forwarded":
		count.Packets++
		count.Bytes += v.ipLength
		if v.opens {
			count.Connections++
		}
	case "returned":
		count.ReturnedPackets++
		count.ReturnedBytes += v.ipLength
	default:
		return
	}
	c.Backends[v.backend] = count
}

func cloneCounters(c lb.Counters) lb.Counters {
	return lb.Counters{Outcomes: slices.Clone(c.Outcomes), Backends: maps.Clone(c.Backends)}
}

func equalCounters(c lb.Counters, o lb.Counters) bool {
	return slices.Equal(c.Outcomes, o.Outcomes) && maps.Equal(c.Backends, o.Backends)
}

// contextFrom is the context of a program for a frame that came in on an interface: struct xdp_md or struct __sk_buff
// of <linux/bpf.h>.
func contextFrom(hook lb.Hook, ifindex, length int) []byte {
	order := binary.NativeEndian
	if hook == lb.HookXDP {
		b := make([]byte, 24)
		order.PutUint32(b[4:], uint32(length))
		order.PutUint32(b[12:], uint32(ifindex))
		return b
	}
	b := make([]byte, 192)
	order.PutUint32(b[36:], uint32(ifindex))
	order.PutUint32(b[40:], uint32(ifindex))
	return b
}

// bothHooks runs a test for XDP and for TC.
func bothHooks(t *testing.T, test func(t *testing.T, hook lb.Hook)) {
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
		t.Run(string(hook), func(t *testing.T) { test(t, hook) })
	}
}

// oneHook runs a test in one of the hooks, which follows from the test's name, and in both in `make test-hooks`. The
// kernel verifies a program for some half a second, so that both would double the time of the package. The hooks differ
// in parsing, rewriting and sending: the tests of bothHooks cover that, and random packets in both are compared with
// the model.
func oneHook(t *testing.T, test func(t *testing.T, hook lb.Hook)) {
	t.Helper()
	if testenv.InTarget(testenv.HooksTarget) {
		bothHooks(t, test)
		return
	}
	hook := []lb.Hook{lb.HookXDP, lb.HookTC}[testenv.OneOf(t, 2)]
	t.Run(string(hook), func(t *testing.T) { test(t, hook) })
}

// feedRandom feeds a generator's packets in twelve parts of 500; a function sets up each part, and another is asked a
// condition at each packet. It returns the outcomes, by the condition at the time.
func (r *rig) feedRandom(t *testing.T, hook lb.Hook, g *generator, set func(part int),
	is func() bool) map[bool]map[string]int {
	t.Helper()
	ends := map[bool]map[string]int{false: {}, true: {}}
	for n := range 6000 {
		set(n / 500)
		frame := g.next()
		if !testable(hook, frame) {
			continue
		}
		v, problem := r.feed(t, frame)
		if problem != "" {
			t.Fatalf("packet %d: %s%s", n, problem, testpacket.Dump(frame))
		}
		ends[is()][v.outcome]++
	}
	if problem := r.compareCounters(t) + r.compareAll(t); problem != "" {
		t.Error(problem)
	}
	return ends
}
