// SPDX-License-Identifier: Apache-2.0

// Package deadcode removes the instructions from eBPF programs that their constants make unreachable.
//
// A program for many configurations reads its configuration from constants (`const volatile` in C, .rodata in the
// object) and branches on them. The kernel removes the branches that are never taken, but only after it has verified
// the program, and one run of instructions at a time: each removal moves all that follows and adjusts every jump. For a
// program of 12,000 instructions that is a fourth of the time that loading takes. Removing them all at once beforehand
// leaves the kernel nothing to remove; what it ends with is the same program, instruction for instruction.
//
// The analysis is a conditional constant propagation (Wegman and Zadeck, "Constant propagation with conditional
// branches", TOPLAS 13(2), 1991) over the registers alone. It knows less than the verifier, which follows the stack and
// bounds as well: the kernel removes the remaining unreachable code. Cilium's loader finds unreachable blocks in a
// similar way, to omit maps; it is not published as a library.
package deadcode

import (
	"bytes"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Remove removes the instructions of each program in spec that are unreachable with the present contents of its
// read-only sections and variables. They must not change afterwards, and no such section may be replaced when the
// collection is loaded.
func Remove(spec *ebpf.CollectionSpec) error {
	constants := readOnly(spec)
	for name, program := range spec.Programs {
		live, err := reachable(program.Instructions, constants)
		if err != nil {
			return fmt.Errorf("removing unreachable instructions of the eBPF program %s: %w", name, err)
		}
		program.Instructions = live
	}
	return nil
}

// readOnly returns the contents of the sections that nothing can write once they are loaded, by name.
func readOnly(spec *ebpf.CollectionSpec) map[string][]byte {
	sections := map[string][]byte{}
	for name, m := range spec.Maps {
		if m.Flags&unix.BPF_F_RDONLY_PROG == 0 || len(m.Contents) != 1 {
			continue
		}
		if contents, ok := m.Contents[0].Value.([]byte); ok {
			sections[name] = bytes.Clone(contents)
		}
	}
	for _, variable := range spec.Variables {
		// A variable's value takes its place in the section when the collection is loaded.
		if section := sections[variable.SectionName]; uint64(variable.Offset) <= uint64(len(section)) {
			copy(section[variable.Offset:], variable.Value)
		}
	}
	return sections
}

// reachable returns the instructions of program that can run, with jumps adjusted. It does not modify program.
func reachable(program asm.Instructions, constants map[string][]byte) (asm.Instructions, error) {
	graph, err := newGraph(program)
	if err != nil {
		return nil, err
	}
	outcomes := newAnalysis(graph, constants).run()
	return graph.rewrite(outcomes), nil
}
