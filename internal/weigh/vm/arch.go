// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"debug/elf"
	"fmt"
	"runtime"
)

// Arch is the architecture of a machine, by its name in Debian and Go.
type Arch string

// The architectures that machines have.
const (
	AMD64 Arch = "amd64"
	ARM64 Arch = "arm64"
)

// Own is the architecture of this machine.
func Own() Arch { return Arch(runtime.GOARCH) }

// qemuMachine describes a machine of an architecture to QEMU.
type qemuMachine struct {
	// qemu is the program, in the Debian package of that name.
	qemu, debian string
	machine      []string
	// cpu is the processor that is emulated, console its kernel's name for the first serial port.
	cpu, console string
	elf          elf.Machine
}

// boards are the machines. The processor of arm64 is that of Graviton2; it does not sign pointers, which QEMU would
// emulate slowly.
var boards = map[Arch]qemuMachine{
	AMD64: {qemu: "qemu-system-x86_64", debian: "qemu-system-x86", cpu: "max", console: "ttyS0", elf: elf.EM_X86_64},
	ARM64: {qemu: "qemu-system-aarch64", debian: "qemu-system-arm", machine: []string{"-machine", "virt,gic-version=3"},
		cpu: "neoverse-n1", console: "ttyAMA0", elf: elf.EM_AARCH64},
}

// qemuMachine returns the machine of an architecture; "" is this machine's own.
func (a Arch) qemuMachine() qemuMachine {
	if a == "" {
		a = Own()
	}
	return boards[a]
}

// isOwn reports whether a machine of the architecture runs programs of this machine.
func (a Arch) isOwn() bool { return a == "" || a == Own() }

// Check returns an error if machines do not have the architecture. The error wraps ErrArch.
func (a Arch) Check() error {
	if _, known := boards[a]; !known {
		return fmt.Errorf("%w: a virtual machine is amd64 or arm64, and not %s", ErrArch, a)
	}
	return nil
}

// CheckProgram returns an error if a program does not run in a machine of the architecture. The error wraps ErrArch
// where the program is of another architecture.
func (a Arch) CheckProgram(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	defer f.Close()
	if f.Machine == a.qemuMachine().elf {
		return nil
	}
	is := Arch(f.Machine.String())
	for other, board := range boards {
		if f.Machine == board.elf {
			is = other
		}
	}
	return fmt.Errorf("%w: %s is of %s, and the virtual machine %s: build one by `make build ARCH=%s`", ErrArch,
		path, is, a, a)
}
