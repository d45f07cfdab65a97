// SPDX-License-Identifier: Apache-2.0

package traced

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
)

// MaxCaptures is the largest number of simultaneous captures and live traces.
const MaxCaptures = int(XdpCaptureLimitCAPTURES_MAX)

// CountsEvery is the interval at which a capture's counts are read.
const CountsEvery = 100 * time.Millisecond

// readEvery is the interval at which a ring is read that has too few records to wake its reader.
const readEvery = 20 * time.Millisecond

// noService is the id plus 1 of no service.
const noService = 0xffffffff

// Capture is a capture, or a live trace, that has a slot. Its methods but ReadRecords and Flush, and those of its
// Tracing, are for one goroutine at a time.
type Capture struct {
	tracing *Tracing
	slot    uint32
	filter  XdpCaptureFilter
	ring    *ebpf.Map
	reader  *ringbuf.Reader
	// backends are the indices of its backends in capture_backends.
	backends []uint32
	// stopped: its filter matches no more packets.
	stopped bool
}

// barrier is incremented between two writes that packets must see in order: an atomic addition is a full memory
// barrier.
var barrier atomic.Uint32

// lastID is the number of the latest capture of this process.
var lastID atomic.Uint32

// Open allocates a slot for a capture, and a ring of that many bytes, a power of two. Its filter matches nothing before
// Start. Error: capture.ErrBusy.
func (t *Tracing) Open(filter XdpCaptureFilter, size int) (*Capture, error) {
	slot := slices.Index(t.slots[:], nil)
	if slot < 0 {
		return nil, fmt.Errorf(
			"%w: %d captures and live traces run, which is as many as can; end one, or wait for its end",
			capture.ErrBusy, len(t.slots))
	}
	c := &Capture{tracing: t, slot: uint32(slot), filter: filter}
	c.filter.Id = lastID.Add(1)
	var err error
	if c.ring, err = ebpf.NewMap(&ebpf.MapSpec{Name: "capture_ring", Type: ebpf.RingBuf,
		MaxEntries: uint32(max(size, os.Getpagesize()))}); err != nil {
		return nil, fmt.Errorf("making the ring of a capture: %w", err)
	}
	t.slots[slot] = c
	if c.reader, err = ringbuf.NewReader(c.ring); err == nil {
		err = t.maps[XdpMapCaptureStates].Put(c.slot, XdpCaptureState{})
	}
	if err == nil {
		err = t.maps[XdpMapCaptureRings].Put(c.slot, c.ring)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("opening the ring of a capture: %w", err)
	}
	return c, nil
}

// ID returns the capture's number.
func (c *Capture) ID() uint32 { return c.filter.Id }

// Captures returns the captures that are not stopped.
func (t *Tracing) Captures() (captures []*Capture) {
	for _, c := range t.slots {
		if c != nil && !c.stopped {
			captures = append(captures, c)
		}
	}
	return captures
}

// Empty reports whether no slot is in use.
func (t *Tracing) Empty() bool {
	return !slices.ContainsFunc(t.slots[:], func(c *Capture) bool { return c != nil })
}

// Start starts the capture. For a filter by service or backend, it captures packets of services by their ids, of which
// the first two count, or of backends by their indices. at is the services' address and port; invalid if they differ.
func (c *Capture) Start(services, backends []uint32, at netip.AddrPort) error {
	c.filter.ServicePort, c.filter.ServiceVip = mapmem.NetworkOrder(at.Port()), mapmem.OfAddress(at.Addr())
	c.filter.Services = [2]uint32{noService, noService}
	for i, id := range services[:min(len(services), len(c.filter.Services))] {
		c.filter.Services[i] = id + 1
	}
	return errors.Join(c.putBackends(backends), c.tracing.write())
}

// Stop makes the filter match no more packets.
func (c *Capture) Stop() error {
	if c.stopped {
		return nil
	}
	c.stopped = true
	return errors.Join(c.tracing.write(), c.putBackends(nil))
}

