// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// lostEvery is how often it is looked whether records were lost.
const lostEvery = time.Second

// Trace tells of real packets until the context ends, which is no error, or tell
// returns one, which it returns. Meanwhile the program that tells of them is in
// the place of the plain one; both decide the same. The first event says that it
// is. Errors: trace.ErrBadQuestion, trace.ErrBusy, ErrClosed.
func (d *Datapath) Trace(ctx context.Context, filter trace.Filter, tell func(trace.Event) error) error {
	if err := filter.Check(); err != nil {
		return err
	}
	live, err := d.startTrace(filter)
	if err != nil {
		return err
	}
	defer live.close()
	stop := sync.OnceValue(d.stopTrace)
	// The plain program comes back first; then the ring is read to its end.
	release := context.AfterFunc(ctx, func() {
		_ = stop() // again below, where its error counts
		_ = live.reader.Flush()
	})
	err = d.follow(live, tell)
	release()
	return errors.Join(err, stop())
}

// startTrace puts the program that tells of packets in the place of the plain one.
func (d *Datapath) startTrace(filter trace.Filter) (*tracing, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return nil, err
	}
	if d.tracing != nil {
		return nil, fmt.Errorf("%w: it slows packets down, so there is one at a time; wait for its end, or end it", trace.ErrBusy)
	}
	live, err := newTracing(filter, false, liveRing)
	if err != nil {
		return nil, err
	}
	d.tracing = live
	if err := d.reload(); err != nil {
		d.tracing = nil
		live.close()
		return nil, err
	}
	return live, nil
}

// stopTrace puts the plain program back. Should that fail, the next Apply does it.
func (d *Datapath) stopTrace() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tracing = nil
	if d.closed {
		return nil
	}
	if err := d.reload(); err != nil {
		return fmt.Errorf("ending the trace: %w", err)
	}
	return nil
}

// follow tells of packets until the reader is flushed.
func (d *Datapath) follow(live *tracing, tell func(trace.Event) error) error {
	if err := tell(trace.Event{Started: true}); err != nil {
		return err
	}
	var told uint64
	looked, zero := time.Now(), monotonicZero()
	for {
		var event trace.Event
		record, err := live.next()
		ended := errors.Is(err, ringbuf.ErrFlushed)
		if err != nil && !ended {
			return fmt.Errorf("reading the trace: %v", err)
		}
		if record != nil {
			event.Packet = d.describe(record)
			event.Packet.Time = zero.Add(time.Duration(record.Time))
		}
		if ended || time.Since(looked) > lostEvery {
			lost, err := live.lost()
			if err != nil {
				return err
			}
			event.Lost, told, looked = lost-told, lost, time.Now()
		}
		if event != (trace.Event{}) {
			if err := tell(event); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
	}
}

// describe puts a record into words, with the names of the present configuration.
func (d *Datapath) describe(record *tracedXdpTraceRecord) *trace.Packet {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.words().packet(record)
}
