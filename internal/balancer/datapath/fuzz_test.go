// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testpacket"
)

// A random run is cut into epochs. Each has a new program and a new model, so
// that a failure can be had again from the start of its epoch.
const (
	epochPackets = 50000
	// Packets between changes of the configuration.
	changeEvery = 1000
	// Between strikes: something happens to the backend of a flow that goes on.
	disruptEvery = 90
	// Between steps of time.
	advanceEvery = 150
	// Verdicts and bytes are compared for each packet, counters for so many.
	compareEvery = 250
	// An epoch that lasts longer ends early: fragments are remembered for 30 s,
	// and the model has no clock.
	epochLasts = 20 * time.Second
)

// event is a step of an epoch: a change of the configuration, some time that passes, or a frame.
type event struct {
	state  *lb.State
	passed time.Duration
	frame  []byte
}

// epoch is one run from a new program on.
type epoch struct {
	rig       *rig
	generator *generator
	state     lb.State
	events    []event
	ends      map[string]uint64
}

func newEpoch(t *testing.T, hook lb.Hook, seed, number uint64) *epoch {
	t.Helper()
	e := &epoch{state: allKinds(), ends: map[string]uint64{}}
	e.rig = newRig(t, hook, e.state)
	e.generator = &generator{Rand: rand.New(rand.NewPCG(seed, number)), tb: t, model: e.rig.model, ids: 1,
		first: e.state.Services}
	e.events = []event{{state: &e.state}}
	return e
}

// run feeds packets until one fails, and returns the failure.
func (e *epoch) run(t *testing.T, packets uint64) (n uint64, problem string) {
	t.Helper()
	began := time.Now()
	for n < packets && time.Since(began) < epochLasts {
		if n%changeEvery == changeEvery-1 {
			if problem := e.change(t); problem != "" {
				return n, problem
			}
		}
		if n%disruptEvery == disruptEvery-1 {
			if problem := e.disruptBackend(t); problem != "" {
				return n, problem
			}
		}
		if n%advanceEvery == advanceEvery-1 {
			if problem := e.advance(t); problem != "" {
				return n, problem
			}
		}
		frame := e.generator.next()
		if !testable(e.rig.hook, frame) {
			continue
		}
		n++
		e.events = append(e.events, event{frame: frame})
		v, problem := e.rig.feed(t, frame)
		if problem == "" && n%compareEvery == 0 {
			problem = e.rig.compareCounters(t) + e.rig.compareAll(t)
		}
		if problem != "" {
			return n, problem + e.rig.compareCounters(t) + e.rig.compareAll(t) + testpacket.Dump(frame)
		}
		e.ends[v.outcome]++
		if s := e.rig.model.services[v.backend.Service]; s != nil {
			e.ends[v.outcome+" "+string(s.Mode)]++
		} else if v.outcome == "returned" {
			e.ends[backendGoneOutcome]++
		}
		if v.outcome == "forwarded" && n%8 == 0 {
			e.generator.keep(v.frame)
		}
	}
	return n, e.rig.compareCounters(t) + e.rig.compareAll(t)
}

// advance lets some time pass: from almost none to more than most flows live.
func (e *epoch) advance(t *testing.T) (problem string) {
	t.Helper()
	passed := []time.Duration{7 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond,
		600 * time.Millisecond, 1200 * time.Millisecond,
		2 * time.Second, 2 * time.Second, 5 * time.Second, 5 * time.Second, 12 * time.Second}[e.generator.IntN(10)]
	switch e.generator.IntN(40) {
	case 0:
		passed = 20 * time.Minute
	case 1, 2:
		passed = 70 * time.Second
	}
	e.events = append(e.events, event{passed: passed})
	e.rig.advance(t, passed)
	if passed > time.Minute {
		// Fragments live by the kernel's clock, for which nothing has passed.
		e.generator.ids += 100
	}
	return e.rig.compareAll(t)
}

// change changes any part of the configuration.
func (e *epoch) change(t *testing.T) (problem string) {
	if e.generator.IntN(2) == 0 {
		defer func() { e.generator.ids += 100 }()
	}
	return e.apply(t, e.generator.change(e.state))
}

// disruptBackend makes one backend drained, full or lost, or lets it come back.
func (e *epoch) disruptBackend(t *testing.T) (problem string) {
	next, ok := e.generator.disruptBackend(e.state)
	if !ok {
		return ""
	}
	return e.apply(t, next)
}

func (e *epoch) apply(t *testing.T, next lb.State) (problem string) {
	e.events = append(e.events, event{state: &next})
	e.rig.apply(t, next)
	e.state = next
	return e.rig.compareAll(t)
}

// collect adds up the events and outcomes that epochs have reached.
func (e *epoch) collect(ends map[string]uint64) {
	for outcome, n := range e.ends {
		ends[outcome] += n
	}
	for what, n := range e.rig.model.met {
		ends["met: "+what] += n
	}
}

