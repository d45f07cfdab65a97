// SPDX-License-Identifier: Apache-2.0

package deadcode

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// A kind is the kind of a register's known value.
type kind uint8

const (
	unknown kind = iota
	number       // It holds bits.
	pointer      // It points to the byte at bits of a read-only section.
)

// A value is the known value of a register.
type value struct {
	kind    kind
	bits    uint64
	section string // of a pointer
}

func constant(v uint64) value { return value{kind: number, bits: v} }

// apply changes the registers as ins does. ins must not be a jump.
func (r *registers) apply(ins *asm.Instruction, constants map[string][]byte) {
	class := ins.OpCode.Class()
	switch {
	case class.IsJump():
		// Calls return in r0, and their arguments are gone.
		clear(r[asm.R0:asm.R6])
	case btf.CORERelocationMetadata(ins) != nil:
		// The kernel's types decide, when the program is loaded. Stores change no register.
		if !class.IsStore() {
			r[ins.Dst] = value{}
		}
	case class.IsALU():
		r[ins.Dst] = r.compute(ins)
	case class == asm.StXClass && ins.OpCode.Mode() == asm.AtomicMode:
		// The previous value is fetched into the source or, by a comparison, into r0; an acquire loads the destination.
		r[ins.Src], r[ins.Dst], r[asm.R0] = value{}, value{}, value{}
	case class.IsStore():
	case class == asm.LdXClass:
		r[ins.Dst] = r.load(ins, constants)
	case ins.OpCode.IsDWordLoad():
		r[ins.Dst] = value{}
		if ins.Src == asm.PseudoMapValue && constants[ins.Reference()] != nil {
			r[ins.Dst] = value{kind: pointer, section: ins.Reference(), bits: uint64(ins.Constant) >> 32}
		}
	default:
		// LD_ABS and LD_IND clobber the same registers as calls.
		clear(r[asm.R0:asm.R6])
	}
}

// load returns the value that ins loads from a read-only section. Objects are little-endian (bpfel).
func (r *registers) load(ins *asm.Instruction, constants map[string][]byte) value {
	mode, size := ins.OpCode.Mode(), uint64(ins.OpCode.Size().Sizeof())
	from := r[ins.Src]
	at := from.bits + uint64(int64(ins.Offset))
	contents := constants[from.section]
	if from.kind != pointer || mode != asm.MemMode && mode != asm.MemSXMode || at > uint64(len(contents)) ||
		size > uint64(len(contents))-at {
		return value{}
	}
	var word [8]byte
	copy(word[:], contents[at:at+size])
	loaded := binary.LittleEndian.Uint64(word[:])
	if mode == asm.MemSXMode {
		loaded = signExtend(loaded, 8*size)
	}
	return constant(loaded)
}

// signExtend sign-extends the low width bits of v to 64 bits.
func signExtend(v, width uint64) uint64 {
	return uint64(int64(v<<(64-width)) >> (64 - width))
}

// compute returns the result of ins, an ALU operation.
func (r *registers) compute(ins *asm.Instruction) value {
	left, right, op := r[ins.Dst], constant(uint64(ins.Constant)), ins.OpCode.ALUOp()
	if ins.OpCode.Source() == asm.RegSource {
		right = r[ins.Src]
	}
	wide := ins.OpCode.Class() == asm.ALU64Class
	if ins.Offset != 0 {
		return value{} // It casts a pointer between address spaces.
	}
	if wide && op == asm.Mov {
		return right
	}
	if wide && left.kind == pointer && right.kind == number && op == asm.Add {
		left.bits += right.bits
		return left
	}
	if right.kind != number || left.kind != number && op != asm.Mov {
		return value{}
	}
	result, known := arithmetic(op, left.bits, right.bits, wide)
	if !known {
		return value{}
	}
	if !wide {
		result = uint64(uint32(result))
	}
	return constant(result)
}

// arithmetic computes the operations that compilers leave between a constant and a branch on it; known is false for all
// others.
func arithmetic(op asm.ALUOp, l, r uint64, wide bool) (result uint64, known bool) {
	width := uint64(64)
	if !wide {
		l, r, width = uint64(uint32(l)), uint64(uint32(r)), 32
	}
	switch op {
	case asm.Mov:
		return r, true
	case asm.Add:
		return l + r, true
	case asm.Sub:
		return l - r, true
	case asm.Mul:
		return l * r, true
	case asm.And:
		return l & r, true
	case asm.Or:
		return l | r, true
	case asm.Xor:
		return l ^ r, true
	case asm.LSh:
		return l << (r % width), true
	case asm.RSh:
		return l >> (r % width), true
	case asm.ArSh:
		return uint64(int64(signExtend(l, width)) >> (r % width)), true
	}
	return 0, false
}
