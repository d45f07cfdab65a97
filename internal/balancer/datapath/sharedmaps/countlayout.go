// SPDX-License-Identifier: Apache-2.0

package sharedmaps

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Builds may lay out the counters of backends, and the keys of prefixes, differently. As for flows, each build writes
// its layout into the snapshot, and the next one reads the maps field by field.

// ElementLayouts describes the elements of these maps in this build, by the program's own type information.
var ElementLayouts = sync.OnceValues(func() (map[string]snapshot.ElementLayout, error) {
	spec, err := objects.XDP.Spec()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	layouts := map[string]snapshot.ElementLayout{}
	for name, t := range map[string]btf.Type{objects.XDPMapBackendCounts: spec.Maps[objects.XDPMapBackendCounts].Value,
		objects.XDPMapPrefixes: spec.Maps[objects.XDPMapPrefixes].Key} {
		of, is := btf.UnderlyingType(t).(*btf.Struct)
		if !is {
			return nil, fmt.Errorf("reading the embedded eBPF program: the elements of %s are no struct", name)
		}
		layout := snapshot.ElementLayout{Size: int(of.Size), Fields: map[string]snapshot.Field{}}
		if err := flowtable.DescribeFields(layout.Fields, "", 0, of.Members); err != nil {
			return nil, err
		}
		layouts[name] = layout
	}
	return layouts, nil
})

// ForeignElements is a map with elements in another build's layout.
type ForeignElements struct {
	m      *ebpf.Map
	layout snapshot.ElementLayout
}

// OpenElements opens a map by its layout, and checks the layout; size is the size of the map's elements.
func OpenElements(m *ebpf.Map, size uint32, layout snapshot.ElementLayout, needed []string) (*ForeignElements, error) {
	if int(size) != layout.Size {
		return nil, fmt.Errorf("%w: %s does not have the elements of %d bytes that it says", snapshot.ErrDamaged, m,
			layout.Size)
	}
	for name, field := range layout.Fields {
		if field.Offset < 0 || field.Size < 0 || field.Offset+field.Size > layout.Size {
			return nil, fmt.Errorf("%w: the field %s of %s is not within its elements", snapshot.ErrDamaged, name, m)
		}
	}
	for _, name := range needed {
		if _, found := layout.Fields[name]; !found {
			return nil, fmt.Errorf("%w: the elements of %s have no field %q", snapshot.ErrVersion, m, name)
		}
	}
	return &ForeignElements{m, layout}, nil
}

// Close closes the map. The receiver may be nil.
func (e *ForeignElements) Close() {
	if e != nil {
		e.m.Close()
	}
}

// number reads a field; 0 where there is none.
func (e *ForeignElements) number(element []byte, name string) uint64 {
	field, found := e.layout.Fields[name]
	if !found {
		return 0
	}
	at := element[field.Offset:][:field.Size]
	switch field.Size {
	case 4:
		return uint64(binary.NativeEndian.Uint32(at))
	case 8:
		return binary.NativeEndian.Uint64(at)
	}
	return 0
}

// CountFields are the fields of a backend's counters that all builds have.
var CountFields = []string{"packets", "bytes", "connections", "returned_packets", "returned_bytes"}

// backend reads the counters of a backend's index.
func (e *ForeignElements) backend(index uint32) (sum lb.BackendCount, err error) {
	var perCPU [][]byte
	if err := e.m.Lookup(index, &perCPU); err != nil {
		return sum, fmt.Errorf("reading the counters of backend index %d of the data plane before: %v", index, err)
	}
	for _, c := range perCPU {
		sum = sum.Plus(lb.BackendCount{Packets: e.number(c, "packets"), Bytes: e.number(c, "bytes"),
			Connections:     e.number(c, "connections"),
			ReturnedPackets: e.number(c, "returned_packets"), ReturnedBytes: e.number(c, "returned_bytes"),
			Answered: e.number(c, "answered"), Refused: e.number(c, "refused"),
			Unreachable: e.number(c, "unreachable")})
	}
	return sum, nil
}

// PrefixFields are the fields of the key of a prefix.
var PrefixFields = []string{"bits", "list", "address"}

// PrefixesInto copies the lists of prefixes into a map in this build's layout.
func (e *ForeignElements) PrefixesInto(to *ebpf.Map) error {
	address := e.layout.Fields["address"]
	// The length of a prefix counts the bits before the address, too.
	before := address.Offset - e.layout.Fields["bits"].Size
	var key []byte
	var value uint32
	all := e.m.Iterate()
	for all.Next(&key, &value) {
		ours := objects.XDPPrefixKey{Bits: uint32(e.number(key, "bits")) - uint32(8*before) + generation.ListBits,
			List: uint32(e.number(key, "list"))}
		for i := range min(len(ours.Address), address.Size/4) {
			ours.Address[i] = binary.NativeEndian.Uint32(key[address.Offset+4*i:])
		}
		if err := mapmem.Allocate(func() error { return to.Put(ours, value) }); err != nil {
			return fmt.Errorf("taking over the lists of prefixes: %w", err)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("reading the lists of prefixes of the data plane before: %w", err)
	}
	return nil
}

// PreviousOutcomes are another build's counters of outcomes, in its order.
type PreviousOutcomes struct {
	Map   *ebpf.Map
	Names []string
}

// Close closes the map. The receiver may be nil.
func (o *PreviousOutcomes) Close() {
	if o != nil {
		o.Map.Close()
	}
}

// counts returns the counters by their names.
func (o *PreviousOutcomes) counts() (map[string]uint64, error) {
	counts := make(map[string]uint64, len(o.Names))
	for i, name := range o.Names {
		var perCPU []uint64
		if err := o.Map.Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("reading the counter %s of the data plane before: %v", name, err)
		}
		for _, n := range perCPU {
			counts[name] += n
		}
	}
	return counts, nil
}
