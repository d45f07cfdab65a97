// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
	"github.com/jeoul/jeoul/internal/test/testpacket"
)

// backgroundCapture is a capture that runs beside a test.
type backgroundCapture struct {
	name   string
	events chan capture.Event
	end    context.CancelFunc
	result chan error
	// packets and last are filled in by finish; last is the last event.
	packets []*capture.Packet
	last    capture.Event
}

// startBackgroundCapture starts a capture and returns when packets are captured.
func startBackgroundCapture(t *testing.T, r *rig, name string, request capture.Request) *backgroundCapture {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &backgroundCapture{name: name, events: make(chan capture.Event, 1<<16), end: cancel, result: make(chan error,
		1)}
	go func() {
		c.result <- r.datapath.Capture(ctx, request, func(e capture.Event) error { c.events <- e; return nil })
		close(c.events)
	}()
	t.Cleanup(cancel)
	if e, open := <-c.events; !open {
		t.Fatalf("%s: %v", name, <-c.result)
	} else if e.Started == nil || e.Started.ID == 0 || len(e.Started.Hooks) != 1 || e.Started.Hooks[0].Hook != r.hook {
		t.Fatalf("%s: the first event is %+v", name, e)
	}
	return c
}

// finish ends the capture, unless it has ended, and waits for its last event.
func (c *backgroundCapture) finish(t *testing.T) *backgroundCapture {
	t.Helper()
	c.end()
	return c.wait(t)
}

// wait is finish for a capture that ends by itself.
func (c *backgroundCapture) wait(t *testing.T) *backgroundCapture {
	t.Helper()
	for e := range c.events {
		c.last = e
		if e.Packet != nil {
			c.packets = append(c.packets, e.Packet)
		}
	}
	if err := <-c.result; err != nil {
		t.Errorf("%s: %v", c.name, err)
	}
	if c.last.Counts == nil {
		t.Fatalf("%s: the last event is %+v", c.name, c.last)
	}
	return c
}

// sentFrame is a frame that a test has sent, and how it ended.
type sentFrame struct {
	ending
	frame []byte
}

// sendRandom sends so many random packets of every kind.
func (r *rig) sendRandom(t *testing.T, packets int) (sent []sentFrame) {
	t.Helper()
	g := &generator{Rand: rand.New(rand.NewPCG(7, 1)), tb: t, model: r.model, ids: 1, first: r.model.state.Services}
	for len(sent) < packets && !t.Failed() {
		frame := g.next()
		if !testable(r.hook, frame) {
			continue
		}
		e := r.send(t, frame)
		r.model.decide(frame, seen{pool: r.poolOf})
		sent = append(sent, sentFrame{e, slices.Clone(frame)})
		if e.outcome == "forwarded" && len(sent)%8 == 0 {
			g.keep(e.out)
		}
	}
	return sent
}

// isOf reports whether a captured packet is one that a client of a prefix sent or gets.
func isOf(p *capture.Packet, clients netip.Prefix) bool {
	if p.Came == nil {
		return false
	}
	client := p.Came.Source
	if p.Has(trace.Reply) {
		for _, l := range p.Leaves {
			if at, err := netip.ParseAddr(l.Get("destination")); err == nil {
				return clients.Contains(p.Came.Source) || clients.Contains(at)
			}
		}
	}
	return clients.Contains(client)
}

