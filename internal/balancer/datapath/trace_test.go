// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tracing"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/test/testpacket"
)

// TestPlainProgramCannotTrace: the program that forwards when no trace runs has none of the maps that tracing needs.
func TestPlainProgramCannotTrace(t *testing.T) {
	for _, kind := range []loader.Kind{loader.XDP, loader.TC} {
		for name, load := range map[string]func() (*ebpf.CollectionSpec, error){
			"plain": kind.Load, "traced": kind.Traced} {
			spec, err := load()
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, program := range spec.Programs {
				for _, instruction := range program.Instructions {
					if instruction.IsBuiltinCall() && instruction.Constant == int64(asm.FnRingbufOutput) {
						found = append(found, "a call that writes a record")
					}
				}
			}
			for m := range spec.Maps {
				if traced.IsOwn(m) {
					found = append(found, "map "+m)
				}
			}
			if traced := name == "traced"; traced != (len(found) > 0) {
				t.Errorf("%s, %s: found %v", kind.Name, name, found)
			}
		}
	}
}

// TestOnlyTheTracedProgramHasTheRing compares the maps of both programs as the kernel has loaded them.
func TestOnlyTheTracedProgramHasTheRing(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := sharedRig(t, hook)
		e, err := tracing.NewExplainer(r.datapath.explainInput())
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		for name, program := range map[string]*ebpf.Program{"plain": r.datapath.Program(), "traced": e.Programs.Programs[0]} {
			info, err := program.Info()
			if err != nil {
				t.Fatal(err)
			}
			if hasMap := slices.Contains(mapNames(t, info), "trace_ring"); hasMap != (name == "traced") {
				t.Errorf("%s program: has the ring: %v", name, hasMap)
			}
		}
	})
}

// mapNames lists the maps that a loaded program uses.
func mapNames(t *testing.T, info *ebpf.ProgramInfo) (names []string) {
	t.Helper()
	ids, ok := info.MapIDs()
	if !ok {
		t.Skip("the kernel does not say which maps a program uses")
	}
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
		m.Close()
	}
	return names
}

// contentsOf returns the contents of all shared maps.
func contentsOf(t *testing.T, s *sharedmaps.Maps) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, m := range s.ByName() {
		key := make([]byte, m.KeySize())
		entries := m.Iterate()
		if m.Type() == ebpf.PerCPUArray {
			var values [][]byte
			for entries.Next(&key, &values) {
				all[fmt.Sprintf("%s %x", name, key)] = fmt.Sprintf("%x", values)
			}
		} else {
			var value []byte
			for entries.Next(&key, &value) {
				all[fmt.Sprintf("%s %x", name, key)] = fmt.Sprintf("%x", value)
			}
		}
		if err := entries.Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return all
}

// ending is the outcome of a packet, by the program's counters.
type ending struct {
	outcome string
	backend lb.BackendKey
	out     []byte
}

// send runs a frame through the program. Other tests check the result.
func (r *rig) send(t *testing.T, frame []byte) (e ending) {
	t.Helper()
	_, out := r.run(t, frame)
	e.out = slices.Clone(out)
	now := r.counters(t)
	for i, o := range now.Outcomes {
		if o != r.last.Outcomes[i] {
			e.outcome = o.Name
		}
	}
	for key, count := range now.Backends {
		if count != r.last.Backends[key] {
			e.backend = key
		}
	}
	r.last = now
	return e
}

