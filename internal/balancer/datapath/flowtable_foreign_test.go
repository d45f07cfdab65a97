// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// anotherLayout differs from ours in everything that may differ: buckets of four flows, after an unknown field; the
// fields of a flow in another order and with one more; other states.
func anotherLayout(tb testing.TB) *snapshot.FlowLayout {
	tb.Helper()
	ours, err := flowtable.Layout()
	if err != nil {
		tb.Fatal(err)
	}
	l := &snapshot.FlowLayout{Bucket: 40 + 4*48, Flow: 48, States: maps.Clone(ours.States),
		Numbers: maps.Clone(ours.Numbers),
		Fields: map[string]snapshot.Field{"unknown": {Offset: 0, Size: 12}, "states": {Offset: 12, Size: 4},
			"tags": {Offset: 16, Size: 8},
			"seen": {Offset: 24, Size: 16}, "flows": {Offset: 40, Size: 4 * 48},
			"flows.port": {Offset: 0, Size: 2}, "flows.generation": {Offset: 2, Size: 2},
			"flows.backend":        {Offset: 4, Size: 4},
			"flows.source.address": {Offset: 8, Size: 2}, "flows.source.port": {Offset: 10, Size: 2},
			"flows.syn":     {Offset: 12, Size: 4},
			"flows.unknown": {Offset: 16, Size: 8}, "flows.service": {Offset: 24, Size: 4},
			"flows.address": {Offset: 32, Size: 16}}}
	l.Numbers["FLOW_BUCKET"], l.Numbers["FLOW_BUSY"] = 4, 3
	last := uint64(objects.XDPFlowStateFLOW_STATES)
	for name, number := range l.States {
		if number != 0 {
			l.States[name] = last + 1 - number
		}
	}
	return l
}

// foreignWriter writes flows into a table of another layout, as its build would.
type foreignWriter struct {
	table  *flowtable.ForeignTable
	layout *snapshot.FlowLayout
	next   int
}

func newForeign(tb testing.TB, layout *snapshot.FlowLayout, flows int) *foreignWriter {
	tb.Helper()
	reading, err := flowtable.NewForeignLayout(layout)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(layout.Bucket),
		Flags:      unix.BPF_F_MMAPABLE,
		MaxEntries: uint32((flows + reading.Places - 1) / reading.Places)})
	if err != nil {
		tb.Fatal(err)
	}
	table, err := flowtable.OpenForeign(m, reading)
	if err != nil {
		tb.Fatal(err)
	}
	return &foreignWriter{table: table, layout: layout}
}

// put writes a flow at the next place. Of the fields that others have in other modes it writes the one
// that full NAT has where `pooled` says so.
func (w *foreignWriter) put(flow objects.XDPFlow, state objects.XDPFlowState, seen uint32, pooled bool) int {
	at := w.next
	w.next++
	w.write(at, flow, state, seen, pooled, 0x4711)
	return at
}

func (w *foreignWriter) write(number int, flow objects.XDPFlow, state objects.XDPFlowState, seen uint32, pooled bool,
	tag uint16) {
	r := w.table.ForeignLayout
	bucket, at := w.table.Memory.Bytes()[number/r.Places*r.Bucket:][:r.Bucket], number%r.Places
	theirs, ours := bucket[r.Flows+at*r.Flow:][:r.Flow], mapmem.Storage(flowtable.WordsOf(&flow)[:]).Bytes()
	for _, c := range r.Copies {
		if shared := c.To >= 28; !shared || c.UnlessZero == pooled {
			copy(theirs[c.From:][:c.Size], ours[c.To:])
		}
	}
	for name, number := range w.layout.States {
		if r.State[number] == state && name != "FLOW_STATES" {
			bucket[r.States+at] = uint8(number)
		}
	}
	binary.NativeEndian.PutUint32(bucket[r.Seen+4*at:], seen)
	binary.NativeEndian.PutUint16(bucket[r.Tags+2*at:], tag)
}

// copyFrom writes the flows of a table, with the mode of each by its key.
func (w *foreignWriter) copyFrom(t *flowtable.Table, pooled func(*objects.XDPFlow) bool) map[string]int {
	at := map[string]int{}
	t.Each(func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) {
		at[keyText(flow)] = w.put(*flow, state, seen, pooled(flow))
	})
	return at
}

func keyText(flow *objects.XDPFlow) string { return fmt.Sprint(flow.Address, flow.Port, flow.Service) }