// TestCapture runs several captures at once while random packets of every mode and family are sent: each is captured as
// it came and as it left, under the outcome and backend of the counters, by the captures whose filters match.
func TestCapture(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, allModes())
		service, clients := r.model.state.Services[len(r.model.state.Services)-1],
			netip.MustParsePrefix("198.18.1.0/30")
		named := func(f capture.Filter) capture.Request {
			return capture.Request{Filter: f, Snap: capture.MaxSnap, Rate: capture.MaxRate}
		}
		all := startBackgroundCapture(t, r, "everything", named(capture.Filter{}))
		some := map[string]func(*capture.Packet) bool{}
		var captures []*backgroundCapture
		add := func(name string, f capture.Filter, wants func(*capture.Packet) bool) {
			some[name] = wants
			captures = append(captures, startBackgroundCapture(t, r, name, named(f)))
		}
		add("dropped, forwarded", capture.Filter{Outcomes: []string{"dropped", "forwarded"}},
			func(p *capture.Packet) bool {
				return strings.HasPrefix(p.Outcome, "dropped_") || p.Outcome == "forwarded"
			})
		add("a service", capture.Filter{Service: service.Name}, func(p *capture.Packet) bool {
			return p.Service != nil && p.Service.Name == service.Name
		})
		add("a backend", capture.Filter{Service: service.Name, Backend: service.Backends[0].Name},
			func(p *capture.Packet) bool {
				return p.Service != nil && p.Service.Name == service.Name && p.Backend != nil &&
					p.Backend.Name == service.Backends[0].Name
			})
		add("clients", capture.Filter{Filter: trace.Filter{Source: clients}}, func(p *capture.Packet) bool {
			return isOf(p, clients)
		})
		add("IPv6", capture.Filter{Family: 6}, func(p *capture.Packet) bool {
			return p.Came != nil && p.Came.Source.Is6()
		})
		add("headers", capture.Filter{}, func(p *capture.Packet) bool { return true })
		captures[len(captures)-1].finish(t)
		captures = captures[:len(captures)-1]
		headers := startBackgroundCapture(t, r, "headers", capture.Request{Rate: capture.MaxRate})
		sent := r.sendRandom(t, 600)
		compareCaptured(t, sent, all.finish(t).packets)
		if diff := cmp.Diff(capture.Counts{Matched: uint64(len(sent)), Captured: uint64(len(sent)),
			Bytes: all.last.Counts.Bytes}, *all.last.Counts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		for _, c := range captures {
			c.finish(t)
			var want []*capture.Packet
			for _, p := range all.packets {
				if some[c.name](p) {
					want = append(want, p)
				}
			}
			if diff := cmp.Diff(jsonLines(want), jsonLines(c.packets)); diff != "" {
				t.Errorf("%s: %d packets, want %d (-want +got):\n%.2000s", c.name, len(c.packets), len(want), diff)
			}
			if len(want) == 0 || len(want) == len(all.packets) {
				t.Errorf("%s: %d of %d packets: the test shows nothing", c.name, len(want), len(all.packets))
			}
		}
		compareHeaders(t, sent, headers.finish(t).packets)
		if r.traces(t) {
			t.Error("after the end of the last capture, the program captures")
		}
	})
}

// jsonLines prints packets by their times, outcomes and frames.
func jsonLines(packets []*capture.Packet) (lines []string) {
	for _, p := range packets {
		copied := *p
		copied.Time = copied.Time.Truncate(0)
		lines = append(lines, p.Outcome+" "+jsonOf(&trace.Packet{Came: p.Came, Service: p.Service, Backend: p.Backend}))
	}
	return lines
}

// compareCaptured compares the captured packets with those that were sent.
func compareCaptured(t *testing.T, sent []sentFrame, got []*capture.Packet) {
	t.Helper()
	if len(got) != len(sent) {
		t.Fatalf("captured %d of %d packets", len(got), len(sent))
	}
	for i, s := range sent {
		p := got[i]
		if problem := differs(s.ending, &p.Packet); problem != "" {
			t.Errorf("packet %d: %s\n%s", i, problem, jsonOf(&p.Packet))
		}
		if !bytes.Equal(p.FrameIn.Bytes, s.frame[:min(len(s.frame), capture.MaxSnap)]) ||
			p.FrameIn.Length != len(s.frame) {
			t.Errorf("packet %d (%s) came as\n%s, captured\n%s", i, s.outcome, testpacket.Dump(s.frame),
				testpacket.Dump(p.FrameIn.Bytes))
		}
		want := s.out
		if strings.HasPrefix(s.outcome, "dropped_") || bytes.Equal(s.out, s.frame) {
			want = nil
		}
		if !bytes.Equal(p.FrameOut.Bytes, want[:min(len(want), capture.MaxSnap)]) {
			t.Errorf("packet %d (%s) left as\n%s, captured\n%s", i, s.outcome, testpacket.Dump(want),
				testpacket.Dump(p.FrameOut.Bytes))
		}
	}
}