// TestRandomPackets compares the programs with the model on many packets, while
// the configuration changes. JEOUL_FUZZ_PACKETS sets how many, for long runs;
// JEOUL_FUZZ_SEED repeats one, and JEOUL_FUZZ_EPOCH begins later in it.
func TestRandomPackets(t *testing.T) {
	packets, seed := number(t, "JEOUL_FUZZ_PACKETS", 20000), number(t, "JEOUL_FUZZ_SEED", 1)
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		ends := map[string]uint64{}
		began := time.Now()
		done := uint64(0)
		for epochs := number(t, "JEOUL_FUZZ_EPOCH", 0); !t.Failed() &&
			(done < packets || done < reachFactor*packets && len(notReached(t, ends, packets)) > 0); epochs++ {
			t.Run(fmt.Sprint(epochs), func(t *testing.T) {
				e := newEpoch(t, hook, seed, epochs)
				left := packets - done
				if done >= packets {
					left = epochPackets
				}
				n, problem := e.run(t, min(left, epochPackets))
				done += n
				t.Logf("%d packets so far", done)
				e.collect(ends)
				if problem != "" {
					t.Errorf("%s, packet %d with JEOUL_FUZZ_SEED=%d JEOUL_FUZZ_EPOCH=%d: %s", hook, n, seed,
						epochs, problem)
					t.Log(report(t, hook, e.events, problem))
				}
			})
		}
		t.Logf("%d packets in %v: %v", done, time.Since(began).Round(time.Millisecond), ends)
		if !t.Failed() {
			for _, what := range notReached(t, ends, packets) {
				t.Errorf("in %d packets the generator reaches too seldom: %s", done, what)
			}
		}
	})
}

// reachFactor is by what factor more packets are made than were asked for where some outcome has not been reached: how
// often a seed reaches the rare ones depends on the clock as well.
const reachFactor = 5

// unreached are the outcomes that random packets do not reach: some resource has to be used up first, which other tests
// do.
var unreached = []string{"dropped_no_port", "dropped_flow_table_full", "dropped_no_room",
	"reset_no_port", "reset_flow_table_full", "unreachable_no_port", "unreachable_flow_table_full",
	// A datagram whose backend is down begins a new flow, where one can.
	"unreachable_backend_down",
	// Of near clients, of which the model knows nothing (hairpin_test.go).
	"reset_no_address", "unreachable_no_address", "dropped_no_address",
	// Of a data plane whose process is gone for too long.
	"passed_orphaned",
	// Of a balancer that is the backup.
	"passed_backup",
	// Of flows that are being moved into other tables.
	"dropped_flows_moving"}

// randomEvents are the events of the model that random packets must reach.
var randomEvents = []string{"proven", "told by a reply", "affinity replaced", "attached: true", "attached: false",
	"forgotten: reused", "reopened",
	"SYN: again", "SYN: again, drained", "SYN: late", "SYN: another, to the same", "SYN: anew, drained",
	"SYN: anew, down", "SYN: contests, drained",
	"SYN: contests, down", "forgotten: UDP of a backend that is down", "ended while its backend is down",
	"reset for its backend is down", "contested: the rival", "contested: goes on",
	"contested: replaced", "contested: no more", "contested: reset",
	"forgotten: of a backend that left", "known, tracked: true", "known, tracked: false", "moved: opens",
	"moved: goes on", "moved: orphaned",
	"refused", "forgiven", "reply: of a known flow", "reply: by the hash", "reply: by the base's hash",
	"reply: of a backend that came back", "unremembered: by the base", "unremembered: from before it was tracked",
	"without a table: by the base", "full", "full: another is looked for"}

// rareOutcomes are the outcomes for which more than one thing must come together.
var rareOutcomes = []string{"reset_rate_limit", "reset_connection_limit", "dropped_rate_limit", "dropped_connection_limit",
	"unreachable_rate_limit", "unreachable_connection_limit", "reset_no_backend", "unreachable_no_backend",
	"reset_backend_down", "reset_no_flow", "unreachable_no_flow",
	"dropped_too_big", "dropped_time_exceeded", "dropped_backend_down", "dropped_no_backend"}

// backendGoneOutcome is the outcome of packets whose backend is no longer configured.
const backendGoneOutcome = "returned of one that left"

// notReached returns the outcomes, each with its count, that the generator has not reached as
// often as that many packets should.
func notReached(t *testing.T, ends map[string]uint64, packets uint64) []string {
	t.Helper()
	names, err := sharedmaps.OutcomeNames()
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	expect := func(name string, least uint64) {
		if ends[name] < least {
			missing = append(missing, fmt.Sprintf("%s (%d, want %d)", name, ends[name], least))
		}
	}
	for _, name := range names {
		switch {
		case slices.Contains(rareOutcomes, name):
			expect(name, packets/100_000)
		case !slices.Contains(unreached, name):
			expect(name, packets/2000)
		}
	}
	for _, what := range randomEvents {
		expect("met: "+what, packets/500_000)
	}
	if packets > 2*changeEvery {
		expect(backendGoneOutcome, packets/10000)
	}
	for _, mode := range lb.PacketModes {
		expect("forwarded "+string(mode), packets/200)
		if mode.Translates() {
			expect("returned "+string(mode), packets/200)
		}
	}
	return missing
}

