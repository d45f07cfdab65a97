// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/takeover"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/test/testkill"
)

// TestKilledAtEachStep kills a process at each step of each change to a kept data plane: at each system call whose
// effect outlives it. The next process finds the state before or after it and goes on from there, and packets are sent
// meanwhile, of which none is lost. When that process stops, nothing is left. In libxdp's dispatcher it does so alone
// and beside programs of others, which see every packet meanwhile and are left at the end.
//
// Some stories are taken at random and a step of each, and every step of all with
// JEOUL_TEST_EVERY_STEP=1 (`make test-kills`).
func TestKilledAtEachStep(t *testing.T) {
	testenv.Root(t)
	random := seeded(t)
	for _, w := range ofThisKernel(attach.NativeXDP, attach.NativeDispatched, attach.TCX, attach.TCFilter) {
		for _, s := range randomStories(random, killStories(w), 2) {
			t.Run(w.Name+", "+s.name, func(t *testing.T) { newWalk(t, w, s, false).killEachStep(t, random) })
		}
		if !w.Dispatched {
			continue
		}
		for _, s := range randomStories(random, killStories(w), 2) {
			t.Run(w.Name+" beside others, "+s.name, func(t *testing.T) {
				newWalk(t, w, s, false).killBesideOthers(t, random)
			})
		}
	}
}

// TestConnectionsGoOnAfterAKill does the same with the programs that balance: each flow goes on with its
// backend.
func TestConnectionsGoOnAfterAKill(t *testing.T) {
	testenv.Root(t)
	random := seeded(t)
	methods := ofThisKernel(attach.NativeXDP, attach.TCX)
	if !testkill.EveryStep() {
		methods = methods[random.IntN(len(methods)):][:1]
	}
	for _, w := range methods {
		balancing := slices.DeleteFunc(killStories(w), func(s killStory) bool { return !s.balances })
		for _, s := range randomStories(random, balancing, 1) {
			t.Run(w.Name+", "+s.name, func(t *testing.T) { newWalk(t, w, s, true).killEachStep(t, random) })
		}
	}
}

// seeded returns a test's source of random numbers, and logs its seed.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func randomStories(random *rand.Rand, all []killStory, some int) []killStory {
	if testkill.EveryStep() {
		return all
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:some]
}

// killEachStep takes one of the story's steps, or all of them if the environment says so.
func (w *killWalk) killEachStep(t *testing.T, random *rand.Rand) {
	t.Helper()
	// Once to its end, for the number of steps.
	steps := w.kill(t, -1)
	if len(steps) == 0 {
		t.Fatal("it has no step")
	}
	defer func(began int) {
		t.Logf("killed %d times in %d steps, packets that were sent again: %d", w.kills-began, len(steps),
			w.packets.again+w.company.sentAgain())
	}(w.kills)
	first, end := 0, len(steps)
	if w.company != nil {
		first, end = aroundDispatchers(steps)
	}
	for _, n := range testkill.Some(random, end-first, 1) {
		n += first
		if w.kill(t, n); t.Failed() {
			t.Fatalf("killed after these of %d steps:\n%s", len(steps), strings.Join(steps[:n], "\n"))
		}
	}
}

// aroundDispatchers bounds the steps from a few before the first one that a dispatcher's pins show until all are done.
// The steps before and after are as on an interface without others, and take long where a machine is emulated.
func aroundDispatchers(steps []string) (first, end int) {
	const before = 4
	ofPins := func(step string) bool { return strings.Contains(step, "/xdp/dispatch-") }
	first, end = slices.IndexFunc(steps, ofPins), len(steps)
	if first < 0 {
		return 0, len(steps)
	}
	for !ofPins(steps[end-1]) {
		end--
	}
	return max(first-before, 0), min(end+1, len(steps))
}

// killBesideOthers does so with programs of others in the dispatchers.
func (w *killWalk) killBesideOthers(t *testing.T, random *rand.Rand) {
	t.Helper()
	testenv.In(t, w.ns, func() (err error) {
		w.company, err = attachForeignPrograms(t, "veth0", "veth1")
		return err
	})
	t.Cleanup(func() {
		testenv.In(t, w.ns, func() error {
			w.company.detach(t)
			return nil
		})
	})
	w.killEachStep(t, random)
}

// killStory is a change during which a process is killed.
type killStory struct {
	name string
	// before is the balancer's state, and after the one that it is to reach.
	before, after lb.State
	// grows: its tables of flows are larger after it.
	grows bool
	// adopts: an earlier process has left the state before, and this one begins with taking it over.
	adopts bool
	// starts: there is nothing before, and stops: there is nothing after. Neither has packets.
	starts, stops bool
	// leaves is the backend that leaves, whose flows end.
	leaves string
	// balances: it is told with the programs that balance, too.
	balances bool
}

