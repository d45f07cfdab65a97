// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// liveRing is the size of the ring that a live trace is told of packets through, in
// bytes: about 4,000 of them, or some milliseconds of a busy balancer.
const liveRing = 1 << 20

// Trace tells of real packets until the context ends, which is no error, or tell
// returns one, which it returns. Meanwhile the program that tells of them is in
// the place of the plain one; both decide the same. The first event says that it
// is. A live trace is a capture of no bytes. Errors: trace.ErrBadQuestion, trace.ErrBusy, ErrClosed.
func (d *Datapath) Trace(ctx context.Context, filter trace.Filter, tell func(trace.Event) error) error {
	if err := filter.Check(); err != nil {
		return err
	}
	live, err := d.startCapture(capture.Request{Filter: capture.Filter{Filter: filter}}, liveRing)
	if errors.Is(err, capture.ErrBusy) {
		return fmt.Errorf("%w: %v", trace.ErrBusy, err)
	}
	if err != nil {
		return err
	}
	zero := monotonicZero()
	var lost uint64
	err = live.run(ctx, d, func(record *captured) error {
		event := trace.Event{Packet: d.describe(record.tracedXdpTraceRecord)}
		event.Packet.Time = zero.Add(time.Duration(record.Time))
		return tell(event)
	}, func(counts captureCounts) error {
		if counts.Lost == lost {
			return nil
		}
		event := trace.Event{Lost: counts.Lost - lost}
		lost = counts.Lost
		return tell(event)
	}, func() error { return tell(trace.Event{Started: true}) })
	return err
}

// describe puts a record into words, with the names of the present configuration.
func (d *Datapath) describe(record *tracedXdpTraceRecord) *trace.Packet {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.words().packet(record)
}