// compareHeaders looks at a capture without payload.
func compareHeaders(t *testing.T, sent []sentFrame, got []*capture.Packet) {
	t.Helper()
	if len(got) != len(sent) {
		t.Fatalf("captured the headers of %d of %d packets", len(got), len(sent))
	}
	for i, p := range got {
		frame := sent[i].frame
		want := frame[:capture.HeaderLength(frame[:min(len(frame), capture.HeaderSnap)])]
		if !bytes.Equal(p.FrameIn.Bytes, want) || p.FrameIn.Length != len(frame) {
			t.Errorf("packet %d: headers %x, want %x", i, p.FrameIn.Bytes, want)
		}
	}
}

// TestCaptureSample: of a sample's packets so many are taken as its number says, as near as chance allows (eight
// standard deviations), a sample beside it takes its own, and a filter that no packet passes takes none.
func TestCaptureSample(t *testing.T) {
	const packets, sample = 20_000, 20
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
		t.Run(string(hook), func(t *testing.T) {
			r := newRig(t, hook, testState())
			frame := web4().build(t)
			request := func(f trace.Filter) capture.Request {
				return capture.Request{Filter: capture.Filter{Filter: f}, Rate: capture.MaxRate}
			}
			one := startBackgroundCapture(t, r, "one", request(trace.Filter{Sample: sample}))
			other := startBackgroundCapture(t, r, "other", request(trace.Filter{Sample: 2 * sample}))
			none := startBackgroundCapture(t, r, "none",
				request(trace.Filter{Source: netip.MustParsePrefix("203.0.113.0/24")}))
			checkSkips(t, r)
			for range packets {
				r.run(t, frame)
			}
			for _, c := range []struct {
				*backgroundCapture
				want int
			}{{one, packets / sample}, {other, packets / sample / 2}, {none, 0}} {
				c.finish(t)
				// The distances are uniform, so the number's variance is about a third of its mean.
				got, most := int(c.last.Counts.Matched), 8*math.Sqrt(float64(c.want)/3)
				if math.Abs(float64(got-c.want)) > most {
					t.Errorf("of %d packets, %s has %d, want %d", packets, c.name, got, c.want)
				}
			}
		})
	}
}

// verifiedMost is how many instructions the verifier may walk for a traced program of this test: it refuses a million,
// and configurations with checks and hairpins take more than this test's.
const verifiedMost = 600_000

// TestTracedVerifies: the verifier takes the traced programs of all modes, by a margin.
func TestTracedVerifies(t *testing.T) {
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
		t.Run(string(hook), func(t *testing.T) {
			r := newRig(t, hook, allModes())
			startBackgroundCapture(t, r, "one", capture.Request{})
			for _, p := range r.datapath.current.Programs {
				info, err := p.Info()
				if err != nil {
					t.Fatal(err)
				}
				n, known := info.VerifiedInstructions()
				if t.Log(n, "instructions were verified"); known && n > verifiedMost {
					t.Errorf("%d instructions were verified, want at most %d", n, verifiedMost)
				}
			}
		})
	}
}

