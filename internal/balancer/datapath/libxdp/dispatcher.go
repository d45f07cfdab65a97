// SPDX-License-Identifier: Apache-2.0

package libxdp

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// programName is the name of a dispatcher's program, and mapSection the section of its configuration.
const (
	programName = "xdp_dispatcher"
	mapSection  = ".rodata"
	// PassName is the name of the program of Pass.
	PassName = "jeoul_pass"
)

// dispatcher is a dispatcher that is attached, or is to be.
type dispatcher struct {
	id         ebpf.ProgramID
	program    *ebpf.Program
	config     config
	components []Component
	// links keep the components in their slots until they are pinned.
	links []link.Link
	// rest are the other open handles.
	rest []interface{ Close() error }
}

// close closes its handles; pinned and attached programs stay.
func (d *dispatcher) close() {
	if d == nil {
		return
	}
	for _, l := range d.links {
		l.Close()
	}
	for _, c := range d.rest {
		c.Close()
	}
}

// describe opens a program if it is a dispatcher, with its configuration. Errors: ErrForeign, ErrVersion.
func describe(id ebpf.ProgramID) (d *dispatcher, err error) {
	d = &dispatcher{id: id}
	defer func() {
		if err != nil {
			d.close()
			d = nil
		}
	}()
	if d.program, err = ebpf.NewProgramFromID(id); err != nil {
		return d, fmt.Errorf("opening the program %d: %w", id, err)
	}
	d.rest = append(d.rest, d.program)
	info, err := d.program.Info()
	if err != nil {
		return d, fmt.Errorf("asking the kernel about program %d: %w", id, err)
	}
	maps, _ := info.MapIDs()
	if info.Name != programName || len(maps) != 1 {
		return d, fmt.Errorf("%w: program %q with %d maps", ErrForeign, info.Name, len(maps))
	}
	m, err := ebpf.NewMapFromID(maps[0])
	if err != nil {
		return d, fmt.Errorf("opening the dispatcher's configuration: %w", err)
	}
	defer m.Close()
	data, err := m.LookupBytes(uint32(0))
	if err != nil {
		return d, fmt.Errorf("reading the dispatcher's configuration: %w", err)
	}
	d.config, err = decode(data)
	return d, err
}

// read opens the dispatcher on an interface with its components; nil: the interface has no program. The caller holds
// the lock. Errors: ErrForeign, ErrVersion.
func read(n *nic) (d *dispatcher, generic bool, err error) {
	id, generic, err := n.attached()
	if err != nil || id == 0 {
		return nil, false, err
	}
	if d, err = describe(id); err != nil {
		return nil, generic, err
	}
	dir := filepath.Join(root(), dirName(n.index, id))
	for i, s := range d.config.slots {
		c, err := open(filepath.Join(dir, programPin(i)), s)
		if err != nil {
			d.close()
			return nil, generic, fmt.Errorf("%w: it is not pinned where libxdp pins it: %v", ErrForeign, err)
		}
		d.components = append(d.components, c)
		d.rest = append(d.rest, c.program)
	}
	return d, generic, nil
}

// make loads a dispatcher with components, in their order. It is not attached.
func (c config) make(components []Component) (*dispatcher, error) {
	if len(components) > Slots {
		return nil, fmt.Errorf("%w: there are %d", ErrFull, Slots)
	}
	c.slots, c.frags = nil, true
	for _, one := range components {
		c.slots = append(c.slots, one.slot)
		c.frags = c.frags && one.slot.flags&frags != 0
	}
	var errs []error
	// A program can replace functions only of programs of the attach type that it was first loaded for, and some
	// loaders set none.
	for _, as := range []ebpf.AttachType{ebpf.AttachXDP, ebpf.AttachNone} {
		d, err := c.load(as)
		if err == nil {
			if err = d.fill(components); err == nil {
				return d, nil
			}
			d.close()
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// load loads a dispatcher with empty slots.
func (c *config) load(as ebpf.AttachType) (*dispatcher, error) {
	spec, err := c.spec()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded dispatcher: %w", err)
	}
	delete(spec.Programs, PassName)
	program, m := spec.Programs[programName], spec.Maps[mapSection]
	program.AttachType, program.Flags = as, 0
	if c.frags {
		program.Flags = frags
	}
	m.Contents = []ebpf.MapKV{{Key: uint32(0), Value: c.encode()}}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("%w: loading a dispatcher: %w", ErrUnsupported, err)
	}
	d := &dispatcher{config: *c, program: collection.DetachProgram(programName)}
	collection.Close()
	d.rest = append(d.rest, d.program)
	info, err := d.program.Info()
	if err != nil {
		d.close()
		return nil, fmt.Errorf("asking for the dispatcher's number: %w", err)
	}
	d.id, _ = info.ID()
	return d, nil
}

// spec returns the dispatcher of the version.
func (c *config) spec() (*ebpf.CollectionSpec, error) {
	if c.version == 2 {
		return loadV2()
	}
	return loadV3()
}

// fill attaches components to the slots.
func (d *dispatcher) fill(components []Component) error {
	for i, c := range components {
		l, err := link.AttachFreplace(d.program, slotName(i), c.program)
		if err != nil {
			return fmt.Errorf("%w: putting %s (program %d) into a slot of a new dispatcher: %w", ErrUnsupported,
				c.Name, c.ID, err)
		}
		d.links = append(d.links, l)
	}
	d.components = components
	return nil
}
