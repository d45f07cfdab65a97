// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tracing"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

const (
	// captureRingSize is the size of a capture's ring in bytes: some 6,000 packets without payload, which is more than
	// the default rate takes in a window of time.
	captureRingSize = 4 << 20
	// liveTraceRingSize is the size of a live trace's ring: about 4,000 packets, or some milliseconds of a busy
	// balancer.
	liveTraceRingSize = 1 << 20
)

// Trace calls send for real packets until the context ends, which is no error, or send returns an error, which Trace
// returns. Meanwhile the traced program replaces the plain one; both decide the same. The first event says that it is
// attached. A live trace is a capture without frames. Errors: trace.ErrBadQuestion, trace.ErrBusy,
// ErrClosed.
func (d *Datapath) Trace(ctx context.Context, filter trace.Filter, send func(trace.Event) error) error {
	if err := filter.Check(); err != nil {
		return err
	}
	live, err := d.startCapture(capture.TraceRequest(filter), liveTraceRingSize)
	if errors.Is(err, capture.ErrBusy) {
		return fmt.Errorf("%w: %v", trace.ErrBusy, err)
	}
	if err != nil {
		return err
	}
	zero := flowtable.MonotonicZero()
	var lost uint64
	return d.runCapture(ctx, live, func() error { return send(trace.Event{Started: true}) },
		func(record *traced.Record) error { return send(trace.Event{Packet: d.describe(record, zero)}) },
		func(counts traced.XdpCaptureState) error {
			event := trace.Event{Lost: counts.Lost - lost}
			if event.Lost == 0 {
				return nil
			}
			lost = counts.Lost
			return send(event)
		})
}

// Capture calls send for the real packets that a request asks for, with copies of them, until a bound of the request is
// reached, the context ends (both no error), or send returns an error, which Capture returns. Meanwhile the traced
// program replaces the plain one; both decide the same. The first event says that it is attached. A send that blocks
// delays no packet: records without room in the ring are counted as lost. Errors: capture.ErrBadRequest,
// capture.ErrNoService, capture.ErrBusy, ErrClosed.
func (d *Datapath) Capture(ctx context.Context, request capture.Request, send func(capture.Event) error) error {
	request, err := request.Complete()
	if err != nil {
		return err
	}
	live, err := d.startCapture(request, captureRingSize)
	if err != nil {
		return err
	}
	stopping := ctx
	ctx, cancel := context.WithTimeout(ctx, request.For())
	defer cancel()
	zero := flowtable.MonotonicZero()
	progress := capture.NewProgress(request, send, cancel)
	err = d.runCapture(ctx, live, func() error { return send(capture.Event{Started: d.captureHeader(live)}) },
		func(record *traced.Record) error {
			p := &capture.Packet{Packet: *d.describe(record, zero), Count: record.Packets}
			p.FrameIn, p.FrameOut = record.Split(request.Snap)
			return progress.Packet(p)
		},
		func(counts traced.XdpCaptureState) error { return progress.Count(counts.Counts(), counts.Beyond > 0) })
	if err != nil {
		return err
	}
	return progress.End(stopping.Err() != nil)
}

// describe translates a record, with the names of the present configuration. zero is when the kernel's clock was 0.
func (d *Datapath) describe(record *traced.Record, zero time.Time) *trace.Packet {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.currentNames().Packet(&record.XdpTraceRecord)
	p.Time = zero.Add(time.Duration(record.Time))
	return p
}

// currentNames returns the names of the current generation for the numbers in records.
func (d *Datapath) currentNames() *tracing.Names {
	if d.recordNames == nil {
		d.recordNames = tracing.NewNames(d.attachments[0].Hook, d.current.Ports, d.register)
	}
	return d.recordNames
}

// uncapturedNote names the traffic that captures cannot see.
const uncapturedNote = "clients on this host are served at their sockets, where there is no packet yet: capture theirs with tcpdump"

// captureHeader returns the header of a capture: its request, and the interfaces and programs that it covers.
func (d *Datapath) captureHeader(live *tracing.Capture) *capture.Started {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &capture.Started{ID: live.ID(), Request: live.Request}
	for i, p := range d.current.Ports {
		at := d.attachments[min(i, len(d.attachments)-1)]
		s.Hooks = append(s.Hooks, capture.Point{Interface: p.Name, Hook: at.Hook})
	}
	if d.register.State.Local != "" {
		s.Notes = append(s.Notes, uncapturedNote)
	}
	return s
}

