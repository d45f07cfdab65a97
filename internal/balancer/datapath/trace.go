// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// liveRing is the size of the ring that real packets are told of through, in
// bytes: about 4,000 of them, or some milliseconds of a busy balancer.
const liveRing = 1 << 20

// tracing is what a program that tells of packets is loaded with. All programs
// that are loaded with it tell of them in the same place. A nil *tracing stands
// for the plain program.
type tracing struct {
	filter tracedXdpTraceFilter
	// dryRun makes a program for questions: it counts and keeps nothing.
	dryRun bool
	ring   *ebpf.Map
	noted  *ebpf.Map
	reader *ringbuf.Reader
}

// newTracing makes the ring, of a power of two of bytes.
func newTracing(filter trace.Filter, dryRun bool, size int) (*tracing, error) {
	spec, err := xdpProgram.traced()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	t := &tracing{filter: numbered(filter), dryRun: dryRun}
	spec.Maps[tracedXdpMapTraceRing].MaxEntries = uint32(max(size, os.Getpagesize()))
	if t.ring, err = ebpf.NewMap(spec.Maps[tracedXdpMapTraceRing]); err != nil {
		return nil, loadError(err)
	}
	if t.noted, err = ebpf.NewMap(spec.Maps[tracedXdpMapTraceNoted]); err != nil {
		t.close()
		return nil, loadError(err)
	}
	if t.reader, err = ringbuf.NewReader(t.ring); err != nil {
		t.close()
		return nil, fmt.Errorf("opening the ring of trace records: %v", err)
	}
	return t, nil
}

func (t *tracing) close() {
	if t.reader != nil {
		t.reader.Close()
	}
	if t.noted != nil {
		t.noted.Close()
	}
	t.ring.Close()
}

// load returns the program that is asked for.
func (t *tracing) load(program programKind) (*ebpf.CollectionSpec, error) {
	if t == nil {
		return program.load()
	}
	return program.traced()
}

// put gives a program that load returned what it needs besides the configuration.
func (t *tracing) put(spec *ebpf.CollectionSpec, constants *xdpSettings, replacements map[string]*ebpf.Map) error {
	if t == nil {
		return nil
	}
	if t.dryRun {
		constants.DryRun = 1
	}
	spec.Maps[tracedXdpMapTraceRing].MaxEntries = t.ring.MaxEntries()
	replacements[tracedXdpMapTraceRing] = t.ring
	replacements[tracedXdpMapTraceNoted] = t.noted
	if err := spec.Variables[tracedXdpVarTraced].Set(t.filter); err != nil {
		return fmt.Errorf("setting the filter of the trace: %v", err)
	}
	return nil
}

// next returns the next record. Errors are those of the ring's reader.
func (t *tracing) next() (*tracedXdpTraceRecord, error) {
	sample, err := t.reader.Read()
	if err != nil {
		return nil, err
	}
	record := &tracedXdpTraceRecord{}
	if _, err := binary.Decode(sample.RawSample, binary.NativeEndian, record); err != nil {
		return nil, fmt.Errorf("reading a trace record of %d bytes: %v", len(sample.RawSample), err)
	}
	return record, nil
}

// lost returns how many records had no room.
func (t *tracing) lost() (uint64, error) {
	var perCPU []tracedXdpTraceNotes
	if err := t.noted.Lookup(uint32(0), &perCPU); err != nil {
		return 0, fmt.Errorf("reading how many trace records were lost: %v", err)
	}
	var sum uint64
	for _, notes := range perCPU {
		sum += notes.Lost
	}
	return sum, nil
}

// numbered writes a filter as the program reads it.
func numbered(f trace.Filter) tracedXdpTraceFilter {
	n := tracedXdpTraceFilter{
		SourcePort:      networkOrder(f.SourcePort),
		DestinationPort: networkOrder(f.DestinationPort),
		Sample:          f.Sample,
		Protocol:        uint8(f.Protocol),
	}
	for _, end := range []struct {
		prefix     netip.Prefix
		wanted, at *[4]uint32
	}{{f.Source, &n.Source, &n.SourceMask}, {f.Destination, &n.Destination, &n.DestinationMask}} {
		if !end.prefix.IsValid() {
			continue
		}
		n.Family = 6
		if end.prefix.Addr().Is4() {
			n.Family = 4
		}
		*end.wanted = addressWords(end.prefix.Masked().Addr())
		*end.at = maskWords(end.prefix)
	}
	return n
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