// TestExplainAgrees asks about each of many random packets, then sends it, and
// compares. Between, nothing may have changed.
func TestExplainAgrees(t *testing.T) {
	const packets, contentsEvery = 800, 200
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, allModes())
		e, err := tracing.NewExplainer(r.datapath.explainInput())
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		g := &generator{Rand: rand.New(rand.NewPCG(3, 1)), tb: t, model: r.model, ids: 1, first: r.model.state.Services}
		ends := map[string]int{}
		for n := 0; n < packets && !t.Failed(); {
			frame := g.next()
			if !testable(hook, frame) {
				continue
			}
			n++
			var before map[string]string
			if n%contentsEvery == 0 {
				before = contentsOf(t, r.datapath.shared)
			}
			packet, explained, err := e.Run(0, frame)
			if err != nil {
				t.Fatal(err)
			}
			if before != nil {
				if diff := cmp.Diff(before, contentsOf(t, r.datapath.shared)); diff != "" {
					t.Errorf("a question changed what flows and counters are kept (-before +after):\n%s", diff)
				}
			}
			sent := r.send(t, frame)
			// The generator makes packets of the flows that the model knows.
			r.model.decide(frame, seen{pool: r.poolOf})
			problem := differs(sent, packet)
			if problem == "" && !strings.HasPrefix(sent.outcome, "dropped_") && !bytes.Equal(sent.out, explained) {
				problem = "bytes (-sent +explained):\n" + cmp.Diff(sent.out, explained)
			}
			if problem != "" {
				t.Errorf("packet %d: %s\n%s\n%s", n, problem, jsonOf(packet), testpacket.Dump(frame))
			}
			ends[sent.outcome]++
			if sent.outcome == "forwarded" && n%8 == 0 {
				g.keep(sent.out)
			}
		}
		t.Logf("%v", ends)
	})
}

// differs returns the difference between a trace and the program's outcome.
func differs(e ending, packet *trace.Packet) string {
	if packet.Outcome != e.outcome {
		return fmt.Sprintf("the trace says %s, the counters %s", packet.Outcome, e.outcome)
	}
	if e.outcome != "forwarded" && e.outcome != "returned" {
		return ""
	}
	if packet.Backend == nil || packet.Service == nil {
		return "the trace names no backend"
	}
	got := lb.BackendKey{Address: packet.Backend.Address, Port: packet.Backend.Port,
		Service: lb.ServiceKey{VIP: packet.Service.VIP, Port: packet.Service.Port, Protocol: packet.Service.Protocol}}
	if got != e.backend {
		return fmt.Sprintf("the trace says backend %v, the counters %v", got, e.backend)
	}
	if e.outcome == "returned" != packet.Has(trace.Reply) {
		return fmt.Sprintf("reasons %v of a packet that was %s", packet.Reasons, e.outcome)
	}
	return ""
}

// jsonOf prints a trace.
func jsonOf(p *trace.Packet) string {
	text, err := json.Marshal(p)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// TestExplain asks as a person does.
func TestExplain(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		d := sharedRig(t, hook).datapath
		for port, mode := range map[uint16]lb.Mode{80: lb.L2DSR, portIPIP: lb.IPIP, portGUE: lb.GUE, portDSCP: lb.DSCP,
			portNAT: lb.NAT, portFullNAT: lb.FullNAT} {
			p, err := d.Explain(trace.Question{Source: client4, SourcePort: 4711, Destination: vip4,
				DestinationPort: port, Protocol: lb.TCP, Flags: []string{"syn"}})
			if err != nil {
				t.Fatal(err)
			}
			if p.Outcome != "forwarded" || p.Service == nil || p.Service.Mode != mode || p.Backend == nil ||
				p.Path == nil || (p.Slot == nil) != p.Has(trace.NewFlow) || p.Hook != hook {
				t.Fatalf("%s: %s", mode, jsonOf(p))
			}
			changed := map[string]string{}
			for _, c := range p.Changes {
				changed[c.Layer+" "+c.Field] = c.Before + ">" + c.After
			}
			if got, want := changed["ethernet destination"], balancerMAC.String()+">"+p.Path.NextHop; got != want {
				t.Errorf("%s: next hop %s, want %s", mode, got, want)
			}
			to := ">" + p.Backend.Address.String()
			if mode.Translates() || mode == lb.DSCP {
				to = vip4.String() + to
			}
			if got := changed["ipv4 destination"]; (mode != lb.L2DSR && got != to) || (mode == lb.L2DSR && got != "") {
				t.Errorf("%s: destination %s, want %s", mode, got, to)
			}
		}
	})
}

