// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/capture"
)

// captureRing is the size of a capture's ring in bytes: some 6,000 packets without payload, which is more than the
// default rate takes in a window.
const captureRing = 4 << 20

// MaxCaptures is how many captures and live traces run at once.
const MaxCaptures = int(tracedXdpCaptureLimitCAPTURES_MAX)

// countsEvery is how often the counts of a capture are looked at.
const countsEvery = time.Second

// untilBound is for how long the data plane takes packets for a capture whose process does not end it.
const untilBound = capture.MaxFor + time.Minute

// captureCounts are a slot's counters.
type captureCounts = tracedXdpCaptureState

// captured is a record, and the bytes of the frames that follow it.
type captured struct {
	*tracedXdpTraceRecord
	frames []byte
}

// liveCapture is a capture, or a live trace, that runs.
type liveCapture struct {
	of      *tracing
	slot    uint32
	request capture.Request
	filter  tracedXdpCaptureFilter
	ring    *ebpf.Map
	reader  *ringbuf.Reader
	// backends are the indices of backends that it has in capture_backends.
	backends []uint32
	// stopped: its filter takes no more packets.
	stopped bool
}

// Capture tells of the real packets that a request asks for, and copies them, until a bound of the request is
// reached, the context ends (both no error), or tell returns an error, which it returns. Meanwhile the program that
// tells of packets is in the place of the plain one; both decide the same. The first event says that it is. A tell
// that blocks holds up no packet: what finds no room is counted. Errors: capture.ErrBadRequest, capture.ErrNoService,
// capture.ErrBusy, ErrClosed.
func (d *Datapath) Capture(ctx context.Context, request capture.Request, tell func(capture.Event) error) error {
	request, err := request.Complete()
	if err != nil {
		return err
	}
	live, err := d.startCapture(request, captureRing)
	if err != nil {
		return err
	}
	stopping := ctx
	ctx, cancel := context.WithTimeout(ctx, request.For())
	defer cancel()
	f := &captureFollower{d: d, request: request, tell: tell, end: cancel, zero: monotonicZero()}
	if err := live.run(ctx, d, f.packet, f.count, func() error {
		return tell(capture.Event{Started: d.started(live)})
	}); err != nil {
		return err
	}
	if f.ended == "" && stopping.Err() == nil {
		f.ended = capture.EndTime
	}
	counts := f.counts.words()
	return tell(capture.Event{Counts: &counts, Ended: f.ended})
}

// captureFollower makes events of what a capture reads.
type captureFollower struct {
	d       *Datapath
	request capture.Request
	tell    func(capture.Event) error
	// end ends the capture.
	end     func()
	zero    time.Time
	packets uint64
	counts  captureCounts
	ended   capture.Reason
}

// packet tells of one.
func (f *captureFollower) packet(record *captured) error {
	if f.request.Packets > 0 && f.packets >= f.request.Packets {
		return nil // of another CPU, at the same time
	}
	p := &capture.Packet{Packet: *f.d.describe(record.tracedXdpTraceRecord), Count: record.Packets}
	p.Time = f.zero.Add(time.Duration(record.Time))
	p.CameFrame, p.LeavesFrame = record.split(f.request.Snap)
	if err := f.tell(capture.Event{Packet: p}); err != nil {
		return err
	}
	if f.packets++; f.packets == f.request.Packets {
		f.ended = capture.EndPackets
		f.end()
	}
	return nil
}

// count tells of the counts where packets were left out, and ends a capture that has its bytes.
func (f *captureFollower) count(counts captureCounts) error {
	left := counts.Lost != f.counts.Lost || counts.Limited != f.counts.Limited
	f.counts = counts
	if counts.Beyond > 0 && f.ended == "" && f.request.Packets == 0 {
		f.ended = capture.EndBytes
		f.end()
	}
	if !left || f.ended != "" {
		return nil
	}
	words := counts.words()
	return f.tell(capture.Event{Counts: &words})
}

// words are a slot's counters as a client sees them.
func (c *tracedXdpCaptureState) words() capture.Counts {
	return capture.Counts{Matched: c.Matched, Taken: c.Taken, Limited: c.Limited, Lost: c.Lost, Bytes: c.Bytes}
}

