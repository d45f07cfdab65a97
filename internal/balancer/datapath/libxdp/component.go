// SPDX-License-Identifier: Apache-2.0

package libxdp

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
)

// Component is a program that a dispatcher runs.
type Component struct {
	// Name is the program's name in the kernel, of at most 15 bytes, and ID its id.
	Name string
	ID   ebpf.ProgramID
	// Priority is its run priority: the lowest runs first.
	Priority uint32

	slot    slot
	tag     string
	loaded  time.Duration
	program *ebpf.Program
}

// New describes a program for a dispatcher, which must have been loaded for one: see Target. The next program is called
// for packets that it passes. It must support multi-buffer frames (SEC("xdp.frags")). The caller keeps the program.
func New(program *ebpf.Program, priority uint32) (Component, error) {
	const xdpPass = 2
	c := Component{Priority: priority, program: program, slot: slot{actions: 1 << xdpPass, priority: priority,
		flags: frags}}
	return c, c.describe()
}

// describe reads the program's name and id from the kernel.
func (c *Component) describe() error {
	info, err := c.program.Info()
	if err != nil {
		return fmt.Errorf("asking for a program's name: %w", err)
	}
	c.Name, c.tag = info.Name, info.Tag
	c.ID, _ = info.ID()
	c.loaded, _ = info.LoadTime()
	return nil
}

// sorted returns components in the order in which they run: by priority, and then by the rules of the protocol, which
// are the same for all its users ("Loading and attaching component programs").
func sorted(components []Component) []Component {
	return slices.SortedStableFunc(slices.Values(components), func(a, b Component) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.tag, b.tag), cmp.Compare(a.loaded, b.loaded))
	})
}

// open opens the pinned program of a slot.
func open(path string, s slot) (Component, error) {
	program, err := ebpf.LoadPinnedProgram(path, nil)
	if err != nil {
		return Component{}, fmt.Errorf("opening %s: %w", path, err)
	}
	c := Component{Priority: s.priority, slot: s, program: program}
	if err := c.describe(); err != nil {
		return Component{}, errors.Join(fmt.Errorf("%s: %w", path, err), program.Close())
	}
	return c, nil
}
