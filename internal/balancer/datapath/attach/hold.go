// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Hold keeps a program on an interface.
type Hold interface {
	// Update replaces the program atomically.
	Update(*ebpf.Program) error
	// Close detaches the program.
	Close() error
}

// Removable is a Hold whose program other programs can remove, because it is not attached by a link of this process.
type Removable interface {
	Hold
	// Running reports whether the program is still attached. It assumes so where the kernel cannot be asked, and where
	// the interface was deleted.
	Running() bool
	// PutBack attaches the program again.
	PutBack(*ebpf.Program, WithClsact) error
}

// CloseAll detaches programs from their interfaces.
func CloseAll(holds []Hold) (err error) {
	for _, h := range holds {
		err = errors.Join(err, h.Close())
	}
	return err
}

// SwapAll replaces programs by others. If that fails on one interface, those that have the new program get the old one
// again.
func SwapAll(holds []Hold, ports []Port, to, from []*ebpf.Program) error {
	for i, h := range holds {
		err := h.Update(to[i])
		if err == nil {
			continue
		}
		err = fmt.Errorf("swapping the program on %s (the old one goes on): %w", ports[i].Name, err)
		for back := range i {
			if failed := holds[back].Update(from[back]); failed != nil {
				err = errors.Join(err, fmt.Errorf("swapping back the program on %s (it has the new one now): %v",
					ports[back].Name,
					failed))
			}
		}
		return err
	}
	return nil
}