// startCapture replaces the plain program by the traced one, unless that is attached already.
func (d *Datapath) startCapture(request capture.Request, ring int) (*tracing.Capture, error) {
	d.captures.Lock()
	defer d.captures.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkRunning(); err != nil {
		return nil, err
	}
	filter, err := tracing.FilterOf(request)
	if err != nil {
		return nil, err
	}
	if request.Interface != "" {
		at, err := tracing.PortNamed(d.current.Ports, request.Interface)
		if err != nil {
			return nil, fmt.Errorf("%w: %v", capture.ErrBadRequest, err)
		}
		filter.Interface = uint32(d.current.Ports[at].Index)
	}
	t := d.tracing
	if t == nil {
		maps, err := loader.NewTracing(false)
		if err != nil {
			return nil, err
		}
		t = &tracing.Loaded{Tracing: maps}
	}
	live := &tracing.Capture{Loaded: t, Request: request}
	if live.Capture, err = t.Open(filter, ring); err == nil {
		err = live.Resolve(d.register)
	}
	if err == nil && d.tracing == nil {
		if err = d.reload(t); err == nil {
			_ = live.Resolve(d.register) // services may have changed while it loaded: see Loaded.Resolve
		}
	}
	if err == nil {
		t.Live = append(t.Live, live)
		return live, nil
	}
	live.Close()
	if d.tracing == nil {
		t.Close()
	}
	return nil, err
}

// stopCapture ends a capture, and after the last one attaches the plain program again. If that fails, the next Apply
// does it.
func (d *Datapath) stopCapture(live *tracing.Capture) error {
	d.captures.Lock()
	defer d.captures.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	err := live.Stop()
	if d.closed || d.tracing != live.Loaded || len(live.Loaded.Captures()) > 0 {
		return err
	}
	reloadErr := d.reload(nil)
	if reloadErr != nil && !errors.Is(reloadErr, ErrClosed) {
		err = errors.Join(err, fmt.Errorf("putting the program without captures back: %w", reloadErr))
	}
	d.tracing = nil
	return err
}

// releaseCapture frees the slot of a capture that was stopped.
func (d *Datapath) releaseCapture(live *tracing.Capture) {
	d.mu.Lock()
	defer d.mu.Unlock()
	live.Loaded.Live = slices.DeleteFunc(live.Loaded.Live, func(c *tracing.Capture) bool { return c == live })
	live.Close()
	if live.Loaded != d.tracing && live.Loaded.Empty() {
		live.Loaded.Close()
	}
}

// runCapture calls started, then packet for each record and count about once a second and at the end, until the context
// ends, which is no error, or one of them returns an error, which it returns.
func (d *Datapath) runCapture(ctx context.Context, live *tracing.Capture, started func() error,
	packet func(*traced.Record) error,
	count func(traced.XdpCaptureState) error) error {
	defer d.releaseCapture(live)
	stop := sync.OnceValue(func() error { return d.stopCapture(live) })
	// The plain program is attached first; then the ring is read to its end.
	release := context.AfterFunc(ctx, func() {
		_ = stop() // again below, where its error counts
		_ = live.Flush()
	})
	err := started()
	if err == nil {
		err = live.ReadRecords(packet, count)
	}
	release()
	return errors.Join(err, stop())
}

// Explain returns the outcome that a packet would have if it arrived now. It runs a copy of the program that is
// attached nowhere, counts nothing and creates no flow. Errors: trace.ErrBadQuestion, trace.ErrNoService, ErrClosed.
func (d *Datapath) Explain(question trace.Question) (*trace.Packet, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkRunning(); err != nil {
		return nil, err
	}
	if err := d.explainInput().Check(question); err != nil {
		return nil, err
	}
	var e *tracing.Explainer
	err := d.loadUnlocked(func() func() error {
		input := d.explainInput()
		return func() (err error) {
			e, err = tracing.NewExplainer(input)
			return err
		}
	}, func() { e.Close() })
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return e.Explain(d.explainInput(), question)
}

// explainInput returns the programs, maps and configuration in use, for Explain.
func (d *Datapath) explainInput() tracing.ExplainInput {
	return tracing.ExplainInput{Kernel: d.kernel, Hook: d.attachments[0].Hook, Programs: d.current, Shared: d.shared,
		Names: d.currentNames(), State: d.register.State}
}