func killStories(w attach.Method) []killStory {
	base := killState(3, 1)
	drained, without, more, mode, other := killState(3, 1), killState(2, 1), killState(3, 2), killState(3, 1),
		killState(3, 1)
	drained.Services[0].Backends[1].Weight = 0
	mode.Services[1] = withPaths(inMode(mode.Services[1], lb.DSCP))
	hook := lb.HookTC
	if w.Hook == lb.HookTC {
		hook = lb.HookXDP
	}
	other.Hook = hook
	both, one := killState(3, 1), killState(3, 1)
	one.Interfaces, both.Interfaces = []string{"veth0"}, []string{"veth1", "veth0"}
	last := base.Services[0].Paths[2].MAC.String()
	return []killStory{
		{name: "a start", after: base, starts: true},
		{name: "a backend comes", before: base, after: killState(4, 1)},
		{name: "a backend is drained", before: base, after: drained},
		{name: "a backend leaves", before: base, after: without, leaves: last},
		{name: "a service comes", before: base, after: more},
		{name: "another mode", before: base, after: mode},
		{name: "larger tables", before: base, after: more, grows: true},
		{name: "another hook", before: base, after: other, balances: true},
		{name: "an interface comes", before: one, after: both},
		{name: "an interface leaves", before: both, after: one},
		{name: "an adoption and a change", before: base, after: more, adopts: true, balances: true},
		{name: "an adoption with larger tables", before: base, after: mode, grows: true, adopts: true},
		{name: "an adoption on other interfaces and by another hook", before: one, after: onHook(both, hook),
			adopts: true},
		{name: "a stop", before: base, stops: true},
	}
}

func onHook(s lb.State, hook lb.Hook) lb.State {
	s.Hook = hook
	return s
}

// killState returns a state of n backends for the flows of the test, with more services beside.
func killState(n, others int) lb.State {
	state := lb.State{Services: []lb.RoutedService{withPaths(testService(vip4, 53, lb.UDP, lb.RoundRobin, n))}}
	for i := range others {
		state.Services = append(state.Services, withPaths(testService(vip4, uint16(80+i), lb.TCP, lb.Maglev, 3)))
	}
	return state
}

// withPaths returns a service whose backends are where packets come from.
func withPaths(s lb.RoutedService) lb.RoutedService {
	for i := range s.Paths {
		s.Paths[i].Interface, s.Paths[i].Source, s.Paths[i].MTU = 0, balancerMAC, 0
	}
	return s
}

// servedBy says which services and backends a state has.
func servedBy(s lb.State) string {
	var text strings.Builder
	for _, service := range s.Services {
		fmt.Fprintf(&text, "%s %s:", service.Name, service.Mode)
		for _, b := range service.Backends {
			fmt.Fprintf(&text, " %s:%d*%d", b.Address, b.Port, b.Weight)
		}
		text.WriteString("\n")
	}
	return text.String()
}

// killWalk kills processes of a story.
type killWalk struct {
	killStory
	method attach.Method
	// balances: with the programs that balance.
	balances bool
	dir      string
	ns       *namespace.Namespace
	packets  *packets
	company  *foreignPrograms
	// kills counts the killed processes.
	kills int
}

func newWalk(t *testing.T, w attach.Method, s killStory, balances bool) *killWalk {
	t.Helper()
	k := newRestartRig(t)
	ns, peer := testenv.Namespace(t), testenv.Namespace(t)
	walk := &killWalk{killStory: s, method: w, balances: balances, dir: k.dir, ns: ns}
	var mac []byte
	for i, name := range []string{"veth0", "veth1"} {
		at, _ := testenv.Veth(t, testenv.End{Namespace: ns, Name: name},
			testenv.End{Namespace: peer, Name: fmt.Sprintf("peer%d", i)})
		if i == 0 {
			mac = at
		}
		testenv.In(t, peer, func() error { return attachPassXDP(t, fmt.Sprintf("peer%d", i)) })
	}
	walk.packets = newPackets(t, peer, "peer0", mac)
	return walk
}

// Bounds of the flows that are remembered, before a story and after one in which they grow.
const few, many = 1000, 5000

func (w *killWalk) limit() uint32 {
	if w.grows {
		return many
	}
	return few
}

