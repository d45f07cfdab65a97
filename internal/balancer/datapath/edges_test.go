// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/host/deadcode"
)

// TestEdgesOfOldKernels walks the programs as Linux 6.1 does before it follows them (check_cfg in
// kernel/bpf/verifier.c): a loop may be closed by a jump only. Where clang has the end of a loop's body fall into its
// head, which was reached by a jump before, these kernels say "back-edge from insn".
func TestEdgesOfOldKernels(t *testing.T) {
	for _, of := range forOldKernels {
		for _, modes := range []uint32{1 << objects.XDPModeMODE_L2DSR, 1<<(objects.XDPModeMODE_FULLNAT+1) - 1} {
			spec, err := of.load()
			if err != nil {
				t.Fatal(err)
			}
			constants := objects.XDPSettings{Modes: modes, Schedulers: 1<<(objects.XDPSchedulerSCHEDULER_FIRST+1) - 1,
				TableSlots: 1000, MembersCount: 1000, BackendsCount: 1000, FlowBuckets: 1000, NewcomerBuckets: 1000,
				ReturnBuckets: 1000, Pool4Count: 10, Pool6Count: 10, Own4Count: 10, Own6Count: 10, Hairpins: 1,
				Clients: 1, Checks: 1, Local: 1}
			if err := spec.Variables[objects.XDPVarLoaded].Set(constants); err != nil {
				t.Fatal(err)
			}
			walkEdges(t, "as it is", spec)
			if err := deadcode.Remove(spec); err != nil {
				t.Fatal(err)
			}
			walkEdges(t, fmt.Sprintf("modes %#x", modes), spec)
		}
	}
}

func walkEdges(t *testing.T, what string, spec *ebpf.CollectionSpec) {
	t.Helper()
	for name, program := range spec.Programs {
		w, err := newEdgeWalk(program.Instructions)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.walk(); err != nil {
			t.Errorf("%s, %s: %v", name, what, err)
		}
	}
}

// edgeWalk is a depth-first walk over the instructions of a program.
type edgeWalk struct {
	program asm.Instructions
	// target is where a jump or a call leads, by index.
	target []int
	// followed are the edges of each instruction that were taken: to the next one, and to its target.
	followed [][2]bool
	// open: the walk has come to it, and has not left it permanently.
	seen, open []bool
	stack      []int
}

func newEdgeWalk(program asm.Instructions) (*edgeWalk, error) {
	n := len(program)
	w := &edgeWalk{program, make([]int, n), make([][2]bool, n), make([]bool, n), make([]bool, n), nil}
	functions, err := program.SymbolOffsets()
	if err != nil {
		return nil, err
	}
	at, raw := map[int]int{}, 0
	for i := range program {
		at[raw] = i
		raw += int(program[i].Width())
	}
	raw = 0
	for i := range program {
		ins := &program[i]
		raw += int(ins.Width())
		switch {
		case ins.IsFunctionCall():
			w.target[i] = functions[ins.Reference()]
		case ins.OpCode.Class() == asm.Jump32Class && ins.OpCode.JumpOp() == asm.Ja:
			w.target[i] = at[raw+int(ins.Constant)]
		case ins.OpCode.Class().IsJump():
			w.target[i] = at[raw+int(ins.Offset)]
		}
	}
	return w, nil
}

// walk returns the first edge that Linux 6.1 refuses.
func (w *edgeWalk) walk() error {
	w.enter(0)
	for len(w.stack) > 0 {
		from := w.stack[len(w.stack)-1]
		deeper, err := w.visit(from)
		if err != nil {
			return err
		}
		if !deeper {
			w.open[from] = false
			w.stack = w.stack[:len(w.stack)-1]
		}
	}
	return nil
}

func (w *edgeWalk) enter(at int) {
	w.seen[at], w.open[at] = true, true
	w.stack = append(w.stack, at)
}

const (
	toNext = iota
	toTarget
)

// visit takes the next edge of an instruction, and reports whether it leads somewhere new.
func (w *edgeWalk) visit(from int) (deeper bool, err error) {
	ins := &w.program[from]
	op := ins.OpCode
	switch {
	case !op.Class().IsJump():
		return w.follow(from, from+1, toNext, false)
	case op.JumpOp() == asm.Exit:
		return false, nil
	case op.JumpOp() == asm.Ja:
		return w.follow(from, w.target[from], toNext, true)
	case op.JumpOp() == asm.Call:
		if deeper, err = w.follow(from, from+1, toNext, false); deeper || err != nil || !ins.IsFunctionCall() {
			return deeper, err
		}
		return w.follow(from, w.target[from], toTarget, false)
	}
	if deeper, err = w.follow(from, from+1, toNext, true); deeper || err != nil {
		return deeper, err
	}
	return w.follow(from, w.target[from], toTarget, true)
}

func (w *edgeWalk) follow(from, to, edge int, mayLoop bool) (deeper bool, err error) {
	switch {
	case w.followed[from][edge]:
		return false, nil
	case !w.seen[to]:
		w.followed[from][edge] = true
		w.enter(to)
		return true, nil
	case w.open[to] && !mayLoop:
		return false, fmt.Errorf("back-edge from instruction %d (%v) to %d (%v), line %v", from, w.program[from], to,
			w.program[to], w.program[to].Source())
	}
	w.followed[from][edge] = true
	return false, nil
}