// TestCapturesLeaveNoInstruction: while nothing is captured, the programs are those of a balancer that never captured
// anything, instruction by instruction, and none of them has a map of captures.
func TestCapturesLeaveNoInstruction(t *testing.T) {
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
		t.Run(string(hook), func(t *testing.T) {
			r := newRig(t, hook, testState())
			// A tag is a hash of a program's instructions, without the numbers of its maps.
			tags := func() (tags []string) {
				for _, p := range r.datapath.current.Programs {
					info, err := p.Info()
					if err != nil {
						t.Fatal(err)
					}
					tags = append(tags, info.Tag)
				}
				return tags
			}
			before := tags()
			c := startBackgroundCapture(t, r, "one", capture.Request{})
			if during := tags(); slices.Equal(before, during) {
				t.Errorf("while packets are captured, the programs are %q, as before", during)
			}
			c.finish(t)
			if after := tags(); !slices.Equal(before, after) {
				t.Errorf("after a capture the programs are %q, before it %q", after, before)
			}
			for _, c := range r.datapath.current.Collections {
				for name := range c.Maps {
					if strings.HasPrefix(name, "capture_") || strings.HasPrefix(name, "trace_") {
						t.Errorf("a program that captures nothing has the map %s", name)
					}
				}
			}
		})
	}
}

// checkSkips fails the test where a traced program has no plain one that packets without a capture are handed to: its
// decisions are the same, and only the cost would show it.
func checkSkips(t *testing.T, r *rig) {
	t.Helper()
	found := 0
	for _, c := range r.datapath.current.Collections {
		m := c.Maps[traced.XdpMapCapturePlain]
		if m == nil {
			continue
		}
		var id ebpf.ProgramID
		if err := m.Lookup(uint32(0), &id); err != nil || id == 0 {
			t.Errorf("a traced program has the plain program %d, %v", id, err)
		}
		found++
	}
	if want := len(r.datapath.current.Programs); found != want {
		t.Errorf("%d traced programs have a map of plain ones, want %d", found, want)
	}
}

// TestCaptureBounds ends captures by each of their bounds, and counts the packets beyond the rate, and those that were
// not read.
func TestCaptureBounds(t *testing.T) {
	r := newRig(t, lb.HookXDP, testState())
	frame := web4().build(t)
	// While it runs, the others need no program of their own.
	keeper := startBackgroundCapture(t, r, "keeper",
		capture.Request{Filter: capture.Filter{Outcomes: []string{"dropped_no_room"}}})
	packets := startBackgroundCapture(t, r, "packets", capture.Request{Packets: 10})
	size := startBackgroundCapture(t, r, "bytes", capture.Request{Bytes: uint64(10 * len(frame))})
	rate := startBackgroundCapture(t, r, "rate", capture.Request{Rate: 1})
	for range 100 {
		r.run(t, frame)
	}
	if packets.wait(t); len(packets.packets) != 10 || packets.last.Ended != capture.EndPackets {
		t.Errorf("a capture of 10 packets has %d, and ended by %q", len(packets.packets), packets.last.Ended)
	}
	// Both frames of a packet count.
	if size.wait(t); len(size.packets) == 0 || len(size.packets) > 10 || size.last.Ended != capture.EndBytes {
		t.Errorf("a capture of %d bytes has %d packets, and ended by %q", 10*len(frame), len(size.packets),
			size.last.Ended)
	}
	rate.finish(t)
	if c := rate.last.Counts; c.Matched != 100 || c.Captured == 100 || c.Limited == 0 || c.Captured+c.Limited != 100 ||
		uint64(len(rate.packets)) != c.Captured {
		t.Errorf("a capture of a packet a second: %+v, and %d packets", *c, len(rate.packets))
	}
	timed := startBackgroundCapture(t, r, "time", capture.Request{Seconds: 0.01})
	if timed.wait(t); timed.last.Ended != capture.EndTime {
		t.Errorf("a capture of 10 ms ended by %q", timed.last.Ended)
	}
	stalledReader(t, r, frame)
	keeper.finish(t)
}

