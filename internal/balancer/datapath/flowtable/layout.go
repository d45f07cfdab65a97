// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
)

// Builds may lay out a table of flows differently. Each writes its layout into the snapshot; by that the next build
// reads the tables field by field, and copies the flows into tables of its own.

// flowDefaults are the fields of a flow that are 0 where the other build lacks them. A layout without one of the other
// fields cannot be read.
var flowDefaults = []string{"syn"}

// flowFields is the prefix of the names of the fields of a flow.
const flowFields = "flows."

// Layout describes the tables of flows of this build, by the program's own type information.
var Layout = sync.OnceValues(func() (*snapshot.FlowLayout, error) {
	spec, err := objects.XDP.Spec()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	bucket, is := btf.UnderlyingType(spec.Maps[objects.XDPMapFlows].Value).(*btf.Struct)
	if !is {
		return nil, fmt.Errorf("reading the embedded eBPF program: the elements of %s are no struct",
			objects.XDPMapFlows)
	}
	layout := &snapshot.FlowLayout{Bucket: int(bucket.Size), Fields: map[string]snapshot.Field{}}
	if err := DescribeFields(layout.Fields, "", 0, bucket.Members); err != nil {
		return nil, err
	}
	layout.Flow = layout.Fields["flows"].Size / PerBucket
	if layout.States, err = numbersOf(spec, "flow_state"); err != nil {
		return nil, err
	}
	layout.Numbers, err = numbersOf(spec, "flow_table")
	return layout, err
})

// numbersOf returns the numbers of an enum by their names.
func numbersOf(spec *ebpf.CollectionSpec, enum string) (map[string]uint64, error) {
	var definition *btf.Enum
	if err := spec.Types.TypeByName(enum, &definition); err != nil {
		return nil, fmt.Errorf("looking for the type %s of the embedded eBPF program: %v", enum, err)
	}
	numbers := map[string]uint64{}
	for _, v := range definition.Values {
		numbers[v.Name] = v.Value
	}
	return numbers, nil
}

// DescribeFields records the offsets of a struct's members; for a member that is a struct or a union it records that
// one's members instead. For an array of structs it records both the array and an element's members, by their offsets
// in the element.
func DescribeFields(fields map[string]snapshot.Field, prefix string, from int, members []btf.Member) error {
	for _, m := range members {
		at, name := from+int(m.Offset.Bytes()), prefix+m.Name
		size, err := btf.Sizeof(m.Type)
		if err != nil {
			return fmt.Errorf("describing %s of the embedded eBPF program: %v", name, err)
		}
		inner, element := btf.UnderlyingType(m.Type), at
		array, isArray := inner.(*btf.Array)
		if isArray {
			inner, element = btf.UnderlyingType(array.Type), 0
		}
		below := name + "."
		if m.Name == "" {
			below = prefix
		}
		var within []btf.Member
		switch composite := inner.(type) {
		case *btf.Struct:
			within = composite.Members
		case *btf.Union:
			within = composite.Members
		}
		if within == nil || isArray {
			fields[name] = snapshot.Field{Offset: at, Size: size}
		}
		if err := DescribeFields(fields, below, element, within); err != nil {
			return err
		}
	}
	return nil
}

// ForeignLayout has the offsets and states by which flows of another layout are read.
type ForeignLayout struct {
	// The sizes of a bucket and of a flow in bytes, and how many flows are in a bucket.
	Bucket, Flow, Places int
	// The offsets of a bucket's parts.
	Tags, Seen, States, Flows int
	// busy is the tag of a place that is being written.
	busy uint16
	// Copies are the fields of a flow to copy.
	Copies []fieldCopy
	// State is the state in this build for each state of the other one.
	State [256]objects.XDPFlowState
}

// fieldCopy is a field of a flow: its offsets in the other build's layout and in this one's.
type fieldCopy struct {
	From, To, Size int
	// UnlessZero: another field shares the field's offset in other modes, in which this field is 0.
	UnlessZero bool
}

// NewForeignLayout returns the offsets by which to read the tables of a layout. An error names the missing fields.
func NewForeignLayout(theirs *snapshot.FlowLayout) (*ForeignLayout, error) {
	ours, err := Layout()
	if err != nil {
		return nil, err
	}
	if theirs == nil {
		return nil, errors.New("it does not say where the fields of flows are")
	}
	places := int(theirs.Numbers["FLOW_BUCKET"])
	r := &ForeignLayout{Bucket: theirs.Bucket, Flow: theirs.Flow, Places: places, busy: uint16(theirs.Numbers["FLOW_BUSY"])}
	for _, part := range []struct {
		name string
		to   *int
		size int
	}{{"tags", &r.Tags, 2 * places}, {"seen", &r.Seen, 4 * places}, {"states", &r.States, places},
		{"flows", &r.Flows, theirs.Flow * places}} {
		field := theirs.Fields[part.name]
		if places == 0 || field.Size != part.size || field.Offset < 0 || field.Offset+field.Size > theirs.Bucket ||
			theirs.Bucket%8 != 0 {
			return nil, fmt.Errorf("in its buckets, %s differs from this build's, for %d flows", part.name, places)
		}
		*part.to = field.Offset
	}
	if err := r.readFlow(ours, theirs); err != nil {
		return nil, err
	}
	return r, r.readNumbers(ours, theirs)
}

// readFlow finds the fields of a flow.
func (r *ForeignLayout) readFlow(ours, theirs *snapshot.FlowLayout) error {
	for name, to := range ours.Fields {
		field, ok := strings.CutPrefix(name, flowFields)
		if !ok {
			continue
		}
		from, found := theirs.Fields[name]
		switch {
		case !found && slices.Contains(flowDefaults, field):
		case !found:
			return fmt.Errorf("its flows have no field %q", field)
		case from.Size != to.Size || from.Offset < 0 || from.Offset+from.Size > theirs.Flow:
			return fmt.Errorf("the field %q of its flows has %d bytes, and here %d", field, from.Size, to.Size)
		default:
			r.Copies = append(r.Copies, fieldCopy{from.Offset, to.Offset, to.Size, strings.HasPrefix(field, "source.")})
		}
	}
	// Among fields that share an offset, full NAT's source address and port are copied last, unless they are 0.
	slices.SortFunc(r.Copies, func(a, b fieldCopy) int {
		if a.UnlessZero != b.UnlessZero {
			return map[bool]int{false: -1, true: 1}[a.UnlessZero]
		}
		return a.To - b.To
	})
	return nil
}

// readNumbers maps the other build's states to this one's, and rejects different bits of keys.
func (r *ForeignLayout) readNumbers(ours, theirs *snapshot.FlowLayout) error {
	for _, name := range []string{"FLOW_KEY_AFFINITY", "FLOW_KEY_GROUP"} {
		if ours.Numbers[name] != theirs.Numbers[name] {
			return fmt.Errorf("its %s is %#x, and here it is %#x", name, theirs.Numbers[name], ours.Numbers[name])
		}
	}
	for name, number := range theirs.States {
		state, known := ours.States[name]
		if !known || number >= uint64(len(r.State)) {
			return fmt.Errorf("its flows have a state %s (%d), which is not known here", name, number)
		}
		r.State[number] = objects.XDPFlowState(state)
	}
	return nil
}
