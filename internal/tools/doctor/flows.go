// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// maxPackets limits the packets that are followed, because reporting a packet costs the balancer time.
const maxPackets = 20000

// flowKey is a connection as the balancer sees it.
type flowKey struct {
	client, service netip.AddrPort
}

type flowState struct {
	backend  *tally
	opened   time.Time // time of the first SYN; zero if it was not seen
	repeats  int       // number of further SYNs
	answered bool
	asked    time.Time // time of a request that has no answer yet
}

type tally struct {
	timing    evidence.BackendTiming
	responses []float64
}

// follower computes timings from packets.
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

// take processes a packet of a client, and ignores other packets.
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
	// A packet after a request acknowledges its answer.
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
		f.backends[name] = &tally{timing: evidence.BackendTiming{Name: name, Service: p.Service.Name,
			Address: p.Backend.Address}}
	}
	return f.backends[name]
}

// synTimeout is the time after which a SYN counts as unanswered.
const synTimeout = time.Second

// end sums up the flows.
func (f *follower) end(now time.Time) evidence.Flows {
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
	flows := evidence.Flows{Packets: f.packets, Lost: f.lost, Seconds: f.last.Sub(f.first).Seconds()}
	for _, b := range f.backends {
		b.timing.Responses = len(b.responses)
		b.timing.MedianMs = evidence.Median(b.responses)
		flows.Backends = append(flows.Backends, b.timing)
	}
	slices.SortFunc(flows.Backends, func(a, b evidence.BackendTiming) int { return cmp.Compare(a.Name, b.Name) })
	return flows
}

// following is a trace of a balancer's packets in progress.
type following struct {
	began, ended chan struct{}
	stop         context.CancelFunc
	flows        evidence.Flows
	err          error
}

// followFlows asks the daemon on a socket to report packets, until stop is called or enough packets arrived. began is
// closed when reporting starts, and ended when it has ended.
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

func follow(ctx context.Context, enough func(), socket string, began chan<- struct{}) (evidence.Flows, error) {
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
		if f.packets >= maxPackets {
			enough()
		}
		return nil
	})
	return f.end(time.Now()), err
}