// asForeignTables gives the datapath of a rig its flows as if another build had left them: in tables of another layout,
// beside empty ones.
func asForeignTables(t *testing.T, d *Datapath, layout *snapshot.FlowLayout) (proven, unproven *foreignWriter,
	places map[string]int) {
	t.Helper()
	spec, err := loader.XDP.Load()
	if err != nil {
		t.Fatal(err)
	}
	pooled := func(flow *objects.XDPFlow) bool {
		id := flow.Service &^ flowtable.AffinityKey
		return slices.ContainsFunc(d.register.Records, func(r *generation.Record) bool {
			return r.ID == id && r.Service.Mode == lb.FullNAT
		})
	}
	proven, unproven = newForeign(t, layout, len(d.shared.Proven.Buckets)*flowtable.PerBucket),
		newForeign(t, layout, len(d.shared.Unproven.Buckets)*flowtable.PerBucket)
	places = proven.copyFrom(d.shared.Proven, pooled)
	unproven.copyFrom(d.shared.Unproven, pooled)
	for _, name := range sharedmaps.FlowMaps {
		for _, at := range d.shared.Places() {
			if at.Name != name {
				continue
			}
			made := spec.Maps[name].Copy()
			made.MaxEntries = (*at.Map).MaxEntries()
			if *at.Map, err = ebpf.NewMap(made); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.shared.MapFlows(nil); err != nil {
		t.Fatal(err)
	}
	d.previous = &sharedmaps.PreviousFlows{Proven: []sharedmaps.PreviousTable{proven.table},
		Unproven: []sharedmaps.PreviousTable{unproven.table}}
	d.current.Adopted = true
	return proven, unproven, places
}

// TestFlowsOfAnotherLayout: flows in another build's layout go on, both ways: of every mode, family and protocol,
// proven or not.
func TestFlowsOfAnotherLayout(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := freshRig(t, hook)
		var flows []*flow
		var others []packetSpec
		for _, vip := range vips {
			for _, udp := range []bool{false, true} {
				for sport := range uint16(3) {
					full := modePacket(vip, portFullNAT, udp)
					full.sport += sport
					f := openFlow(t, r, full)
					if flows = append(flows, f); sport > 0 {
						f.answer(t, "SA")
						f.send(t, "A")
					}
					for port := uint16(portIPIP); port <= portFullNATAlike; port++ {
						if port == portFullNAT {
							continue
						}
						p := modePacket(vip, port, udp)
						p.sport += sport
						r.check(t, p.build(t))
						if others = append(others, p); sport > 0 {
							r.check(t, with(p, func(p *packetSpec) { p.flags = "A" }).build(t))
						}
					}
				}
			}
		}
		asForeignTables(t, r.datapath, anotherLayout(t))
		r.apply(t, allModes())
		for _, f := range flows {
			for _, flags := range []string{"A", "PA"} {
				if v := f.answer(t, flags); v.outcome != "returned" {
					t.Errorf("the model says %s of a reply", v.outcome)
				}
				f.send(t, flags)
			}
		}
		for _, p := range others {
			r.check(t, with(p, func(p *packetSpec) { p.flags = "A" }).build(t))
		}
		if r.datapath.previous.Any() {
			t.Error("the tables before are still there")
		}
	})
}