// open opens the data plane as a process of its own does.
func (w *killWalk) open(limit uint32) (*Datapath, *hostnet.Changes, error) {
	k := &restartRig{dir: w.dir, hook: w.method.Hook, limit: limit}
	names := []string{"veth0"}
	if len(w.before.Interfaces) > 0 {
		names = w.before.Interfaces
	}
	store, err := k.store()
	if err != nil {
		return nil, nil, err
	}
	var changes *hostnet.Changes
	d, err := Open(Options{Interfaces: names, Hook: k.hook, TableSize: testTableSize, FlowLimit: k.limit,
		Keep:           k.location(store),
		DisableFeature: func(link, feature, why string) error { return changes.DisableFeature(link, feature, why) },
		RestoreFeature: func(link, feature, why string) error { return changes.RestoreFeature(link, feature, why) },
		WithClsact: func(link string, attach func(ours bool) error) error {
			return changes.EnsureClsact(link,
				attach)
		}})
	if err != nil {
		store.Close()
		return nil, nil, err
	}
	if d.attempts = w.attempts; !w.balances {
		d.programs = echoProgram
	}
	openChanges := hostnet.Open
	if d.Adopted() {
		openChanges = hostnet.Adopt
	}
	changes, err = openChanges(w.dir, "test")
	return d, changes, err
}

// attempts has each hook by one way, that of the walk's hook by the walk's.
func (w *killWalk) attempts(requested lb.Hook, _ []attach.Port) []attach.Attempt {
	take := w.method
	if requested != w.method.Hook {
		take = attach.NativeXDP
		if requested == lb.HookTC {
			take = ofThisKernel(attach.TCX, attach.TCFilter)[0]
		}
	}
	return []attach.Attempt{{Method: take, Reason: "as in the test"}}
}

// kill kills a process before its step of a number, or lets it come to its end, and has the next one go on.
func (w *killWalk) kill(t *testing.T, n int) (steps []string) {
	t.Helper()
	if w.adopts {
		w.prepare(t)
	}
	victim := w.start(t)
	sending := !w.starts && !w.stops
	w.company.begin(t, w.packets)
	if sending {
		w.packets.begin(t)
	}
	steps, killed, err := victim.End(n)
	if err != nil {
		t.Fatalf("the process: %v", err)
	}
	if killed != (n >= 0) && n >= 0 {
		t.Logf("it has ended before step %d", n)
	}
	if killed {
		w.kills++
	}
	testenv.In(t, w.ns, func() error {
		if err := w.company.expectUnchanged("killed"); err != nil {
			return err
		}
		d, changes, err := w.open(w.limit())
		if err != nil {
			return fmt.Errorf("opening it: %w", err)
		}
		err = w.checkSuccessor(t, d, killed, n%2 == 0, sending)
		if err != nil {
			err = fmt.Errorf("going on: %w", err)
		}
		if closed := errors.Join(changes.Close(), d.Close()); closed != nil {
			err = errors.Join(err, fmt.Errorf("closing: %w", closed))
		}
		return errors.Join(err, w.company.end(), w.expectNothingLeft())
	})
	return steps
}

// prepare sets up the state that the story begins with.
func (w *killWalk) prepare(t *testing.T) {
	t.Helper()
	testenv.In(t, w.ns, func() error {
		d, changes, err := w.open(few)
		if err != nil {
			return err
		}
		err = errors.Join(d.Apply(w.before), remember(d), d.Release())
		changes.Detach()
		return err
	})
}

// checkSuccessor checks the state that the next process has found, and lets it make the change.
func (w *killWalk) checkSuccessor(t *testing.T, d *Datapath, killed, back, sending bool) error {
	t.Helper()
	if sending && !d.Adopted() {
		t.Errorf("it was not taken over: %q", d.Notes())
	}
	if d.Adopted() {
		is := servedBy(d.register.State)
		if is != servedBy(w.after) && (is != servedBy(w.before) || !killed) || w.stops && is != servedBy(w.before) {
			t.Errorf("it has found\n%s\nwant\n%s\nor, if it was killed (%v),\n%s", is, servedBy(w.after), killed,
				servedBy(w.before))
		}
	}
	wanted := w.after
	if w.stops || back && !w.starts && w.leaves == "" {
		wanted = w.before
		wanted.Hook = w.method.Hook
	}
	if err := d.Apply(wanted); err != nil {
		return err
	}
	if flow := flowOf(d); sending {
		if _, there := d.shared.Proven.Find(&flow); !there {
			t.Error("a flow is forgotten")
		}
	}
	names := portNames(d.current.Ports)
	others := slices.DeleteFunc([]string{"veth0", "veth1"}, func(name string) bool {
		return slices.Contains(names, name)
	})
	err := errors.Join(expectCurrent(d, names, w.company.foreignIDs()...), w.expectUnattached(others...),
		w.company.expectUnchanged("gone on"))
	if w.company != nil {
		err = errors.Join(err, expectPins("veth0", 1), expectPins("veth1", 1))
	}
	if sets, failed := d.keeper.Store.Sets(); failed != nil || len(sets) != 1 {
		t.Errorf("sets of pins: %v, %v", sets, failed)
	}
	if numbers, failed := d.keeper.Snapshots(); failed != nil || len(numbers) != 1 {
		t.Errorf("snapshots: %v, %v", numbers, failed)
	}
	if links, failed := d.keeper.Store.Links(); failed != nil || len(links) > len(names) {
		t.Errorf("links: %v, %v", links, failed)
	}
	if sending {
		w.packets.end(t, w.leaves)
	}
	return err
}

