// SPDX-License-Identifier: Apache-2.0

package deadcode

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// setting returns a program's load of the 32-bit word at offset of the section, as clang writes it.
func setting(dst asm.Register, offset int16) asm.Instructions {
	address := asm.LoadMapValue(asm.R9, 0, 0).WithReference(".rodata")
	return asm.Instructions{address, asm.LoadMem(dst, asm.R9, offset, asm.Word)}
}

// jump returns a jump over the next n one-word instructions.
func jump(op asm.JumpOp, dst asm.Register, value int32, n int16) asm.Instruction {
	ins := op.Imm(dst, value, "")
	ins.Offset = n
	return ins
}

func program(parts ...any) (made asm.Instructions) {
	for _, part := range parts {
		switch part := part.(type) {
		case asm.Instructions:
			made = append(made, part...)
		case asm.Instruction:
			made = append(made, part)
		}
	}
	return made
}

// disassemble returns the text of a program, without addresses of the section.
func disassemble(p asm.Instructions) string {
	var lines []string
	for _, ins := range p {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%v", ins)))
	}
	return strings.Join(lines, "\n")
}

func specOf(p asm.Instructions, section []byte, flags uint32) *ebpf.CollectionSpec {
	return &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{".rodata": {
			Name: ".rodata", Flags: flags, Contents: []ebpf.MapKV{{Key: uint32(0), Value: section}},
		}},
		Programs: map[string]*ebpf.ProgramSpec{"test": {Name: "test", Instructions: p}},
	}
}

func TestRemove(t *testing.T) {
	one, two := asm.Mov.Imm(asm.R0, 1), asm.Mov.Imm(asm.R0, 2)
	exit := asm.Return()
	unknown := asm.LoadMem(asm.R3, asm.R1, 0, asm.Word)
	ja := func(n int16) asm.Instruction {
		ins := asm.Ja.Label("")
		ins.Offset = n
		return ins
	}
	word := setting(asm.R2, 4)
	call := asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoCall, Constant: -1}
	for name, c := range map[string]struct{ given, want asm.Instructions }{
		"taken": {
			program(word, jump(asm.JEq, asm.R2, 7, 2), one, exit, two, exit), program(word, two, exit)},
		"not taken": {
			program(word, jump(asm.JEq, asm.R2, 8, 2), one, exit, two, exit), program(word, one, exit)},
		"a bit": {
			program(word, asm.And.Imm32(asm.R2, 4), jump(asm.JNE, asm.R2, 0, 1), one, exit),
			program(word, asm.And.Imm32(asm.R2, 4), exit)},
		"unknown": {
			program(unknown, jump(asm.JEq, asm.R3, 8, 2), one, exit, two, exit),
			program(unknown, jump(asm.JEq, asm.R3, 8, 2), one, exit, two, exit)},
		"known by a comparison": {
			program(unknown, jump(asm.JEq, asm.R3, 8, 1), exit, jump(asm.JNE, asm.R3, 8, 1), one, exit),
			program(unknown, jump(asm.JEq, asm.R3, 8, 1), exit, one, exit)},
		"two paths, two values": {
			program(unknown, word, jump(asm.JEq, asm.R3, 0, 1), asm.Mov.Imm(asm.R2, 9), jump(asm.JEq, asm.R2, 7, 1),
				one, exit),
			program(unknown, word, jump(asm.JEq, asm.R3, 0, 1), asm.Mov.Imm(asm.R2, 9), jump(asm.JEq, asm.R2, 7, 1),
				one, exit)},
		"a shorter jump": {
			program(word, unknown, jump(asm.JEq, asm.R3, 1, 3), jump(asm.JEq, asm.R2, 7, 1), two, one, exit),
			program(word, unknown, jump(asm.JEq, asm.R3, 1, 1), one, exit)},
		"a loop": {
			program(word, unknown, jump(asm.JEq, asm.R2, 7, 1), two, jump(asm.JEq, asm.R3, 1, -3), exit),
			program(word, unknown, jump(asm.JEq, asm.R3, 1, -1), exit)},
		"after a call": {
			program(word, asm.FnKtimeGetNs.Call(), jump(asm.JEq, asm.R2, 7, 1), one, exit),
			program(word, asm.FnKtimeGetNs.Call(), jump(asm.JEq, asm.R2, 7, 1), one, exit)},
		"a jump to the next": {program(ja(1), two, one, exit), program(one, exit)},
		"arguments": {
			program(word, call.WithReference("f"), exit, jump(asm.JEq, asm.R2, 7, 1).WithSymbol("f"), one, exit),
			program(word, call.WithReference("f"), exit, ja(0).WithSymbol("f"), exit)},
		"a function that nobody calls": {
			program(word, jump(asm.JEq, asm.R2, 7, 1), call.WithReference("f"), exit, one.WithSymbol("f"), exit),
			program(word, exit)},
	} {
		t.Run(name, func(t *testing.T) {
			given := slices.Clone(c.given)
			spec := specOf(given, []byte{1, 2, 3, 4, 7, 0, 0, 0}, unix.BPF_F_RDONLY_PROG)
			if err := Remove(spec); err != nil {
				t.Fatal(err)
			}
			if got, want := disassemble(spec.Programs["test"].Instructions), disassemble(c.want); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
			if disassemble(given) != disassemble(c.given) {
				t.Error("the instructions that were given have changed")
			}
		})
	}
}