func TestExplainRefuses(t *testing.T) {
	state := testState()
	for port := range uint16(tracing.MaxServicesListed) {
		state.Services = append(state.Services, testService(vip4, 9000+port, lb.TCP, lb.Maglev, 1))
	}
	d := newRig(t, lb.HookXDP, state).datapath
	question := trace.Question{Source: client4, SourcePort: 4711, Destination: vip4, DestinationPort: 80,
		Protocol: lb.TCP}
	for want, test := range map[string]struct {
		change func(*trace.Question)
		kind   error
	}{
		"tcp 198.18.0.100:443 is none": {func(q *trace.Question) { q.DestinationPort = 443 },
			trace.ErrNoService},
		"There are: maglev-tcp-80 (tcp 198.18.0.100:80), ": {func(q *trace.Question) { q.DestinationPort = 443 },
			trace.ErrNoService},
		", and 9 more": {func(q *trace.Question) { q.DestinationPort = 443 },
			trace.ErrNoService},
		`no balancing on interface "eth7"`: {func(q *trace.Question) {
			q.Interface = "eth7"
		}, trace.ErrBadQuestion},
		"198.18.1.7 and 2001:2::100 are of different families": {func(q *trace.Question) {
			q.Destination = vip6
		}, trace.ErrBadQuestion},
	} {
		q := question
		test.change(&q)
		if _, err := d.Explain(q); !errors.Is(err, test.kind) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	idle := NewDetached(testOptions(lb.HookXDP), balancerMAC)
	if _, err := idle.Explain(question); err == nil {
		t.Error("a datapath without a configuration answered")
	}
	idle.Close()
	if _, err := idle.Explain(question); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed datapath: %v", err)
	}
}

// live is a trace that runs beside a test.
type live struct {
	*rig
	events chan trace.Event
	end    context.CancelFunc
	result chan error
}

// startLive starts a trace and returns when packets are reported.
func startLive(t *testing.T, r *rig, filter trace.Filter) *live {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &live{r, make(chan trace.Event, 1<<16), cancel, make(chan error, 1)}
	go func() {
		l.result <- r.datapath.Trace(ctx, filter, func(e trace.Event) error { l.events <- e; return nil })
		close(l.events)
	}()
	t.Cleanup(cancel)
	select {
	case e := <-l.events:
		if !e.Started {
			t.Fatalf("the first event is %v", e)
		}
	case err := <-l.result:
		t.Fatal(err)
	}
	return l
}

// finish ends the trace and returns its packets.
func (l *live) finish(t *testing.T) (packets []*trace.Packet, lost uint64) {
	t.Helper()
	l.end()
	if err := <-l.result; err != nil {
		t.Error(err)
	}
	for e := range l.events {
		lost += e.Lost
		if e.Packet != nil {
			packets = append(packets, e.Packet)
		}
	}
	return packets, lost
}

// traces reports whether the program that forwards is the traced one.
func (r *rig) traces(t *testing.T) bool {
	t.Helper()
	info, err := r.datapath.Program().Info()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(mapNames(t, info), "trace_noted")
}

// TestTrace sends random packets while a trace runs and the configuration changes: the program decides and counts as
// ever, and records each.
func TestTrace(t *testing.T) {
	const packets = 500
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, allModes())
		if r.traces(t) {
			t.Fatal("a program traces before a trace was started")
		}
		l := startLive(t, r, trace.Filter{})
		var others []*live
		for range traced.MaxCaptures - 1 {
			others = append(others, startLive(t, r, trace.Filter{}))
		}
		if err := r.datapath.Trace(t.Context(), trace.Filter{}, nil); !errors.Is(err, trace.ErrBusy) {
			t.Errorf("one trace too many: %v", err)
		}
		for _, other := range others {
			other.finish(t)
		}
		g := &generator{Rand: rand.New(rand.NewPCG(4, 1)), tb: t, model: r.model, ids: 1, first: r.model.state.Services}
		var want []ending
		for len(want) < packets && !t.Failed() {
			if len(want) == packets/2 {
				if err := r.datapath.Apply(allModes()); err != nil {
					t.Fatal(err)
				}
			}
			if frame := g.next(); testable(hook, frame) {
				e := r.send(t, frame)
				r.model.decide(frame, seen{pool: r.poolOf})
				want = append(want, e)
			}
		}
		if !r.traces(t) {
			t.Error("after a change of the configuration, the program does not trace")
		}
		got, lost := l.finish(t)
		if r.traces(t) {
			t.Error("after the end of the trace, the program traces")
		}
		if len(got) != len(want) || lost != 0 {
			t.Fatalf("told of %d packets and lost %d of %d", len(got), lost, len(want))
		}
		for i, packet := range got {
			if problem := differs(want[i], packet); problem != "" {
				t.Errorf("packet %d: %s\n%s", i, problem, jsonOf(packet))
			}
			if packet.Time.IsZero() || i > 0 && packet.Time.Before(got[i-1].Time) {
				t.Errorf("packet %d ended at %v, the one before at %v", i, packet.Time, got[i-1].Time)
			}
		}
		startLive(t, r, trace.Filter{}).finish(t)
	})
}

