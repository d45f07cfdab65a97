// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// tracing is what a program that tells of packets is loaded with. All programs that are loaded with
// it tell of them in the same place. A nil *tracing stands for the plain program.
type tracing struct {
	// dryRun makes a program for questions: it counts and keeps nothing, and writes its records into
	// the ring that reader reads.
	dryRun bool
	reader *ringbuf.Reader
	// maps are those of tracing and captures, by their names in the object.
	maps map[string]*ebpf.Map
	// slots are the captures and live traces that run, of a tracing that is no dry run.
	slots [MaxCaptures]*liveCapture
}

// isOfTracing says whether a map of the traced programs is one that the plain ones have not.
func isOfTracing(name string) bool {
	return strings.HasPrefix(name, "trace_") || strings.HasPrefix(name, "capture_")
}

// newTracing makes the maps.
func newTracing(dryRun bool) (*tracing, error) {
	spec, err := xdpProgram.traced()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	// The file has the smallest page that there is.
	spec.Maps[tracedXdpMapTraceRing].MaxEntries = uint32(os.Getpagesize())
	spec.Maps[tracedXdpMapCaptureRings].InnerMap.MaxEntries = uint32(os.Getpagesize())
	if dryRun {
		spec.Maps[tracedXdpMapCaptureBackends].MaxEntries = 1
	}
	t := &tracing{dryRun: dryRun, maps: map[string]*ebpf.Map{}}
	for name, m := range spec.Maps {
		if !isOfTracing(name) {
			continue
		}
		if t.maps[name], err = ebpf.NewMap(m); err != nil {
			delete(t.maps, name)
			t.close()
			return nil, loadError(err)
		}
	}
	if !dryRun {
		return t, nil
	}
	if t.reader, err = ringbuf.NewReader(t.maps[tracedXdpMapTraceRing]); err != nil {
		t.close()
		return nil, fmt.Errorf("opening the ring of trace records: %v", err)
	}
	return t, nil
}

func (t *tracing) close() {
	if t.reader != nil {
		t.reader.Close()
	}
	for _, m := range t.maps {
		m.Close()
	}
}

// load returns the program that is asked for.
func (t *tracing) load(program programKind) (*ebpf.CollectionSpec, error) {
	if t == nil {
		return program.load()
	}
	return program.traced()
}

// put gives a program that load returned what it needs besides the configuration.
func (t *tracing) put(spec *ebpf.CollectionSpec, constants *xdpSettings, replacements map[string]*ebpf.Map) {
	if t == nil {
		return
	}
	if t.dryRun {
		constants.DryRun = 1
	}
	for name, m := range t.maps {
		spec.Maps[name].MaxEntries = m.MaxEntries()
		replacements[name] = m
	}
	spec.Maps[tracedXdpMapCaptureRings].InnerMap.MaxEntries = uint32(os.Getpagesize())
}

// readRecord reads a record, and the bytes that follow it. Errors are those of the ring's reader.
func readRecord(reader *ringbuf.Reader) (*tracedXdpTraceRecord, []byte, error) {
	sample, err := reader.Read()
	if err != nil {
		return nil, nil, err
	}
	return decodeRecord(sample.RawSample)
}

// decodeRecord reads a record, and returns the bytes that follow it. They are the caller's.
func decodeRecord(raw []byte) (*tracedXdpTraceRecord, []byte, error) {
	record := &tracedXdpTraceRecord{}
	n, err := binary.Decode(raw, binary.NativeEndian, record)
	if err != nil {
		return nil, nil, fmt.Errorf("reading a trace record of %d bytes: %v", len(raw), err)
	}
	return record, raw[n:], nil
}

// maskWords returns the mask of a prefix, laid out as its address.
func maskWords(p netip.Prefix) [4]uint32 {
	mask := make([]byte, p.Addr().BitLen()/8)
	for bit := range p.Bits() {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	all, _ := netip.AddrFromSlice(mask)
	return addressWords(all)
}

// reload loads the program again, as d.tracing wants it now, and puts that in place of
// what forwards. Its memory stays. On an error, what forwards goes on.
func (d *Datapath) reload() error {
	last := d.current
	made, err := d.install(last.ports, d.hook, func(kind programKind) (*generation, error) {
		return d.load(kind, last.ports, last.memory, d.shared)
	})
	if err != nil {
		return err
	}
	made.state, made.places = last.state, last.places
	d.current = made
	d.keeper.settle(made)
	last.close()
	return nil
}

// ready says why there is nothing to trace yet, or no more.
func (d *Datapath) ready() error {
	if d.closed {
		return ErrClosed
	}
	if d.current == nil {
		return errors.New("the balancer has no configuration yet")
	}
	return nil
}
