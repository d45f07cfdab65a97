// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Hold keeps a program on an interface.
type Hold interface {
	// Update puts another program in its place, in one step.
	Update(*ebpf.Program) error
	// Close takes the program off the interface.
	Close() error
}

// CloseAll takes programs off their interfaces.
func CloseAll(holds []Hold) (err error) {
	for _, h := range holds {
		err = errors.Join(err, h.Close())
	}
	return err
}

// SwapAll puts programs in the place of those before. If one interface refuses, those
// that have the new program get the old one again.
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