// split returns the frames that follow a record, each with at most snap bytes, or its headers where that is 0. The one that
// leaves has no bytes where the packet is as it came.
func (c *captured) split(snap int) (came, leaves capture.Frame) {
	at := min(int(c.CameCaptured), len(c.frames))
	end := min(at+int(c.LeavesCaptured), len(c.frames))
	came = capture.Cut(c.frames[:at], int(c.CameLength), snap)
	if !bytes.Equal(c.frames[:at], c.frames[at:end]) || c.CameLength != c.FrameLength {
		leaves = capture.Cut(c.frames[at:end], int(c.FrameLength), snap)
	}
	return came, leaves
}

// started is what a capture begins with.
func (d *Datapath) started(live *liveCapture) *capture.Started {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &capture.Started{ID: live.filter.Id, Request: live.request}
	for i, p := range d.current.ports {
		s.Hooks = append(s.Hooks, capture.Hook{Interface: p.name, Hook: d.attachments[min(i, len(d.attachments)-1)].Hook})
	}
	if d.register.state.Local != "" {
		s.Notes = append(s.Notes, localNote)
	}
	return s
}

// localNote says what no capture has.
const localNote = "clients on this host are served at their sockets, where there is no packet yet: capture theirs with tcpdump"

// startCapture puts the program that tells of packets in the place of the plain one, unless it is there.
func (d *Datapath) startCapture(request capture.Request, ring int) (*liveCapture, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return nil, err
	}
	filter, err := numbered(request)
	if err != nil {
		return nil, err
	}
	if filter.Interface, err = d.portOf(request); err != nil {
		return nil, err
	}
	t := d.tracing
	if t == nil {
		if t, err = newTracing(false); err != nil {
			return nil, err
		}
	}
	live, err := t.open(request, filter, ring)
	if err == nil {
		err = live.resolve(d.register)
	}
	if err == nil && d.tracing == nil {
		d.tracing = t
		if err = d.reload(); err != nil {
			d.tracing = nil
		}
	}
	if err == nil {
		return live, nil
	}
	live.close()
	if d.tracing == nil {
		t.close()
	}
	return nil, err
}

// stopCapture ends one, and puts the plain program back after the last. Should that fail, the next Apply does it.
func (d *Datapath) stopCapture(live *liveCapture) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := live.disable()
	if d.closed || d.tracing != live.of || live.of.running() > 0 {
		return err
	}
	d.tracing = nil
	if reloadErr := d.reload(); reloadErr != nil {
		err = errors.Join(err, fmt.Errorf("putting the program without captures back: %w", reloadErr))
	}
	return err
}

// run calls started, then packet for each record and count about once a second and at the end, until the context
// ends, which is no error, or one of them returns an error, which it returns.
func (c *liveCapture) run(ctx context.Context, d *Datapath, packet func(*captured) error, count func(captureCounts) error,
	started func() error) error {
	stop := sync.OnceValue(func() error { return d.stopCapture(c) })
	// The plain program comes back first; then the ring is read to its end.
	release := context.AfterFunc(ctx, func() {
		_ = stop() // again below, where its error counts
		_ = c.reader.Flush()
	})
	err := started()
	if err == nil {
		err = c.follow(packet, count)
	}
	release()
	err = errors.Join(err, stop())
	d.mu.Lock()
	defer d.mu.Unlock()
	c.close()
	if c.of != d.tracing && c.of.running() == 0 && c.of.empty() {
		c.of.close()
	}
	return err
}

// follow reads the ring until it is flushed.
func (c *liveCapture) follow(packet func(*captured) error, count func(captureCounts) error) error {
	looked := time.Now()
	for {
		c.reader.SetDeadline(looked.Add(countsEvery))
		record, frames, err := readRecord(c.reader)
		ended := errors.Is(err, ringbuf.ErrFlushed)
		if err != nil && !ended && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("reading the capture: %v", err)
		}
		if record != nil {
			if err := packet(&captured{record, frames}); err != nil {
				return err
			}
		}
		if ended || time.Since(looked) > countsEvery {
			counts, err := c.counts()
			if err != nil {
				return err
			}
			looked = time.Now()
			if err := count(counts); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
	}
}