// stalledReader has a client that does not read: packets go on, and those that find no room are counted.
func stalledReader(t *testing.T, r *rig, frame []byte) {
	t.Helper()
	const packets = captureRingSize / 256
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started, reads, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var told uint64
	var counts capture.Counts
	go func() {
		result <- r.datapath.Capture(ctx, capture.Request{Rate: capture.MaxRate, Snap: capture.MaxSnap},
			func(e capture.Event) error {
				if e.Started != nil {
					close(started)
					return nil
				}
				<-reads
				if e.Packet != nil {
					told++
				}
				if e.Counts != nil {
					counts = *e.Counts
				}
				return nil
			})
	}()
	<-started
	for range packets {
		if e := r.send(t, frame); e.outcome != "" && e.outcome != "forwarded" {
			t.Fatalf("a packet of a capture that is not read was %s", e.outcome)
		}
	}
	close(reads)
	cancel()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if told != counts.Captured || counts.Lost == 0 || counts.Captured+counts.Lost+counts.Limited != packets {
		t.Errorf("told of %d packets of %d; counts %+v", told, packets, counts)
	}
}

// TestCaptureRefuses makes requests that cannot be fulfilled.
func TestCaptureRefuses(t *testing.T) {
	r := newRig(t, lb.HookXDP, testState())
	service := r.model.state.Services[0]
	ask := func(request capture.Request) error {
		return r.datapath.Capture(t.Context(), request, func(capture.Event) error { return errors.New("it began") })
	}
	for want, test := range map[string]struct {
		request capture.Request
		kind    error
	}{
		`no service is named "` + service.Name + `x"; did you mean ` +
			service.Name: {capture.Request{Filter: capture.Filter{Service: service.Name + "x"}}, capture.ErrNoService},
		`no backend of ` + service.Name +
			` is named "web99"`: {capture.Request{Filter: capture.Filter{Service: service.Name, Backend: "web99"}},
			capture.ErrNoService},
		`of which service?`: {capture.Request{Filter: capture.Filter{Backend: "web99"}}, capture.ErrBadRequest},
		`there is no outcome "droped"; did you mean dropped?`: {capture.Request{Filter: capture.Filter{Outcomes: []string{"droped"}}}, capture.ErrBadRequest},
		`no balancing on interface "eth7"`:                    {capture.Request{Filter: capture.Filter{Interface: "eth7"}}, capture.ErrBadRequest},
		`snap length 9217; use 0 (headers) to 9216 bytes`:     {capture.Request{Snap: 9217}, capture.ErrBadRequest},
		`2000000 packets a second`: {capture.Request{Rate: 2_000_000},
			capture.ErrBadRequest},
		`are of different families`: {capture.Request{Filter: capture.Filter{Filter: trace.Filter{
			Source: netip.MustParsePrefix("::/0"), Destination: netip.MustParsePrefix("0.0.0.0/0")}}},
			capture.ErrBadRequest},
	} {
		if err := ask(test.request); !errors.Is(err, test.kind) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		if r.traces(t) {
			t.Fatalf("%q: the program captures after a request that was refused", want)
		}
	}
}

// TestCaptureFollowsTheConfiguration captures a service that is removed, and added again under another number.
func TestCaptureFollowsTheConfiguration(t *testing.T) {
	r := newRig(t, lb.HookTC, testState())
	state := testState()
	service := slices.IndexFunc(state.Services, func(s lb.RoutedService) bool {
		return s.VIP == vip4 && s.Port == 80 && s.Protocol == lb.TCP
	})
	c := startBackgroundCapture(t, r, "web", capture.Request{Filter: capture.Filter{Service: state.Services[service].Name}})
	frame := web4().build(t)
	r.run(t, frame)
	without := testState()
	without.Services = slices.Delete(without.Services, service, service+1)
	for _, s := range []lb.State{without, state} {
		if err := r.datapath.Apply(s); err != nil {
			t.Fatal(err)
		}
		r.run(t, frame)
	}
	var outcomes []string
	for _, p := range c.finish(t).packets {
		outcomes = append(outcomes, p.Outcome)
	}
	if diff := cmp.Diff([]string{"forwarded", "forwarded"}, outcomes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