// TestTraceFilter sends the packets of a few flows, and counts those told of.
func TestTraceFilter(t *testing.T) {
	// The kernel verifies a program for each filter: one of each kind will do, and all in `make test-hooks`.
	quickFilters := []string{"a prefix with host", "a VIP's port", "one in very many", "a flow of all numbers"}
	other := with(web4(), func(p *packetSpec) { p.from = netip.MustParseAddr("198.18.1.9") })
	nat := with(web4(), func(p *packetSpec) { p.dport = portNAT })
	udp := packetSpec{from: client4, at: vip4, sport: 40000, dport: 53, udp: true}
	send := []packetSpec{web4(), other, nat, udp, web6()}
	prefix := netip.MustParsePrefix
	// Each filter is two programs to load: no more services than it takes.
	state := testState()
	state.Services = append(state.Services, modeService(vip4, portNAT, lb.TCP, lb.Maglev))
	r := newRig(t, lb.HookXDP, state)
	for name, test := range map[string]struct {
		filter trace.Filter
		want   int // of send, and the reply to nat, and an ICMP error about nat
	}{
		"everything":           {trace.Filter{}, 7},
		"a client":             {trace.Filter{Source: prefix("198.18.1.7/32")}, 4}, // web4, nat, its reply, udp
		"a network of clients": {trace.Filter{Source: prefix("198.18.1.0/28")}, 5},
		"a prefix with host":   {trace.Filter{Source: prefix("198.18.1.9/28")}, 5},
		"another network":      {trace.Filter{Source: prefix("198.18.1.128/25")}, 0},
		// all of IPv4, the ICMP error too
		"a VIP":           {trace.Filter{Destination: prefix("198.18.0.100/32")}, 6},
		"the other VIP":   {trace.Filter{Destination: prefix("2001:2::100/128")}, 1},
		"an IPv6 network": {trace.Filter{Source: prefix("2001:2::/64")}, 1},
		"any IPv6":        {trace.Filter{Source: prefix("::/0")}, 1},
		// nat, its reply, the ICMP error
		"a VIP's port":     {trace.Filter{Destination: prefix("198.18.0.100/32"), DestinationPort: portNAT}, 3},
		"a client's port":  {trace.Filter{Source: prefix("198.18.1.7/32"), SourcePort: 40000}, 4},
		"an unused port":   {trace.Filter{Source: prefix("198.18.1.7/32"), SourcePort: 40001}, 0},
		"UDP":              {trace.Filter{Protocol: lb.UDP}, 1},
		"TCP":              {trace.Filter{Protocol: lb.TCP}, 5},
		"one in very many": {trace.Filter{Sample: 1 << 31}, 0},
		"one in one":       {trace.Filter{Sample: 1, Protocol: lb.UDP}, 1},
		"a flow of all numbers": {trace.Filter{Source: prefix("198.18.1.7/32"), SourcePort: 40000,
			Destination: prefix("198.18.0.100/32"), DestinationPort: 80, Protocol: lb.TCP}, 1},
	} {
		if !slices.Contains(quickFilters, name) && !testenv.InTarget(testenv.HooksTarget) {
			continue
		}
		l := startLive(t, r, test.filter)
		for _, p := range send {
			sent := r.send(t, p.build(t))
			if p.dport != portNAT {
				continue
			}
			reply := nat.answer()
			reply.from, reply.sport, reply.flags = sent.backend.Address, sent.backend.Port, "SA"
			if e := r.send(t, reply.build(t)); e.outcome != "returned" {
				t.Fatalf("%s: a reply was %s", name, e.outcome)
			}
			if e := r.send(t, icmpError(t, netip.MustParseAddr("198.18.5.5"), nat.answer().build(t),
				64)); e.outcome != "forwarded" {
				t.Fatalf("%s: an ICMP error was %s", name, e.outcome)
			}
		}
		if got, _ := l.finish(t); len(got) != test.want {
			t.Errorf("%s: told of %d packets, want %d:", name, len(got), test.want)
			for _, p := range got {
				t.Log(jsonOf(p))
			}
		}
	}
}