// counts reads the slot's counters.
func (c *liveCapture) counts() (captureCounts, error) {
	var counts captureCounts
	if err := c.of.maps[tracedXdpMapCaptureStates].Lookup(c.slot, &counts); err != nil {
		return counts, fmt.Errorf("reading the counters of a capture: %v", err)
	}
	return counts, nil
}

// lastCapture is the number of the latest capture of this process.
var lastCapture struct {
	sync.Mutex
	number uint32
}

// open gives a capture a free slot, whose filter takes nothing yet.
func (t *tracing) open(request capture.Request, filter tracedXdpCaptureFilter, size int) (*liveCapture, error) {
	slot := slices.Index(t.slots[:], nil)
	if slot < 0 {
		return nil, fmt.Errorf("%w: %d captures and live traces run, which is as many as can; end one, or wait for its end",
			capture.ErrBusy, len(t.slots))
	}
	c := &liveCapture{of: t, slot: uint32(slot), request: request, filter: filter}
	lastCapture.Lock()
	lastCapture.number++
	c.filter.Id = lastCapture.number
	lastCapture.Unlock()
	var err error
	if c.ring, err = ebpf.NewMap(&ebpf.MapSpec{Name: "capture_ring", Type: ebpf.RingBuf,
		MaxEntries: uint32(max(size, os.Getpagesize()))}); err != nil {
		return nil, loadError(err)
	}
	t.slots[slot] = c
	if c.reader, err = ringbuf.NewReader(c.ring); err == nil {
		err = t.maps[tracedXdpMapCaptureStates].Put(c.slot, captureCounts{})
	}
	if err == nil {
		err = t.maps[tracedXdpMapCaptureRings].Put(c.slot, c.ring)
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("opening the ring of a capture: %v", err)
	}
	return c, nil
}

// running counts captures whose filters take packets.
func (t *tracing) running() (n int) {
	for _, c := range t.slots {
		if c != nil && !c.stopped {
			n++
		}
	}
	return n
}

// empty says that no slot is in use.
func (t *tracing) empty() bool {
	return !slices.ContainsFunc(t.slots[:], func(c *liveCapture) bool { return c != nil })
}

// write shows the program the filters. Packets read a filter's number first, so one that is new is written without, then with
// it: the bytes of the others do not change.
func (t *tracing) write() error {
	var all tracedXdpCaptureSlots
	for i, c := range t.slots {
		if c != nil && !c.stopped {
			all.Slots[i], all.Used = c.filter, uint32(i+1)
		}
	}
	numbered := all
	var before tracedXdpCaptureSlots
	m := t.maps[tracedXdpMapCaptureFilters]
	if err := m.Lookup(uint32(0), &before); err != nil {
		return fmt.Errorf("reading the filters of captures: %v", err)
	}
	for i := range all.Slots {
		if all.Slots[i] != before.Slots[i] {
			all.Slots[i].Id = 0
		}
	}
	for _, value := range []*tracedXdpCaptureSlots{&all, &numbered} {
		if err := m.Put(uint32(0), value); err != nil {
			return fmt.Errorf("writing the filters of captures: %v", err)
		}
	}
	return nil
}

// disable has a capture take no more packets.
func (c *liveCapture) disable() error {
	if c.stopped {
		return nil
	}
	c.stopped = true
	return errors.Join(c.of.write(), c.putBackends(nil))
}

// close gives the slot back. A nil *liveCapture has none.
func (c *liveCapture) close() {
	if c == nil {
		return
	}
	_ = c.disable()
	// An error: there is none in the slot. The call returns when no packet uses the ring any more.
	_ = c.of.maps[tracedXdpMapCaptureRings].Delete(c.slot)
	if c.reader != nil {
		c.reader.Close()
	}
	c.ring.Close()
	c.of.slots[c.slot] = nil
}

// monotonicNow is the kernel's monotonic clock, which stamps records, in nanoseconds.
func monotonicNow() uint64 {
	var now unix.Timespec
	// It cannot fail for this clock.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return uint64(now.Nano())
}