// flowOf returns a flow of the first service's first backend.
func flowOf(d *Datapath) objects.XDPFlow {
	is := d.register.Records[0]
	return objects.XDPFlow{Port: 7, Service: is.ID, Backend: is.Places[0].Index, Generation: is.Places[0].Generation}
}

// remember has the data plane remember that flow.
func remember(d *Datapath) error {
	if !d.shared.Proven.Insert(flowOf(d), objects.XDPFlowStateFLOW_ESTABLISHED, d.janitor.Now()) {
		return errors.New("no room for a flow")
	}
	return nil
}

// expectNothingLeft returns an error unless nothing is left once the balancer has stopped.
func (w *killWalk) expectNothingLeft() error {
	err := w.expectUnattached("veth0", "veth1")
	for _, name := range []string{"veth0", "veth1"} {
		err = errors.Join(err, ingressQdisc(name, ""))
	}
	dispatchers := 0
	if w.company != nil {
		dispatchers = 1
	}
	err = errors.Join(err, w.company.expectUnchanged("in the end"), expectPins("veth0", dispatchers),
		expectPins("veth1", dispatchers))
	left, failed := os.ReadDir(w.dir)
	if failed != nil || len(left) != 0 {
		err = errors.Join(err, failed, fmt.Errorf("there is left: %v", left))
	}
	return err
}

// expectUnattached returns an error unless interfaces have no programs but those of others.
func (w *killWalk) expectUnattached(names ...string) error {
	for _, name := range names {
		ids, err := programsOn(name)
		ids = slices.DeleteFunc(ids, func(id ebpf.ProgramID) bool {
			return slices.Contains(w.company.foreignIDs(),
				id)
		})
		if err != nil || len(ids) > 0 {
			return fmt.Errorf("%s has the programs %v: %v", name, ids, err)
		}
	}
	return nil
}

// killVariable is set for the process that is killed: the name of its story.
const killVariable = "JEOUL_TEST_KILL_STORY"

// start starts the process of a story, up to where it begins.
func (w *killWalk) start(t *testing.T) *testkill.Victim {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program, "-test.run=^TestKillVictim$", "-test.timeout=10m")
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|%t|%s", killVariable, w.method.Name, w.name, w.balances,
		w.dir))
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	var victim *testkill.Victim
	testenv.In(t, w.ns, func() error { // in the namespace of the thread that starts it
		if victim, err = testkill.Start(command); err != nil {
			return fmt.Errorf("%w\n%s", err, output.String())
		}
		return nil
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the process wrote\n%s", output.String())
		}
	})
	return victim
}

// TestKillVictim is the process that is killed.
func TestKillVictim(t *testing.T) {
	if !testkill.IsVictim() {
		t.Skip("runs as a process of TestKilledAtEachStep only")
	}
	if err := testkill.Report(); err != nil {
		t.Fatal(err)
	}
	told := strings.Split(os.Getenv(killVariable), "|")
	w := &killWalk{balances: told[2] == "true", dir: told[3]}
	w.method = takeover.KeptMethods[slices.IndexFunc(takeover.KeptMethods,
		func(w attach.Method) bool { return w.Name == told[0] })]
	all := killStories(w.method)
	w.killStory = all[slices.IndexFunc(all, func(s killStory) bool { return s.name == told[1] })]
	if err := w.live(); err != nil {
		t.Fatal(err)
	}
}

// live carries out the story.
func (w *killWalk) live() error {
	if w.starts || w.adopts {
		if err := testkill.Begin(); err != nil {
			return err
		}
		d, _, err := w.open(w.limit())
		if err != nil {
			return err
		}
		return d.Apply(w.after)
	}
	d, changes, err := w.open(few)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Apply(w.before), remember(d), testkill.Begin()); err != nil {
		return err
	}
	if w.stops {
		return errors.Join(changes.Close(), d.Close())
	}
	d.options.FlowLimit = w.limit()
	return d.Apply(w.after)
}
