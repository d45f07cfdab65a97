// SPDX-License-Identifier: Apache-2.0

// Package traced holds the traced programs, which record packets, and the maps that they write: the ring of dry runs,
// and the slots of captures, each with a filter, counters and a ring. It neither loads nor attaches programs, and knows
// no configuration.
package traced

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// Tracing has the maps that traced programs are loaded with. All programs that share it write their records into the
// same rings.
type Tracing struct {
	// Reader reads the ring of a dry run; nil otherwise.
	Reader *ringbuf.Reader
	// maps are the maps that the plain programs lack, by their names in the object.
	maps map[string]*ebpf.Map
	// slots are the captures and live traces by their slots.
	slots [MaxCaptures]*Capture
}

// IsOwn reports whether the plain programs lack a map of the traced programs.
func IsOwn(name string) bool {
	return strings.HasPrefix(name, "trace_") || strings.HasPrefix(name, "capture_")
}

// New creates the maps of the spec of a traced program. A program for a dry run writes its records into the ring that
// Reader reads, and has no captures.
func New(spec *ebpf.CollectionSpec, dryRun bool) (*Tracing, error) {
	sizeRings(spec)
	if dryRun {
		spec.Maps[XdpMapCaptureBackends].MaxEntries = 1
	}
	t := &Tracing{maps: map[string]*ebpf.Map{}}
	for name, m := range spec.Maps {
		if !IsOwn(name) || name == XdpMapCapturePlain {
			continue
		}
		created, err := ebpf.NewMap(m)
		if err != nil {
			t.Close()
			return nil, err
		}
		t.maps[name] = created
	}
	if !dryRun {
		return t, nil
	}
	var err error
	if t.Reader, err = ringbuf.NewReader(t.maps[XdpMapTraceRing]); err != nil {
		t.Close()
		return nil, fmt.Errorf("opening the ring of trace records: %v", err)
	}
	return t, nil
}

// IsDryRun reports whether programs that are loaded with it are for dry runs: they count and store nothing.
func (t *Tracing) IsDryRun() bool { return t.Reader != nil }

// sizeRings sets the size of the rings of a spec to this machine's page: the object has the smallest page of all
// machines.
func sizeRings(spec *ebpf.CollectionSpec) {
	page := uint32(os.Getpagesize())
	spec.Maps[XdpMapTraceRing].MaxEntries, spec.Maps[XdpMapCaptureRings].InnerMap.MaxEntries = page, page
}

// SkipTo makes the traced program of a spec pass packets that no capture can match to the plain program of the same
// interface: the traced program's overhead for a packet without a record is a third of the packet's cost. The caller
// closes the map after the spec is loaded.
func SkipTo(plain *ebpf.Program, spec *ebpf.CollectionSpec, replacements map[string]*ebpf.Map) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(spec.Maps[XdpMapCapturePlain])
	if err != nil {
		return nil, err
	}
	if err := m.Put(uint32(0), plain); err != nil {
		m.Close()
		return nil, err
	}
	replacements[XdpMapCapturePlain] = m
	return m, nil
}

// Close closes the maps.
func (t *Tracing) Close() {
	if t.Reader != nil {
		t.Reader.Close()
	}
	for _, m := range t.maps {
		m.Close()
	}
}

// Replace replaces the maps of a traced program's spec by these maps.
func (t *Tracing) Replace(spec *ebpf.CollectionSpec, replacements map[string]*ebpf.Map) {
	sizeRings(spec)
	for name, m := range t.maps {
		spec.Maps[name].MaxEntries = m.MaxEntries()
		replacements[name] = m
	}
}

// Record is a traced program's record of a packet.
type Record struct {
	XdpTraceRecord
	// Frames are the captured bytes: IngressCaptured of the incoming frame, and EgressCaptured of the outgoing frame.
	Frames []byte
}

// Read reads a record. Errors are those of the ring's reader.
func Read(reader *ringbuf.Reader) (*Record, error) {
	sample, err := reader.Read()
	if err != nil {
		return nil, err
	}
	return decode(sample.RawSample)
}

// decode reads a record, whose frames are part of raw.
func decode(raw []byte) (*Record, error) {
	record := &Record{}
	n, err := binary.Decode(raw, binary.NativeEndian, &record.XdpTraceRecord)
	if err != nil {
		return nil, fmt.Errorf("reading a trace record of %d bytes: %v", len(raw), err)
	}
	record.Frames = raw[n:]
	return record, nil
}
