// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
)

// Older kernels round each function's frame up to 32 bytes, and newer ones to 16 (check_max_stack_depth in
// kernel/bpf/verifier.c): a program that fits here need not fit there.
const (
	oldestRounding = 32
	maxStack       = 512
)

// forOldKernels are the programs that the oldest kernels must accept, and how many functions each has at least.
var forOldKernels = []struct {
	load      func() (*ebpf.CollectionSpec, error)
	functions int
}{{objects.LoadXDP, 10}, {objects.LoadTC, 10}, {traced.LoadXdp, 10}, {traced.LoadTc, 10}, {objects.LoadLocal, 1},
	{objects.LoadAbort, 1}}

// TestStackOfOldKernels adds up the frames of the deepest calls as the oldest kernels do.
func TestStackOfOldKernels(t *testing.T) {
	for _, of := range forOldKernels {
		spec, err := of.load()
		if err != nil {
			t.Fatal(err)
		}
		for name, program := range spec.Programs {
			frames := framesOf(program.Instructions)
			if len(frames) < of.functions {
				t.Fatalf("%s: only %d functions were found", name, len(frames))
			}
			depth, callPath := deepest(frames, name)
			t.Logf("%s: %d bytes by %v", name, depth, callPath)
			if depth > maxStack {
				t.Errorf("%s: %d bytes of stack by %v; the oldest kernels take %d", name, depth, callPath, maxStack)
			}
		}
	}
}

// frame is a function's stack frame, in bytes, and the functions that it calls.
type frame struct {
	size  int
	calls map[string]bool
}

// framesOf reads the functions of a linked program. Memory of the stack is reached from its
// frame pointer, or from a register that was made of that.
func framesOf(program asm.Instructions) map[string]*frame {
	frames := map[string]*frame{}
	var now *frame
	copied := map[asm.Register]bool{}
	for _, ins := range program {
		if name := ins.Symbol(); name != "" && (len(frames) == 0 || isFunction(program, name)) {
			now, copied = &frame{calls: map[string]bool{}}, map[asm.Register]bool{}
			frames[name] = now
		}
		op := ins.OpCode
		switch {
		case ins.IsFunctionCall():
			now.calls[ins.Reference()] = true
		case op.Class().IsLoad() && ins.Src == asm.RFP, op.Class().IsStore() && ins.Dst == asm.RFP:
			now.size = max(now.size, -int(ins.Offset))
		case op.Class() == asm.ALU64Class && op.ALUOp() == asm.Mov && op.Source() == asm.RegSource:
			copied[ins.Dst] = ins.Src == asm.RFP
		case op.Class() == asm.ALU64Class && op.ALUOp() == asm.Add && op.Source() == asm.ImmSource && copied[ins.Dst]:
			now.size = max(now.size, -int(ins.Constant))
		}
	}
	return frames
}

// isFunction reports whether a symbol is called, and not only jumped to.
func isFunction(program asm.Instructions, name string) bool {
	for _, ins := range program {
		if ins.IsFunctionCall() && ins.Reference() == name {
			return true
		}
	}
	return false
}

// deepest is the largest stack of a function with those that it calls, and the chain of calls.
func deepest(frames map[string]*frame, name string) (depth int, callPath []string) {
	f := frames[name]
	for called := range f.calls {
		if d, w := deepest(frames, called); d > depth {
			depth, callPath = d, w
		}
	}
	own := (max(f.size, 1) + oldestRounding - 1) / oldestRounding * oldestRounding
	return own + depth, append([]string{fmt.Sprintf("%s (%d)", name, f.size)}, callPath...)
}
