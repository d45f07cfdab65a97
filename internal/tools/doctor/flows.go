// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// mostPackets bounds the packets that are followed: to tell of a packet costs the balancer time.
const mostPackets = 20000

// Flows is the behaviour of backends by the packets of clients, as they passed the balancer.
type Flows struct {
	Packets int `json:"packets"`
	// Lost came too fast to be told of.
	Lost uint64 `json:"lost,omitempty"`
	// Seconds is how long packets were followed.
	Seconds  float64         `json:"seconds"`
	Backends []BackendTiming `json:"backends,omitempty"`
}

// BackendTiming is the behaviour of connections to a backend, seen from the balancer.
type BackendTiming struct {
	// Name is SERVICE/BACKEND.
	Name    string     `json:"name"`
	Service string     `json:"service"`
	Address netip.Addr `json:"address"`
	// Opened are connections whose first SYN was seen, Answered those of them whose
	// client went on, and Silent those whose client asked again or waited for long.
	Opened   int `json:"opened"`
	Answered int `json:"answered"`
	Silent   int `json:"silent"`
	// Repeats is how often the SYN came again that came most often.
	Repeats int `json:"repeats,omitempty"`
	// Responses are from a client's request to its acknowledgement of the answer, in milliseconds: their number and
	// median. The client's way there and back is part of them, the same for all backends.
	Responses int     `json:"responses"`
	MedianMs  float64 `json:"median_ms"`
}

// flowKey is a connection as the balancer sees it.
type flowKey struct {
	client, service netip.AddrPort
}

type flowState struct {
	backend  *tally
	opened   time.Time // when the first SYN came; zero if it was not seen
	repeats  int       // how many more SYNs came
	answered bool
	asked    time.Time // when a request came that is not yet answered
}

type tally struct {
	timing    BackendTiming
	responses []float64
}

// follower makes timings from packets.
type follower struct {
	flows    map[flowKey]*flowState
	backends map[string]*tally
	packets  int
	lost     uint64
	first    time.Time
	last     time.Time
}

func newFollower() *follower {
	return &follower{flows: map[flowKey]*flowState{}, backends: map[string]*tally{}}
}

// take takes a packet of a client; others are left out.
func (f *follower) take(p *trace.Packet) {
	f.packets++
	if f.first.IsZero() {
		f.first = p.Time
	}
	f.last = p.Time
	if p.Came == nil || p.Backend == nil || p.Service == nil || p.Service.Protocol != lb.TCP || p.Has(trace.Reply) ||
		p.Has(trace.Quoted) {
		return
	}
	b := f.tally(p)
	key := flowKey{netip.AddrPortFrom(p.Came.Source, p.Came.SourcePort),
		netip.AddrPortFrom(p.Came.Destination, p.Came.DestinationPort)}
	has := func(flag string) bool { return slices.Contains(p.Came.Flags, flag) }
	flow := f.flows[key]
	if has("syn") {
		switch {
		case flow == nil || flow.answered:
			f.flows[key] = &flowState{backend: b, opened: p.Time}
		default:
			flow.repeats++
		}
		return
	}
	if flow == nil {
		flow = &flowState{backend: b}
		f.flows[key] = flow
	}
	flow.answered = true
	// A packet after a request acknowledges the answer to it.
	if !flow.asked.IsZero() {
		b.responses = append(b.responses, float64(p.Time.Sub(flow.asked))/float64(time.Millisecond))
		flow.asked = time.Time{}
	}
	if has("psh") {
		flow.asked = p.Time
	}
}

func (f *follower) tally(p *trace.Packet) *tally {
	name := p.Service.Name + "/" + p.Backend.Name
	if f.backends[name] == nil {
		f.backends[name] = &tally{timing: BackendTiming{Name: name, Service: p.Service.Name,
			Address: p.Backend.Address}}
	}
	return f.backends[name]
}

// synTimeout is how long a SYN may go unanswered.
const synTimeout = time.Second