// TestTraceLosesUnderAName lets the ring run full.
func TestTraceLosesUnderAName(t *testing.T) {
	r := newRig(t, lb.HookXDP, testState())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const packets = 3 * liveTraceRingSize / 256
	started, full := make(chan struct{}), make(chan struct{})
	result := make(chan error, 1)
	var told, lost uint64
	go func() {
		result <- r.datapath.Trace(ctx, trace.Filter{}, func(e trace.Event) error {
			if e.Started {
				close(started)
			} else {
				<-full
			}
			if e.Packet != nil {
				told++
			}
			lost += e.Lost
			return nil
		})
	}()
	select {
	case <-started:
	case err := <-result:
		t.Fatal(err)
	}
	frame := web4().build(t)
	for range packets {
		r.run(t, frame)
	}
	close(full)
	cancel()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if told+lost != packets || lost == 0 {
		t.Errorf("told of %d packets and lost %d, of %d", told, lost, packets)
	}
}

// TestTraceEndsWithItsListener ends when its listener takes no more.
func TestTraceEndsWithItsListener(t *testing.T) {
	r := newRig(t, lb.HookTC, testState())
	gone := errors.New("gone")
	started, result := make(chan struct{}), make(chan error, 1)
	go func() {
		result <- r.datapath.Trace(t.Context(), trace.Filter{}, func(e trace.Event) error {
			if e.Started {
				close(started)
				return nil
			}
			return gone
		})
	}()
	select {
	case <-started:
	case err := <-result:
		t.Fatal(err)
	}
	r.run(t, web4().build(t))
	if err := <-result; !errors.Is(err, gone) {
		t.Errorf("error %v, want the listener's", err)
	}
	if r.traces(t) {
		t.Error("the program still traces")
	}
}

func TestTraceNumbers(t *testing.T) {
	got, err := tracing.FilterOf(capture.Request{Filter: capture.Filter{Filter: trace.Filter{
		Source: netip.MustParsePrefix("198.18.1.7/20"), DestinationPort: 80, Protocol: lb.TCP, Sample: 5}}})
	if err != nil {
		t.Fatal(err)
	}
	source := binary.BigEndian.AppendUint32(nil, 0)
	binary.NativeEndian.PutUint32(source, got.Client[0])
	mask := binary.BigEndian.AppendUint32(nil, 0)
	binary.NativeEndian.PutUint32(mask, got.ClientMask[0])
	if !bytes.Equal(source, []byte{198, 18, 0, 0}) || !bytes.Equal(mask, []byte{255, 255, 240, 0}) || got.Family != 4 ||
		got.Protocol != 6 || got.Sample != 5 {
		t.Errorf("198.18.1.7/20 became %v/%v: %+v", source, mask, got)
	}
	for _, a := range []netip.Addr{client4, client6} {
		family := uint8(4)
		if a.Is6() {
			family = 6
		}
		if back := mapmem.ToAddress(mapmem.OfAddress(a), family); back != a {
			t.Errorf("%s came back as %s", a, back)
		}
	}
}
