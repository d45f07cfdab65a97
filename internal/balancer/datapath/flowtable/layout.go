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

// Builds may lay out a table of flows differently. Each writes its layout down; the next reads the tables of the one
// before by that, field by field, and copies the flows into tables of its own.

// flowDefaults are the fields of a flow that are 0 where the build before did not have them. A layout without one of
// the others cannot be read.
var flowDefaults = []string{"syn"}

// flowFields begins the names of the fields of a flow.
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
	var of *btf.Enum
	if err := spec.Types.TypeByName(enum, &of); err != nil {
		return nil, fmt.Errorf("looking for the type %s of the embedded eBPF program: %v", enum, err)
	}
	numbers := map[string]uint64{}
	for _, v := range of.Values {
		numbers[v.Name] = v.Value
	}
	return numbers, nil
}

// DescribeFields notes the offsets of a struct's members; of a member that is a struct or a union it notes its members
// instead. Of an array of structs it notes both: the array, and an element's members by their offsets in it.
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
		switch of := inner.(type) {
		case *btf.Struct:
			within = of.Members
		case *btf.Union:
			within = of.Members
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
	// Copies are the fields of a flow.
	Copies []fieldCopy
	// State is our state for each of theirs.
	State [256]objects.XDPFlowState
}

// fieldCopy is a field of a flow: its offset there, and here.
type fieldCopy struct {
	From, To, Size int
	// UnlessZero: it has a place here that another field has in other modes, where this one is 0.
	UnlessZero bool
}

// NewForeignLayout returns how to read the tables of a layout. An error names the missing fields.
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
		field, is := strings.CutPrefix(name, flowFields)
		if !is {
			continue
		}
		from, there := theirs.Fields[name]
		switch {
		case !there && slices.Contains(flowDefaults, field):
		case !there:
			return fmt.Errorf("its flows have no field %q", field)
		case from.Size != to.Size || from.Offset < 0 || from.Offset+from.Size > theirs.Flow:
			return fmt.Errorf("the field %q of its flows has %d bytes, and here %d", field, from.Size, to.Size)
		default:
			r.Copies = append(r.Copies, fieldCopy{from.Offset, to.Offset, to.Size, strings.HasPrefix(field, "source.")})
		}
	}
	// Of fields that share their place, full NAT's end comes last, and only where there is one.
	slices.SortFunc(r.Copies, func(a, b fieldCopy) int {
		if a.UnlessZero != b.UnlessZero {
			return map[bool]int{false: -1, true: 1}[a.UnlessZero]
		}
		return a.To - b.To
	})
	return nil
}

// readNumbers finds our states for theirs, and refuses other bits of keys.
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
