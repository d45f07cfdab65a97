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
	// liveTraceRingSize is that of a live trace: about 4,000 packets, or some milliseconds of a busy balancer.
	liveTraceRingSize = 1 << 20
)

// Trace calls send for real packets until the context ends, which is no error, or send returns an error, which Trace
// returns. Meanwhile the traced program is in the place of the plain one; both decide the same. The first event says
// that it is in place. A live trace is a capture without frames. Errors: trace.ErrBadQuestion, trace.ErrBusy,
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
// program is in the place of the plain one; both decide the same. The first event says that it is in place. A send that
// blocks holds up no packet: records that find no room are counted. Errors: capture.ErrBadRequest,
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

// describe puts a record into words, with the names of the present configuration. Zero is when the kernel's clock was
// 0.
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

// uncapturedNote names the packets that no capture has.
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

// startCapture puts the traced program in the place of the plain one, unless it is there already.
func (d *Datapath) startCapture(request capture.Request, ring int) (*tracing.Capture, error) {
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
	live := &tracing.Capture{Of: t, Request: request}
	if live.Capture, err = t.Open(filter, ring); err == nil {
		err = live.Resolve(d.register)
	}
	if err == nil && d.tracing == nil {
		d.tracing = t
		if err = d.reload(); err != nil {
			d.tracing = nil
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

// stopCapture ends one, and puts the plain program back after the last. Should that fail, the next Apply does it.
func (d *Datapath) stopCapture(live *tracing.Capture) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := live.Stop()
	if d.closed || d.tracing != live.Of || len(live.Of.Captures()) > 0 {
		return err
	}
	d.tracing = nil
	if reloadErr := d.reload(); reloadErr != nil {
		err = errors.Join(err, fmt.Errorf("putting the program without captures back: %w", reloadErr))
	}
	return err
}

// releaseCapture frees the slot of a capture that was stopped.
func (d *Datapath) releaseCapture(live *tracing.Capture) {
	d.mu.Lock()
	defer d.mu.Unlock()
	live.Of.Live = slices.DeleteFunc(live.Of.Live, func(c *tracing.Capture) bool { return c == live })
	live.Close()
	if live.Of != d.tracing && live.Of.Empty() {
		live.Of.Close()
	}
}

// runCapture calls started, then packet for each record and count about once a second and at the end, until the context
// ends, which is no error, or one of them returns an error, which it returns.
func (d *Datapath) runCapture(ctx context.Context, live *tracing.Capture, started func() error,
	packet func(*traced.Record) error,
	count func(traced.XdpCaptureState) error) error {
	defer d.releaseCapture(live)
	stop := sync.OnceValue(func() error { return d.stopCapture(live) })
	// The plain program comes back first; then the ring is read to its end.
	release := context.AfterFunc(ctx, func() {
		_ = stop() // again below, where its error counts
		_ = live.Flush()
	})
	err := started()
	if err == nil {
		err = live.Follow(packet, count)
	}
	release()
	return errors.Join(err, stop())
}

// Explain returns the outcome that a packet would have if it came in now. It asks the program itself, in a copy that is
// attached nowhere, counts nothing and leaves no flow. Errors: trace.ErrBadQuestion, trace.ErrNoService, ErrClosed.
func (d *Datapath) Explain(question trace.Question) (*trace.Packet, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkRunning(); err != nil {
		return nil, err
	}
	return tracing.Explain(d.explainInput(), question)
}

// explainInput returns the programs, maps and configuration that packets go by, for Explain.
func (d *Datapath) explainInput() tracing.ExplainInput {
	return tracing.ExplainInput{Kernel: d.kernel, Hook: d.attachments[0].Hook, Programs: d.current, Shared: d.shared,
		Names: d.currentNames(), State: d.register.State}
}
