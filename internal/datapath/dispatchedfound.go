// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/datapath/libxdp"
)

// listDispatched looks for what is attached in libxdp's dispatchers on interfaces: a program of one of our sets, or
// one that stood in for it when a process was killed.
func (f *found) listDispatched(sets []uint64, ports []port) error {
	ids, err := f.programsOf(sets)
	if err != nil || len(ids) == 0 {
		return err
	}
	for _, p := range ports {
		all, generic, err := libxdp.Components(p.index)
		if errors.Is(err, libxdp.ErrLocked) {
			return err
		}
		for _, c := range all {
			if err != nil || !among(ids)(c) {
				continue
			}
			place, err := libxdp.Open(p.index, generic)
			if err != nil {
				return err
			}
			place.Remember(ids...)
			w := nativeDispatched
			if generic {
				w = genericDispatched
			}
			f.attached = append(f.attached, attached{leftover{&dispatched{place: place, id: c.ID}, w, p.index}, c.ID})
		}
	}
	return nil
}

// programsOf lists the numbers of the programs of sets.
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
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// clearDispatched takes the programs of all sets out of libxdp's dispatchers, and removes what is left of dispatchers that
// had them or were to.
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
	err = removeDispatched(k.interfaces(), among(ids))
	for _, p := range k.interfaces() {
		err = errors.Join(err, libxdp.Sweep(p.index, ids...))
	}
	return err
}