// end sums up.
func (f *follower) end(now time.Time) Flows {
	for _, flow := range f.flows {
		if flow.opened.IsZero() {
			continue
		}
		t := &flow.backend.timing
		t.Opened++
		t.Repeats = max(t.Repeats, flow.repeats)
		switch {
		case flow.answered:
			t.Answered++
		case flow.repeats > 0 || now.Sub(flow.opened) >= synTimeout:
			t.Silent++
		}
	}
	flows := Flows{Packets: f.packets, Lost: f.lost, Seconds: f.last.Sub(f.first).Seconds()}
	for _, b := range f.backends {
		b.timing.Responses = len(b.responses)
		b.timing.MedianMs = median(b.responses)
		flows.Backends = append(flows.Backends, b.timing)
	}
	slices.SortFunc(flows.Backends, func(a, b BackendTiming) int { return cmp.Compare(a.Name, b.Name) })
	return flows
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// following is packets of a balancer being followed.
type following struct {
	began, ended chan struct{}
	stop         context.CancelFunc
	flows        Flows
	err          error
}

// followFlows has the daemon on a socket tell of packets, until stop is called or
// there were enough. began is closed when it does, ended when it does no longer.
func followFlows(ctx context.Context, socket string) *following {
	ctx, stop := context.WithCancel(ctx)
	following := &following{began: make(chan struct{}), ended: make(chan struct{}), stop: stop}
	go func() {
		defer close(following.ended)
		defer stop()
		following.flows, following.err = follow(ctx, stop, socket, following.began)
		if ctx.Err() != nil {
			following.err = nil
		}
	}()
	return following
}

func follow(ctx context.Context, enough func(), socket string, began chan<- struct{}) (Flows, error) {
	f := newFollower()
	request := api.TraceRequest{}
	request.Protocol = lb.TCP
	err := api.NewClient(socket).Trace(ctx, request, func(event trace.Event) error {
		if event.Started {
			close(began)
		}
		f.lost += event.Lost
		if event.Packet != nil {
			f.take(event.Packet)
		}
		if f.packets >= mostPackets {
			enough()
		}
		return nil
	})
	return f.end(time.Now()), err
}

// A backend is slow where its median is this many times that of the others, and by at
// least so many milliseconds, of at least so many responses.
const (
	slowFactor   = 5
	slowMs       = 5
	fewResponses = 5
	fewSilent    = 3
	silentShare  = 0.5
	// manyRepeats is a number of SYNs that no client sends while the doctor looks (RFC 6298: after 1, 3, 7 … seconds;
	// Linux begins with one a second).
	manyRepeats = 20
)

func judgeFlows(e *Evidence) (findings []Finding) {
	for _, b := range e.Flows.Backends {
		if b.Repeats >= manyRepeats {
			findings = append(findings,
				finding(forwardingLoop, fmt.Sprintf("Packets that go to backend %s (%s) come back", b.Name, b.Address),
					Figure{Name: "the same SYN again", On: b.Name, Value: float64(b.Repeats), Unit: "times"}))
		}
		if b.Silent >= fewSilent && float64(b.Silent) >= silentShare*float64(b.Opened) {
			findings = append(findings,
				finding(backendSilent, fmt.Sprintf("Backend %s (%s) does not answer", b.Name, b.Address),
					Figure{Name: "unanswered connections", On: b.Name, Value: float64(b.Silent), Unit: "connections",
						Of: float64(b.Opened)}))
		}
		var others []float64
		for _, o := range e.Flows.Backends {
			if o.Name != b.Name && o.Service == b.Service && o.Responses >= fewResponses {
				others = append(others, o.MedianMs)
			}
		}
		if b.Responses < fewResponses || len(others) == 0 {
			continue
		}
		usual := median(others)
		if b.MedianMs < slowFactor*usual || b.MedianMs-usual < slowMs {
			continue
		}
		findings = append(findings,
			finding(backendSlow, fmt.Sprintf("Backend %s (%s) takes %.0f times as long to answer as the others", b.Name,
				b.Address, b.MedianMs/max(usual, 0.1)),
				Figure{Name: "median response", On: b.Name, Value: b.MedianMs, Unit: "ms",
					Note: fmt.Sprintf("of %d", b.Responses)},
				Figure{Name: "median response", On: "the others", Value: usual, Unit: "ms"}))
	}
	return findings
}
