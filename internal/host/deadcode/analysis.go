// SPDX-License-Identifier: Apache-2.0

package deadcode

import "github.com/cilium/ebpf/asm"

// An outcome is the effect of an instruction on control flow.
type outcome uint8

const (
	dead  outcome = iota // It is never reached.
	runs                 // It runs; a branch may go either way.
	jumps                // It is a branch that is always taken, or an unconditional jump.
	falls                // It is a branch that is never taken.
)

// registers are the known values of r0 to r10.
type registers [11]value

// join drops the values of r that differ in other, and reports whether there were any.
func (r *registers) join(other *registers) (changed bool) {
	for i := range r {
		if r[i].kind != unknown && r[i] != other[i] {
			r[i], changed = value{}, true
		}
	}
	return changed
}

// An analysis finds which instructions are reachable, and which branches are always or never taken.
type analysis struct {
	*graph
	constants map[string][]byte
	outcomes  []outcome
	// entry has the known registers at each leader's entry; nil until it is reached.
	entry []*registers
	work  []int
}

func newAnalysis(g *graph, constants map[string][]byte) *analysis {
	return &analysis{graph: g, constants: constants, outcomes: make([]outcome, len(g.program)),
		entry: make([]*registers, len(g.program))}
}

// run analyses the program from its first instruction.
func (a *analysis) run() []outcome {
	a.leader[0] = true
	a.enter(0, &registers{})
	for len(a.work) > 0 {
		start := a.work[len(a.work)-1]
		a.work = a.work[:len(a.work)-1]
		a.block(start)
	}
	return a.outcomes
}

// enter records that the leader at i is reached with the registers of state.
func (a *analysis) enter(i int, state *registers) {
	if a.entry[i] == nil {
		known := *state
		a.entry[i] = &known
	} else if !a.entry[i].join(state) {
		return
	}
	a.work = append(a.work, i)
}

// block analyses the instructions of a basic block.
func (a *analysis) block(start int) {
	state := *a.entry[start]
	for i := start; i < len(a.program); i++ {
		if i != start && a.leader[i] {
			a.enter(i, &state)
			return
		}
		if !a.step(i, &state) {
			return
		}
	}
}

// step analyses one instruction, and reports whether control may continue with the next.
func (a *analysis) step(i int, state *registers) (next bool) {
	ins := &a.program[i]
	switch {
	case isJump(ins):
		return a.branch(i, state)
	case ins.OpCode.Class().IsJump() && ins.OpCode.JumpOp() == asm.Exit:
		a.outcomes[i] = runs
		return false
	}
	a.outcomes[i] = runs
	if ins.IsFunctionReference() {
		a.enter(a.target[i], arguments(ins, state))
	}
	state.apply(ins, a.constants)
	return true
}

// arguments returns the known registers at the entry of the function that ins calls. The kernel sets those of a
// callback.
func arguments(ins *asm.Instruction, state *registers) *registers {
	var known registers
	if ins.IsFunctionCall() {
		copy(known[asm.R1:asm.R6], state[asm.R1:asm.R6])
	}
	return &known
}

// branch analyses a jump. A branch that may go either way stays so, since each visit knows less.
func (a *analysis) branch(i int, state *registers) (next bool) {
	ins := &a.program[i]
	result := decideJump(ins, state)
	if ins.Symbol() != "" && result != jumps ||
		a.outcomes[i] == runs || a.outcomes[i] != dead && a.outcomes[i] != result {
		// The first instruction of a function has its symbol, and must be kept.
		result = runs
	}
	a.outcomes[i] = result
	if result != falls {
		taken := *state
		taken.learn(ins, asm.JEq)
		a.enter(a.target[i], &taken)
	}
	if result == jumps {
		return false
	}
	state.learn(ins, asm.JNE)
	return true
}

// learn records that the operands of ins are equal, if ins compares by op.
func (r *registers) learn(ins *asm.Instruction, op asm.JumpOp) {
	if ins.OpCode.Class() == asm.JumpClass && ins.OpCode.JumpOp() == op && ins.OpCode.Source() == asm.ImmSource &&
		r[ins.Dst].kind == unknown {
		r[ins.Dst] = constant(uint64(ins.Constant))
	}
}

// decideJump returns whether ins is always taken (jumps), never (falls), or may go either way (runs).
func decideJump(ins *asm.Instruction, state *registers) outcome {
	op := ins.OpCode.JumpOp()
	if op == asm.Ja {
		return jumps
	}
	left, right := state[ins.Dst], constant(uint64(ins.Constant))
	if ins.OpCode.Source() == asm.RegSource {
		right = state[ins.Src]
	}
	if left.kind != number || right.kind != number {
		return runs
	}
	l, r := left.bits, right.bits
	if ins.OpCode.Class() == asm.Jump32Class {
		// Sign extension serves signed comparisons, and keeps the order of unsigned ones.
		l, r = uint64(int64(int32(l))), uint64(int64(int32(r)))
	}
	taken, known := compare(op, l, r)
	switch {
	case !known:
		return runs
	case taken:
		return jumps
	}
	return falls
}

// compare reports whether a jump by op is taken; known is false for operations that are no comparison.
func compare(op asm.JumpOp, l, r uint64) (taken, known bool) {
	switch op {
	case asm.JEq:
		return l == r, true
	case asm.JNE:
		return l != r, true
	case asm.JGT:
		return l > r, true
	case asm.JGE:
		return l >= r, true
	case asm.JLT:
		return l < r, true
	case asm.JLE:
		return l <= r, true
	case asm.JSGT:
		return int64(l) > int64(r), true
	case asm.JSGE:
		return int64(l) >= int64(r), true
	case asm.JSLT:
		return int64(l) < int64(r), true
	case asm.JSLE:
		return int64(l) <= int64(r), true
	case asm.JSet:
		return l&r != 0, true
	}
	return false, false
}