// TestFlowsChangeWhileTheyMove: packets begin, end, prove and replace flows in the old tables between the first copy
// and the exchange of the programs.
func TestFlowsChangeWhileTheyMove(t *testing.T) {
	layout := anotherLayout(t)
	made := func(n int) *foreignWriter {
		testenv.Root(t)
		w := newForeign(t, layout, n)
		t.Cleanup(w.table.Close)
		return w
	}
	proven, unproven := made(100), made(100)
	flow := func(n int, backend uint32) objects.XDPFlow {
		f := sampleFlow(n)
		f.Backend = backend
		return f
	}
	to := &sharedmaps.Maps{Proven: flowtable.NewTable(100, 0x5eed), Unproven: flowtable.NewTable(100, 0x5eed)}
	ends := proven.put(flow(1, 1), objects.XDPFlowStateFLOW_ESTABLISHED, 1000, false)
	begins := proven.put(flow(2, 1), objects.XDPFlowStateFLOW_CLOSED, 1000, false)
	stays := proven.put(flow(3, 1), objects.XDPFlowStateFLOW_ESTABLISHED, 1000, false)
	proves := unproven.put(flow(4, 1), objects.XDPFlowStateFLOW_OPENING, 1000, false)
	over := proven.put(flow(6, 1), objects.XDPFlowStateFLOW_CLIENT_FIN, 1000, false)
	proven.write(90, flow(9, 1), objects.XDPFlowStateFLOW_ESTABLISHED, 1000, false, 3) // busy: half of it is written
	m := sharedmaps.Move{Janitor: flowtable.NewJanitor(lb.Timeouts{}), From: to, To: to,
		Previous: &sharedmaps.PreviousFlows{Proven: []sharedmaps.PreviousTable{proven.table},
			Unproven: []sharedmaps.PreviousTable{unproven.table}},
		Memory: &generation.Memory{Storage: make(mapmem.Storage, mapmem.CacheLine/8)}}
	m.Begin()
	expect := func(table *flowtable.Table, n int, backend uint32, state objects.XDPFlowState, seen uint32) {
		t.Helper()
		want := flow(n, backend)
		place, there := table.Find(&want)
		if !there || place.Flow() != want || place.State() != state || place.Seen() != seen {
			t.Errorf("flow %d (%v): %+v in state %d, seen at %d; want %+v in %d, %d", n, there, place, state, seen,
				want, state, seen)
		}
	}
	expect(to.Unproven, 4, 1, objects.XDPFlowStateFLOW_OPENING, 1000)
	if n := len(to.Proven.Places()); n != 4 {
		t.Errorf("%d flows were copied, want 4", n)
	}
	if m.Memory.Head().Moving == 0 {
		t.Error("the new programs are not told that flows move")
	}

	proven.write(ends, flow(1, 1), objects.XDPFlowStateFLOW_CLIENT_FIN, 1000, false, 0x4711)
	proven.write(begins, flow(2, 2), objects.XDPFlowStateFLOW_ESTABLISHED, 1000, false, 0x4711)
	proven.write(stays, flow(3, 1), objects.XDPFlowStateFLOW_ESTABLISHED, 2000, false, 0x4711)
	unproven.write(proves, flow(4, 1), objects.XDPFlowStateFLOW_FREE, 0, false, 0)
	proven.put(flow(4, 1), objects.XDPFlowStateFLOW_ESTABLISHED, 1000, false)
	proven.put(flow(5, 1), objects.XDPFlowStateFLOW_ESTABLISHED, 2000, false)
	proven.write(over, flow(6, 1), objects.XDPFlowStateFLOW_FREE, 0, false, 0)
	unproven.put(flow(6, 2), objects.XDPFlowStateFLOW_OPENING, 2000, false)
	m.Finish()
	expect(to.Proven, 1, 1, objects.XDPFlowStateFLOW_CLIENT_FIN, 1000)
	expect(to.Proven, 2, 2, objects.XDPFlowStateFLOW_ESTABLISHED, 1000)
	expect(to.Proven, 3, 1, objects.XDPFlowStateFLOW_ESTABLISHED, 2000)
	expect(to.Proven, 4, 1, objects.XDPFlowStateFLOW_ESTABLISHED, 1000)
	expect(to.Proven, 5, 1, objects.XDPFlowStateFLOW_ESTABLISHED, 2000)
	expect(to.Unproven, 6, 2, objects.XDPFlowStateFLOW_OPENING, 2000)
	if left := to.Unproven.Places(); len(left) != 1 {
		t.Errorf("of flows that were proven, %d are unproven too", len(left)-1)
	}
	six := flow(6, 1)
	if _, there := to.Proven.Find(&six); there {
		t.Error("a flow that is over stands before the one that has begun in its place")
	}
	if m.Memory.Head().Moving != 0 {
		t.Error("the new programs are told that flows still move")
	}
	for _, table := range []*flowtable.Table{to.Proven, to.Unproven} {
		if wrongs := table.Check(); wrongs != "" {
			t.Error(wrongs)
		}
	}
}

// TestUnreadableFlows refuses layouts without a field that a flow needs, and names it.
func TestUnreadableFlows(t *testing.T) {
	for says, change := range map[string]func(*snapshot.FlowLayout){
		`no field "backend"`: func(l *snapshot.FlowLayout) { delete(l.Fields, "flows.backend") },
		`"generation" of its flows`: func(l *snapshot.FlowLayout) {
			l.Fields["flows.generation"] = snapshot.Field{Offset: 0, Size: 4}
		},
		`"address" of its flows`: func(l *snapshot.FlowLayout) {
			l.Fields["flows.address"] = snapshot.Field{Offset: 40, Size: 16}
		},
		"a state FLOW_OTHER":            func(l *snapshot.FlowLayout) { l.States["FLOW_OTHER"] = 20 },
		"its FLOW_KEY_GROUP":            func(l *snapshot.FlowLayout) { l.Numbers["FLOW_KEY_GROUP"]++ },
		"in its buckets, seen":          func(l *snapshot.FlowLayout) { delete(l.Fields, "seen") },
		"in its buckets, flows":         func(l *snapshot.FlowLayout) { l.Bucket -= 8 },
		"in its buckets, tags":          func(l *snapshot.FlowLayout) { l.Numbers["FLOW_BUCKET"] = 0 },
		"a state FLOW_UDP (1000)":       func(l *snapshot.FlowLayout) { l.States["FLOW_UDP"] = 1000 },
		"where the fields of flows are": nil,
	} {
		layout := anotherLayout(t)
		if change == nil {
			layout = nil
		} else {
			change(layout)
		}
		if _, err := flowtable.NewForeignLayout(layout); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want one that says %q", err, says)
		}
	}
	layout := anotherLayout(t)
	delete(layout.Fields, "flows.syn")
	if _, err := flowtable.NewForeignLayout(layout); err != nil {
		t.Errorf("without a field that has a default: %v", err)
	}
}