// report names the events of an epoch without which it would not fail.
func report(t *testing.T, hook lb.Hook, events []event, problem string) string {
	bound := time.Now().Add(shrinkTimeout)
	needed := shrink(events, func(events []event) bool {
		// Another failure does not count: the model may miss a packet that was left out, and from which it had learnt
		// something.
		return time.Now().Before(bound) && kindOf(replay(t, hook, events)) == kindOf(problem)
	})
	var text strings.Builder
	for _, e := range needed {
		switch {
		case e.state != nil:
			fmt.Fprintf(&text, "configuration of %d services\n", len(e.state.Services))
		case e.passed != 0:
			fmt.Fprintf(&text, "%v passes\n", e.passed)
		default:
			fmt.Fprintln(&text, testpacket.Dump(e.frame))
		}
	}
	return text.String()
}

// kindOf is the part of a report that two of the same failure share: the first line, and the names of the counters that
// differ.
func kindOf(problem string) string {
	lines := strings.Split(problem, "\n")
	kind := lines[0]
	for _, line := range lines[1:] {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "-"), ":"); ok && strings.HasPrefix(line, "-") {
			kind += " " + strings.TrimSpace(name)
		}
	}
	return kind
}

// shrinkTimeout bounds the search for a shorter failure.
const shrinkTimeout = 3 * time.Second

// replay feeds events to a new program, and compares all counters after each of the last packets. It returns the first
// failure.
func replay(t *testing.T, hook lb.Hook, events []event) (problem string) {
	r := newRig(t, hook, *events[0].state)
	defer r.datapath.Close()
	for i, e := range events[1:] {
		if e.state != nil {
			if r.apply(t, *e.state); problem == "" {
				problem = r.compareAll(t)
			}
			if problem != "" {
				return problem
			}
			continue
		}
		if e.passed != 0 {
			if r.advance(t, e.passed); problem == "" {
				problem = r.compareAll(t)
			}
			if problem != "" {
				return problem
			}
			continue
		}
		if !testable(hook, e.frame) {
			return ""
		}
		if _, problem = r.feed(t, e.frame); problem != "" {
			return problem + r.compareCounters(t)
		}
		if len(events)-i > 2*compareEvery {
			continue
		}
		if problem = r.compareCounters(t) + r.compareAll(t); problem != "" {
			return problem
		}
	}
	return ""
}

// shrink returns fewer events that still fail: those since the last change of the configuration, the last alone, or
// those that halving leaves.
func shrink(events []event, fails func([]event) bool) []event {
	last := 0
	for i, e := range events {
		if e.state != nil {
			last = i
		}
	}
	if try := events[last:]; fails(try) {
		events = try
	}
	if try := []event{events[0], events[len(events)-1]}; len(events) > 2 && fails(try) {
		return []event{events[0], {frame: shorten(events[0], try[1].frame, fails)}}
	}
	for size := len(events) / 2; size > 0; size /= 2 {
		for at := 1; at+size < len(events); {
			if try := slices.Concat(events[:at], events[at+size:]); fails(try) {
				events = try
			} else {
				at += size
			}
		}
	}
	return events[max(0, len(events)-20):]
}

// shorten cuts a frame that fails by itself from behind, and clears bytes.
func shorten(state event, frame []byte, fails func([]event) bool) []byte {
	for cut := len(frame) / 2; cut > 0; cut /= 2 {
		for len(frame)-cut >= 34 && fails([]event{state, {frame: frame[:len(frame)-cut]}}) {
			frame = frame[:len(frame)-cut]
		}
	}
	return frame
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
		{from: client4, at: vip4, sport: 1, dport: 8080, flags: "S"},
		modePacket(vip4, portNAT, false), modePacket(vip6, portFullNAT, true)} {
		f.Add(p.build(f))
		f.Add(icmpError(f, transitRouter(p.at.Is6()), p.answer().build(f), 100))
		f.Add(fragment(with(p, func(p *packetSpec) { p.payload = 64 }).build(f), 1, 0, 32))
	}
	f.Add(ipv6WithExtensions(web6().build(f), [2]byte{0, 1}, [2]byte{44, 1}))
	rigs := map[lb.Hook]*rig{}
	var made time.Time
	f.Fuzz(func(t *testing.T, frame []byte) {
		enterTestNet(t)
		if time.Since(made) > epochLasts {
			newRigs(t, rigs)
			made = time.Now()
		}
		for hook, r := range rigs {
			if testable(hook, frame) && len(frame) < 3000 {
				r.check(t, frame)
			}
		}
	})
	for _, r := range rigs {
		r.datapath.Close()
	}
}

// newRigs makes rigs that have met no packet.
func newRigs(t *testing.T, rigs map[lb.Hook]*rig) {
	t.Helper()
	for hook := range actions {
		if old := rigs[hook]; old != nil {
			old.datapath.Close()
		}
		rigs[hook] = makeRig(t, testOptions(hook), allModes())
	}
}
