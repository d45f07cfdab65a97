// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
)

// listDispatched looks for what is attached in libxdp's dispatchers on interfaces: a program of one of our sets, or
// one that stood in for it when a process was killed. What that process has pinned for a dispatcher that it did not
// attach any more is removed: the next change need not be of that interface.
func (f *found) listDispatched(sets []uint64, ports []attach.Port) error {
	ids, err := f.programsOf(sets)
	if err != nil || len(ids) == 0 {
		return err
	}
	for _, p := range ports {
		// Elsewhere what cannot be removed costs memory, and is tried again by the next process.
		if err := libxdp.Sweep(p.Index, ids...); errors.Is(err, libxdp.ErrLocked) {
			return err
		}
		all, generic, err := libxdp.Components(p.Index)
		if errors.Is(err, libxdp.ErrLocked) {
			return err
		}
		for _, c := range all {
			if err != nil || !attach.Among(ids)(c) {
				continue
			}
			h, w, err := attach.OpenDispatched(p, generic, c.ID, ids)
			if err != nil {
				return err
			}
			f.attached = append(f.attached, attached{leftover{h, w, p.Index}, c.ID})
		}
	}
	return nil
}

// passPin names the pin, in a set, of what stands in for our programs in libxdp's dispatchers while the hook changes.
const passPin = "pass"

// pinPass pins what is to stand in for our programs, with the set of a generation that is to come into use: by its
// number a next process tells what a kill leaves of dispatchers that had it.
func (k *keeper) pinPass(g *loader.Programs, pass *ebpf.Program) error {
	if k == nil {
		return nil
	}
	path := k.Store.Path(pins.Set(g.Set), passPin)
	if err := (programPinner{pass}).PinCopy(path); err != nil {
		return fmt.Errorf("pinning %s, for libxdp's dispatchers while the hook changes: %w", path, err)
	}
	return nil
}

// passOf returns the number of what stood in for our programs, 0 where nothing did.
func (f *found) passOf(set uint64) (ebpf.ProgramID, error) {
	path := f.store.Path(pins.Set(set), passPin)
	p, err := ebpf.LoadPinnedProgram(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%s is no program of ours: %w", path, err)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return 0, fmt.Errorf("asking for the number of %s: %w", path, err)
	}
	id, _ := info.ID()
	return id, nil
}

// programsOf lists the numbers of the programs of sets, and of what stood in for them.
func (f *found) programsOf(sets []uint64) (ids []ebpf.ProgramID, err error) {
	for _, set := range sets {
		programs, numbers, err := f.openPrograms(set)
		if err != nil {
			return nil, err
		}
		closePrograms(programs)
		for _, id := range numbers {
			ids = append(ids, id)
		}
		pass, err := f.passOf(set)
		if err != nil {
			return nil, err
		}
		if pass != 0 {
			ids = append(ids, pass)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// clearDispatched takes the programs of all sets out of libxdp's dispatchers, and removes what is left of dispatchers
// that had them or were to.
func (k *keeper) clearDispatched() error {
	sets, err := k.Store.Sets()
	if err != nil || len(sets) == 0 {
		return err
	}
	ids, err := (&found{store: k.Store}).programsOf(sets)
	if err != nil {
		// What is not ours, or cannot be read, is in no dispatcher by our doing.
		return nil
	}
	err = attach.RemoveDispatched(k.interfaces(), attach.Among(ids))
	for _, p := range k.interfaces() {
		err = errors.Join(err, libxdp.Sweep(p.Index, ids...))
	}
	return err
}
