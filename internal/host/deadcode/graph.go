// SPDX-License-Identifier: Apache-2.0

package deadcode

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// errLabel means that a jump has a label. cilium/ebpf resolves such labels when it loads a program. No object that
// clang made has any.
var errLabel = errors.New("a jump has a label instead of an offset")

// A graph is a program with its jumps resolved to indices.
type graph struct {
	program asm.Instructions
	// target is the destination of each jump, or the function that an instruction calls or points to; -1 for all
	// others.
	target []int
	// leader reports for each instruction whether control reaches it other than from the instruction before it.
	leader []bool
}

func newGraph(program asm.Instructions) (*graph, error) {
	g := &graph{program: program, target: make([]int, len(program)), leader: make([]bool, len(program))}
	functions, err := program.SymbolOffsets()
	if err != nil {
		return nil, err
	}
	// at is the index of the instruction at each raw offset, in units of 8 bytes; -1 in the middle of one.
	at, raw := make([]int, 0, program.Size()/asm.InstructionSize), make([]int, len(program))
	for i := range program {
		raw[i] = len(at)
		at = append(at, i)
		for range program[i].Width() - 1 {
			at = append(at, -1)
		}
	}
	for i := range program {
		ins, ok := &program[i], true
		g.target[i] = -1
		switch {
		case ins.IsFunctionReference():
			g.target[i], ok = functions[ins.Reference()]
		case isJump(ins) && ins.Reference() != "":
			return nil, fmt.Errorf("instruction %d: %w", i, errLabel)
		case isJump(ins):
			if to := raw[i] + 1 + jumpOffset(ins); to >= 0 && to < len(at) {
				g.target[i] = at[to]
			}
			ok = g.target[i] >= 0
		}
		if !ok {
			return nil, fmt.Errorf("instruction %d leads out of the program: %v", i, ins)
		}
		if g.target[i] >= 0 {
			g.leader[g.target[i]] = true
		}
	}
	return g, nil
}

// isJump reports whether ins may continue at another instruction of the same function.
func isJump(ins *asm.Instruction) bool {
	op := ins.OpCode.JumpOp()
	return ins.OpCode.Class().IsJump() && op != asm.Call && op != asm.Exit
}

// isLongJump reports whether the offset of ins is in its constant (gotol).
func isLongJump(ins *asm.Instruction) bool {
	return ins.OpCode.Class() == asm.Jump32Class && ins.OpCode.JumpOp() == asm.Ja
}

// jumpOffset returns the distance that ins jumps, in units of 8 bytes from the end of the instruction.
func jumpOffset(ins *asm.Instruction) int {
	if isLongJump(ins) {
		return int(ins.Constant)
	}
	return int(ins.Offset)
}

// rewrite returns the live instructions. A branch that is always taken becomes a jump, and one that is never taken is
// removed, as by the verifier.
func (g *graph) rewrite(outcomes []outcome) asm.Instructions {
	keep := make([]bool, len(g.program))
	for i, o := range outcomes {
		keep[i] = o != dead && o != falls
	}
	g.dropEmptyJumps(outcomes, keep)
	offsets := g.offsets(keep)
	var live asm.Instructions
	for i, ins := range g.program {
		if !keep[i] {
			continue
		}
		if outcomes[i] == jumps && ins.OpCode.JumpOp() != asm.Ja {
			ins.OpCode, ins.Dst, ins.Src, ins.Constant = asm.Ja.Op(asm.ImmSource), 0, 0, 0
		}
		if isJump(&ins) {
			setJumpOffset(&ins, offsets[g.target[i]]-offsets[i]-1)
		}
		live = append(live, ins)
	}
	return live
}

// dropEmptyJumps removes jumps to the next instruction from keep. Removing one may make another one empty.
func (g *graph) dropEmptyJumps(outcomes []outcome, keep []bool) {
	for changed := true; changed; {
		changed = false
		offsets := g.offsets(keep)
		for i := range g.program {
			if keep[i] && outcomes[i] == jumps && g.program[i].Symbol() == "" && offsets[g.target[i]] == offsets[i]+1 {
				keep[i], changed = false, true
			}
		}
	}
}

// offsets returns the offset of each instruction in units of 8 bytes, without the instructions that are not kept. Such
// an instruction has the offset of the next kept one.
func (g *graph) offsets(keep []bool) []int {
	offsets, offset := make([]int, len(g.program)), 0
	for i := range g.program {
		offsets[i] = offset
		if keep[i] {
			offset += int(g.program[i].Width())
		}
	}
	return offsets
}

// setJumpOffset sets the jump offset of ins, as jumpOffset returns it.
func setJumpOffset(ins *asm.Instruction, offset int) {
	if isLongJump(ins) {
		ins.Constant = int64(offset)
		return
	}
	ins.Offset = int16(offset)
}