// TestKeptFlowsOfAnotherLayout takes over the pins of a build with another layout of flows. Where it cannot, the old
// data plane goes on untouched.
func TestKeptFlowsOfAnotherLayout(t *testing.T) {
	testenv.Root(t)
	for name, change := range map[string]func(*snapshot.FlowLayout){"readable": nil,
		"not readable": func(l *snapshot.FlowLayout) { delete(l.Fields, "flows.backend") }} {
		t.Run(name, func(t *testing.T) {
			testenv.In(t, newNICs(t), func() error { return takeOverOtherFlows(t, change) })
		})
	}
}

func takeOverOtherFlows(t *testing.T, change func(*snapshot.FlowLayout)) error {
	k := newRestartRig(t)
	k.limit = 1000
	first, err := k.open()
	if err != nil {
		return err
	}
	state := testState()
	if err := first.Apply(state); err != nil {
		return err
	}
	is := first.register.Records[slices.IndexFunc(state.Services, func(s lb.RoutedService) bool {
		return s.Scheduler == lb.RoundRobin
	})]
	flow := func(port uint16) objects.XDPFlow {
		return objects.XDPFlow{Port: port, Service: is.ID, Backend: is.Places[0].Index,
			Generation: is.Places[0].Generation}
	}
	layout := anotherLayout(t)
	proven, unproven := newForeign(t, layout, 2000), newForeign(t, layout, 2000)
	defer proven.table.Close()
	defer unproven.table.Close()
	if change != nil {
		change(layout)
	}
	proven.put(flow(7), objects.XDPFlowStateFLOW_ESTABLISHED, first.janitor.Now(), false)
	err = rewriteSnapshot(first, func(s *snapshot.Snapshot) {
		s.Flows = layout
		s.Layouts[objects.XDPMapFlows], s.Layouts[objects.XDPMapNewcomers] = "another", "another"
	})
	store, set := first.keeper.Store, first.current.Set
	for name, w := range map[string]*foreignWriter{objects.XDPMapFlows: proven, objects.XDPMapNewcomers: unproven} {
		path := store.Path(pins.Set(set), name)
		err = errors.Join(err, os.Remove(path), w.table.Map.Pin(path))
	}
	before, cannot := programsOn("veth0")
	if err = errors.Join(err, cannot); err != nil {
		return err
	}
	if err = first.Release(); err != nil {
		return err
	}

	second, err := k.open()
	if change != nil {
		if !errors.Is(err, snapshot.ErrVersion) || !strings.Contains(err.Error(), `no field "backend"`) ||
			!strings.Contains(err.Error(), "jeoul detach") {
			t.Errorf("%v, want that it has no field, and what to do", err)
		}
		if after, err := programsOn("veth0"); err != nil || !slices.Equal(before, after) {
			t.Errorf("the programs are %v (%v), and were %v", after, err, before)
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer second.Close()
	if notes := strings.Join(second.Notes(), " "); !second.Adopted() ||
		!strings.Contains(notes, "tables of another layout") {
		t.Fatalf("it was not taken over: %q", notes)
	}
	// The old program goes on until the first change.
	proven.put(flow(8), objects.XDPFlowStateFLOW_ESTABLISHED, second.janitor.Now(), false)
	if err := second.Apply(state); err != nil {
		return err
	}
	for _, port := range []uint16{7, 8} {
		want := flow(port)
		if place, there := second.shared.Proven.Find(&want); !there || place.Flow() != want {
			t.Errorf("the flow of port %d is forgotten", port)
		}
	}
	if active := mapmem.ElementsOf[objects.XDPTurn](second.shared.Turn(is.ID))[0].Active; active != 2 {
		t.Errorf("active flows of its service: %d, want 2", active)
	}
	if room := len(second.shared.Proven.Buckets) * flowtable.PerBucket; room < 2000 {
		t.Errorf("the new table has room for %d flows, the old one for 2000", room)
	}
	return nil
}

// sampleFlow returns the n-th of flows that all differ, of three services with five backends.
func sampleFlow(n int) objects.XDPFlow {
	flow := objects.XDPFlow{Service: uint32(n % 3), Port: uint16(n * 7), Backend: uint32(n % 5), Generation: 1}
	flow.Address[0] = uint32(n)
	if n%2 == 1 {
		flow.Address[3] = uint32(n) * 0x9e3779b1
	}
	return flow
}