// TestVariables: a variable's value is used, and not the bytes of the object's section in its place.
func TestVariables(t *testing.T) {
	p := program(setting(asm.R2, 4), jump(asm.JEq, asm.R2, 7, 1), asm.Mov.Imm(asm.R0, 1), asm.Return())
	spec := specOf(p, make([]byte, 8), unix.BPF_F_RDONLY_PROG)
	spec.Variables = map[string]*ebpf.VariableSpec{
		"mode": {Name: "mode", SectionName: ".rodata", Offset: 4, Value: []byte{7, 0, 0, 0}},
	}
	if err := Remove(spec); err != nil {
		t.Fatal(err)
	}
	if n := len(spec.Programs["test"].Instructions); n != 3 {
		t.Errorf("%d instructions, want 3", n)
	}
}

// TestWritableStays: a section that a program can write has no constants.
func TestWritableStays(t *testing.T) {
	p := program(setting(asm.R2, 4), jump(asm.JEq, asm.R2, 0, 1), asm.Mov.Imm(asm.R0, 1), asm.Return())
	spec := specOf(p, make([]byte, 8), 0)
	if err := Remove(spec); err != nil {
		t.Fatal(err)
	}
	if n := len(spec.Programs["test"].Instructions); n != len(p) {
		t.Errorf("%d instructions, want %d", n, len(p))
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		given asm.Instructions
		want  string
	}{
		"label":   {program(asm.JEq.Imm(asm.R0, 0, "there"), asm.Return().WithSymbol("there")), errLabel.Error()},
		"outside": {program(jump(asm.JEq, asm.R0, 0, 5), asm.Return()), "leads out of the program"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Remove(specOf(c.given, nil, 0))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if name == "label" && !errors.Is(err, errLabel) {
				t.Errorf("%v is not errLabel", err)
			}
		})
	}
}

// TestArithmetic compares the widths of operations and comparisons with the instruction set (RFC 9669 section 4).
func TestArithmetic(t *testing.T) {
	const top = 0xffff_ffff_8000_0000
	for _, c := range []struct {
		op   asm.ALUOp
		l, r uint64
		wide bool
		want uint64
	}{
		{asm.Add, 0xffff_ffff, 1, true, 0x1_0000_0000}, {asm.Add, 0xffff_ffff, 1, false, 0},
		{asm.Sub, 0, 1, false, 0xffff_ffff}, {asm.Mul, 1 << 31, 2, false, 0},
		{asm.ArSh, top, 4, true, 0xffff_ffff_f800_0000}, {asm.ArSh, top, 4, false, 0xf800_0000},
		{asm.RSh, top, 4, false, 0x0800_0000}, {asm.LSh, 1, 33, false, 2}, {asm.LSh, 1, 33, true, 1 << 33},
		{asm.And, top, 0xff00_0000, false, 0x8000_0000}, {asm.Or, 1, 2, true, 3}, {asm.Xor, 3, 1, true, 2},
	} {
		state := registers{asm.R1: constant(c.l), asm.R2: constant(c.r)}
		ins := c.op.Reg(asm.R1, asm.R2)
		if !c.wide {
			ins = c.op.Reg32(asm.R1, asm.R2)
		}
		state.apply(&ins, nil)
		if got := state[asm.R1]; got != constant(c.want) {
			t.Errorf("%v with %#x and %#x: %#x, want %#x", ins, c.l, c.r, got.bits, c.want)
		}
	}
	for _, c := range []struct {
		op   asm.JumpOp
		l    uint64
		r    int32
		wide bool
		want outcome
	}{
		{asm.JSLT, top, 0, true, jumps}, {asm.JLT, top, 0, true, falls}, {asm.JSGT, 0x8000_0000, 0, true, jumps},
		{asm.JSGT, 0x8000_0000, 0, false, falls}, {asm.JEq, 0x1_0000_0001, 1, false, jumps},
		{asm.JEq, 0x1_0000_0001, 1, true, falls}, {asm.JGT, 0xffff_ffff, 1, false, jumps},
		{asm.JEq, 0xffff_ffff, -1, false, jumps}, {asm.JSet, 6, 2, true, jumps}, {asm.JSet, 6, 1, true, falls},
		{asm.JLE, 2, 2, true, jumps}, {asm.JGE, 2, 3, true, falls}, {asm.JSLE, 2, 2, true, jumps},
		{asm.JSGE, 1, 2, true, falls},
		{asm.JNE, 2, 2, true, falls},
	} {
		ins := c.op.Imm(asm.R1, c.r, "")
		if !c.wide {
			ins = c.op.Imm32(asm.R1, c.r, "")
		}
		if got := decideJump(&ins, &registers{asm.R1: constant(c.l)}); got != c.want {
			t.Errorf("%v with %#x: %d, want %d", ins, c.l, got, c.want)
		}
	}
}
