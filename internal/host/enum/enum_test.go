// SPDX-License-Identifier: Apache-2.0

package enum

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

func TestNames(t *testing.T) {
	builder, err := btf.NewBuilder([]btf.Type{&btf.Enum{Name: "colour", Size: 4, Values: []btf.EnumValue{
		{Name: "COLOUR_RED", Value: 0}, {Name: "COLOUR_DARK_BLUE", Value: 1}, {Name: "COLOUR_COUNT", Value: 2}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := builder.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	types, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	spec := &ebpf.CollectionSpec{Types: types}
	if names, err := Names(spec, "colour", "COLOUR_", 2); err != nil ||
		!slices.Equal(names, []string{"red", "dark_blue"}) {
		t.Errorf("%q, %v", names, err)
	}
	if names, err := Names(spec, "colour", "COLOUR_", 4); err == nil {
		t.Errorf("a value without a name: %q", names)
	}
	if names, err := Names(spec, "shape", "SHAPE_", 1); err == nil {
		t.Errorf("an enum that is not there: %q", names)
	}
}
