// SPDX-License-Identifier: Apache-2.0

package libxdp

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Target is a dispatcher that programs are loaded for.
type Target struct{ dispatcher *dispatcher }

// TargetOf returns the dispatcher on an interface, or a new one that is not attached where the interface has none. The
// kernel compares a program with the function that it replaces when it loads the program, and rejects one that the
// dispatcher cannot run. Errors: ErrForeign, ErrVersion, ErrUnsupported.
func TargetOf(index int) (*Target, error) {
	n, err := openNIC(index)
	if err != nil {
		return nil, err
	}
	defer n.close()
	id, _, err := n.attached()
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return nil, err
	}
	if id != 0 {
		d, err := describe(id)
		if err != nil {
			return nil, err
		}
		return &Target{d}, nil
	}
	like := config{version: oldestVersion, frags: true, slots: make([]slot, 1)}
	d, err := like.load(ebpf.AttachXDP)
	if err != nil {
		return nil, err
	}
	return &Target{d}, nil
}

// Close releases the dispatcher.
func (t *Target) Close() { t.dispatcher.close() }

// Prepare prepares an XDP program for loading into a slot of the dispatcher, which must stay open until then. The
// program's flag for multi-buffer frames goes into the dispatcher's configuration, see New.
func (t *Target) Prepare(spec *ebpf.ProgramSpec) {
	spec.Type, spec.AttachType, spec.Flags = ebpf.Extension, ebpf.AttachNone, spec.Flags&^frags
	spec.AttachTo, spec.AttachTarget = slotName(0), t.dispatcher.program
}

// Pass loads a program for a dispatcher that passes everything.
func (t *Target) Pass() (*ebpf.Program, error) {
	spec, err := loadV2()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded dispatcher: %w", err)
	}
	pass := spec.Programs[PassName]
	t.Prepare(pass)
	program, err := ebpf.NewProgram(pass)
	if err != nil {
		return nil, LoadError(err)
	}
	return program, nil
}

// changesData is part of the verifier's message about a program that may change packet data, where the replaced
// function does not.
const changesData = "changes packet data"

// LoadError returns why the kernel rejected a program for a dispatcher. It wraps ErrUnsupported.
func LoadError(err error) error {
	if refusal := (*ebpf.VerifierError)(nil); errors.As(err, &refusal) {
		if slices.ContainsFunc(refusal.Log, func(line string) bool { return strings.Contains(line, changesData) }) {
			return fmt.Errorf(
				"%w: this kernel lets no program in that changes packets, for the functions of this libxdp's dispatcher do not: those of 1.5.5 and newer do", ErrUnsupported)
		}
		return fmt.Errorf("%w: the verifier refused it: %w", ErrUnsupported, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: this kernel refuses programs that replace functions of others (%v)", ErrUnsupported, err)
	}
	return fmt.Errorf("%w: %w", ErrUnsupported, err)
}
