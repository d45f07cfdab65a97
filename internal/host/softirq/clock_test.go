// SPDX-License-Identifier: Apache-2.0

package softirq

import (
	"bytes"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/prometheus/procfs"
)

// TestLeavesOut: a kernel's clocks leave softirqs out if it can account interrupts by themselves, and does.
func TestLeavesOut(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		structure string
		irq       float64
		want      bool
	}{
		{"irqtime", 0.01, true},
		{"irqtime", 0, false}, // tsc=noirqtime
		{"task_struct", 0.01, false},
		{"task_struct", 0, false},
	} {
		got, err := leavesOut(kernelWith(t, test.structure), procfs.CPUStat{User: 1, IRQ: test.irq, SoftIRQ: 1})
		if err != nil || got != test.want {
			t.Errorf("a kernel with the type %s and %g s of interrupts: %t, %v", test.structure, test.irq, got, err)
		}
	}
}

// TestMeterSpec: the constant of the programs has the value that newMeter was given.
func TestMeterSpec(t *testing.T) {
	t.Parallel()
	for _, want := range []bool{true, false} {
		spec, err := meterSpec(want)
		if err != nil {
			t.Fatal(err)
		}
		var got bool
		if err := spec.Variables[meterVarClockLeavesOut].Get(&got); err != nil || got != want {
			t.Errorf("told %t, want %t: %v", got, want, err)
		}
	}
}

// kernelWith returns the types of a kernel that has a structure.
func kernelWith(t *testing.T, structure string) *btf.Spec {
	t.Helper()
	word := &btf.Int{Name: "int", Size: 4}
	builder, err := btf.NewBuilder([]btf.Type{&btf.Struct{Name: structure, Size: 4,
		Members: []btf.Member{{Name: "total", Type: word}}}}, nil)
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
	return types
}
