// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/deadcode"
)

// TestDeadCodeIsTheKernels loads a program with and without the code that its constants make unreachable: the kernel,
// which removes that code, too, ends with the same instructions but a few. It keeps a branch that always goes one way
// if others lead to the other side of it, does not know the arguments that all callers of a function have in common,
// and does not inline a look-up if a branch that is never taken would do it in another map.
func TestDeadCodeIsTheKernels(t *testing.T) {
	for _, mode := range []lb.Mode{lb.L2DSR, lb.FullNAT} {
		t.Run(string(mode), func(t *testing.T) {
			oneHook(t, func(t *testing.T, hook lb.Hook) {
				state := allModes()
				services := state.Services[:0:0]
				for _, s := range state.Services {
					if s.Mode == mode {
						services = append(services, s)
					}
				}
				state.Services = services
				r := newRig(t, hook, state)
				compareDeadCode(t, r.datapath, loader.KindFor(hook))
			})
		})
	}
}

func compareDeadCode(t *testing.T, d *Datapath, program loader.Kind) {
	t.Helper()
	spec, replacements, err := d.current.Specify(program, d.current.Memory.Constants, d.shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	less := spec.Copy()
	if err := deadcode.Remove(less); err != nil {
		t.Fatal(err)
	}
	whole, pruned := xlated(t, spec, program, replacements), xlated(t, less, program, replacements)
	t.Logf("%d instructions, %d without the unreachable; the kernel has %d, and %d",
		len(spec.Programs[program.Name].Instructions), len(less.Programs[program.Name].Instructions),
		len(whole), len(pruned))
	if len(less.Programs[program.Name].Instructions) >= len(spec.Programs[program.Name].Instructions) {
		t.Error("nothing was removed")
	}
	counts := map[encoded]int{}
	for _, ins := range whole {
		counts[ins]++
	}
	for _, ins := range pruned {
		counts[ins]--
	}
	missing, added := 0, 0
	for _, n := range counts {
		missing, added = missing+max(n, 0), added+max(-n, 0)
	}
	if missing > len(whole)/100 || added > len(whole)/1000 {
		t.Errorf("of the whole program's %d instructions %d are missing, and the other has %d that are not in it",
			len(whole), missing, added)
	}
}

func isBranch(op asm.OpCode) bool {
	return op.Class().IsJump() && op.JumpOp() != asm.Call && op.JumpOp() != asm.Exit
}

// encoded is an instruction without the library's metadata.
type encoded struct {
	op       asm.OpCode
	dst, src asm.Register
	offset   int16
	constant int64
}

// xlated loads a program, and returns the kernel's translated instructions.
func xlated(
	t *testing.T, spec *ebpf.CollectionSpec, program loader.Kind, replacements map[string]*ebpf.Map,
) (made []encoded) {
	t.Helper()
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements})
	if err != nil {
		t.Fatal(err)
	}
	defer collection.Close()
	info, err := collection.Programs[program.Name].Info()
	if err != nil {
		t.Fatal(err)
	}
	instructions, err := info.Instructions()
	if err != nil {
		t.Fatal(err)
	}
	for _, ins := range instructions {
		e := encoded{ins.OpCode, ins.Dst, ins.Src, ins.Offset, ins.Constant}
		switch {
		case ins.IsLoadFromMap():
			// Maps that both have not in common have numbers of their own.
			e.constant = int64(uint64(e.constant) >> 32)
		case isBranch(e.op):
			// The kernel may test a value that is known.
			e = encoded{op: asm.Ja.Op(asm.ImmSource)}
		case ins.IsFunctionCall():
			// Where the function is.
			e.offset, e.constant = 0, 0
		}
		made = append(made, e)
	}
	return made
}
