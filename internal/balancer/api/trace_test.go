// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

var (
	client  = netip.MustParseAddr("192.0.2.7")
	vip     = netip.MustParseAddr("192.0.2.100")
	compare = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
)

func TestExplain(t *testing.T) {
	question := trace.Question{Source: client, SourcePort: 4711, Destination: vip, DestinationPort: 80,
		Protocol: lb.TCP, Flags: []string{"syn"}}
	slot := uint32(0)
	answer := &trace.Packet{Hook: lb.HookXDP, Outcome: "forwarded", Help: "sent on", Slot: &slot, Slots: 7,
		Service: &trace.Service{Name: "web", VIP: vip, Port: 80, Protocol: lb.TCP, Mode: lb.NAT, Scheduler: lb.Maglev},
		Changes: []trace.Change{{Layer: "ipv4", Field: "destination", Before: "a", After: "b"}}}
	var requested trace.Question
	path, stop := serveAll(t, Balancer{Explain: func(q trace.Question) (*trace.Packet, error) {
		requested = q
		return answer, nil
	}})
	defer stop()
	got, err := NewClient(path).Explain(t.Context(), question)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(question, requested, compare); diff != "" {
		t.Errorf("question (-sent +arrived):\n%s", diff)
	}
	if diff := cmp.Diff(answer, got, compare); diff != "" {
		t.Errorf("answer (-sent +arrived):\n%s", diff)
	}
}

func TestExplainRefusals(t *testing.T) {
	var refusal error
	path, stop := serveAll(t, Balancer{Explain: func(trace.Question) (*trace.Packet, error) { return nil, refusal }})
	defer stop()
	for code, err := range map[int]error{
		http.StatusBadRequest:          fmt.Errorf("%w: why", trace.ErrBadQuestion),
		http.StatusNotFound:            fmt.Errorf("%w: why", trace.ErrNoService),
		http.StatusInternalServerError: errors.New("because: why"),
	} {
		refusal = err
		if _, got := NewClient(path).Explain(t.Context(), trace.Question{Protocol: lb.UDP}); got == nil ||
			!strings.HasSuffix(got.Error(), refusal.Error()) {
			t.Errorf("error %v, want the server's (%v)", got, refusal)
		}
		response, err := NewClient(path).http.Post("http://jeoul"+explainPath, "application/json",
			strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != code {
			t.Errorf("%v: status %d, want %d", refusal, response.StatusCode, code)
		}
	}
	for body, want := range map[string]int{"": http.StatusBadRequest, "{": http.StatusBadRequest,
		"{} {}": http.StatusBadRequest, `{"souce": "192.0.2.7"}`: http.StatusBadRequest, `{"source": "` +
			strings.Repeat("1", maxRequest) + `"}`: http.StatusRequestEntityTooLarge} {
		response, err := NewClient(path).http.Post("http://jeoul"+explainPath, "application/json",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("a body of %d bytes that is no question: status %d", len(body), response.StatusCode)
		}
	}
}

// tracer is a balancer that reports packets until the context ends.
func tracer(filter *trace.Filter, ended chan<- error) Balancer {
	return Balancer{Trace: func(ctx context.Context, f trace.Filter, notify func(trace.Event) error) error {
		*filter = f
		err := notify(trace.Event{Started: true})
		for n := uint64(1); err == nil && n <= 3; n++ {
			err = notify(trace.Event{Packet: &trace.Packet{Hook: lb.HookTC, Outcome: "forwarded"}, Lost: n})
		}
		if err == nil {
			<-ctx.Done()
		}
		ended <- err
		return err
	}}
}

func TestTrace(t *testing.T) {
	var requested trace.Filter
	ended := make(chan error, 1)
	path, stop := serveAll(t, tracer(&requested, ended))
	defer stop()
	want := trace.Filter{Source: netip.MustParsePrefix("192.0.2.0/24"), DestinationPort: 80, Protocol: lb.UDP,
		Sample: 10}
	var lost uint64
	enough := errors.New("enough")
	err := NewClient(path).Trace(t.Context(), TraceRequest{Filter: want}, func(e trace.Event) error {
		if lost += e.Lost; lost == 1+2+3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("error %v, want that of the caller", err)
	}
	// The client has hung up: the balancer must notice, though it is not writing.
	if err := <-ended; err != nil {
		t.Errorf("the trace ended with %v", err)
	}
	if requested != want {
		t.Errorf("filter %v arrived, %v was sent", requested, want)
	}
}

func TestTraceEndsInTime(t *testing.T) {
	ended := make(chan error, 1)
	path, stop := serveAll(t, tracer(&trace.Filter{}, ended))
	defer stop()
	events := 0
	err := NewClient(path).Trace(t.Context(), TraceRequest{Seconds: 0.01}, func(trace.Event) error {
		events++
		return nil
	})
	if err != nil || events != 4 {
		t.Errorf("%d events and %v, want 4 and none", events, err)
	}
}

func TestTraceEndsWithTheServer(t *testing.T) {
	ended := make(chan error, 1)
	path, stop := serveAll(t, tracer(&trace.Filter{}, ended))
	events, stopped := 0, make(chan struct{})
	err := NewClient(path).Trace(t.Context(), TraceRequest{}, func(trace.Event) error {
		if events++; events == 4 {
			go func() { stop(); close(stopped) }()
		}
		return nil
	})
	<-stopped
	if err != nil || events != 4 {
		t.Errorf("%d events and %v, want 4 and none", events, err)
	}
}

func TestTraceFails(t *testing.T) {
	var notified int
	path, stop := serveAll(t,
		Balancer{Trace: func(_ context.Context, _ trace.Filter, notify func(trace.Event) error) error {
			for range notified {
				if err := notify(trace.Event{Started: true}); err != nil {
					return err
				}
			}
			return fmt.Errorf("%w, sorry", trace.ErrBusy)
		}})
	defer stop()
	for notified = range 2 {
		err := NewClient(path).Trace(t.Context(), TraceRequest{}, func(trace.Event) error { return nil })
		if err == nil || !strings.HasSuffix(err.Error(), "too many traces, sorry") {
			t.Errorf("after %d events: error %v", notified, err)
		}
	}
}