// Close frees the slot. The receiver may be nil.
func (c *Capture) Close() {
	if c == nil {
		return
	}
	// An error is ignored: the next filter in the slot overwrites this one.
	_ = c.Stop()
	// An error: the slot has no ring. The call returns when no packet uses the ring any more.
	_ = c.tracing.maps[XdpMapCaptureRings].Delete(c.slot)
	if c.reader != nil {
		c.reader.Close()
	}
	c.ring.Close()
	c.tracing.slots[c.slot] = nil
}

// write writes the filters into the program's map. Packets read a filter's number first, so a new one is written
// without its number, then with it; the bytes of the others do not change. Nor do those of the gates that packets are
// compared with: the new ones are written into the other row, then that becomes the one in use.
func (t *Tracing) write() error {
	var all, before XdpCaptureSlots
	for i, c := range t.slots {
		if c != nil && !c.stopped {
			all.Slots[i], all.Used = c.filter, uint32(i+1)
		}
	}
	m := t.maps[XdpMapCaptureFilters]
	if err := m.Lookup(uint32(0), &before); err != nil {
		return fmt.Errorf("reading the filters of captures: %v", err)
	}
	all.Gate = 1 - before.Gate&1
	all.Gates = before.Gates
	all.Gates[all.Gate] = gatesOf(all.Slots[:])
	unnumbered := all
	unnumbered.Gate = before.Gate
	for i := range all.Slots {
		if all.Slots[i] != before.Slots[i] {
			unnumbered.Slots[i].Id = 0
		}
	}
	for _, value := range []*XdpCaptureSlots{&unnumbered, &all} {
		if err := m.Put(uint32(0), value); err != nil {
			return fmt.Errorf("writing the filters of captures: %v", err)
		}
		// The kernel copies a value in no order, and a system call's end orders nothing for other CPUs.
		barrier.Add(1)
	}
	return nil
}

// putBackends replaces the backends of the capture.
func (c *Capture) putBackends(indices []uint32) error {
	var errs []error
	for _, index := range c.backends {
		if !slices.Contains(indices, index) {
			errs = append(errs, c.tracing.putBackend(index, 0, 1<<c.slot))
		}
	}
	for _, index := range indices {
		errs = append(errs, c.tracing.putBackend(index, 1<<c.slot, 0))
	}
	c.backends = indices
	return errors.Join(errs...)
}

// putBackend sets and clears bits of the slots that capture a backend's packets.
func (t *Tracing) putBackend(index, set, clear uint32) error {
	m := t.maps[XdpMapCaptureBackends]
	var slots uint32
	err := m.Lookup(index, &slots)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("reading the backends of captures: %v", err)
	}
	if slots = slots&^clear | set; slots != 0 {
		err = m.Put(index, slots)
	} else if err = m.Delete(index); errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("writing the backends of captures: %v", err)
	}
	return nil
}

// Flush makes ReadRecords return when it has read the ring to its end.
func (c *Capture) Flush() error { return c.reader.Flush() }

// ReadRecords calls packet for each record, and count about once a second and at the end, until Flush, which is no
// error, or one of them returns an error, which it returns.
func (c *Capture) ReadRecords(packet func(*Record) error, count func(XdpCaptureState) error) error {
	for lastCounts := time.Now(); ; {
		c.reader.SetDeadline(time.Now().Add(readEvery))
		record, err := Read(c.reader)
		ended := errors.Is(err, ringbuf.ErrFlushed)
		if err != nil && !ended && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("reading the ring of a capture: %v", err)
		}
		if record != nil {
			if err := packet(record); err != nil {
				return err
			}
		}
		if !ended && time.Since(lastCounts) < CountsEvery {
			continue
		}
		var counts XdpCaptureState
		if err := c.tracing.maps[XdpMapCaptureStates].Lookup(c.slot, &counts); err != nil {
			return fmt.Errorf("reading the counters of a capture: %v", err)
		}
		lastCounts = time.Now()
		if err := count(counts); err != nil || ended {
			return err
		}
	}
}
