// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
)

// OpenPrograms opens the programs of a set, and returns them and their ids by the index of their interface.
func OpenPrograms(store *pins.Store, set uint64) (map[int]*ebpf.Program, map[int]ebpf.ProgramID, error) {
	names, err := store.Objects(set)
	if err != nil {
		return nil, nil, err
	}
	programs, ids := map[int]*ebpf.Program{}, map[int]ebpf.ProgramID{}
	for _, name := range names {
		digits, ok := strings.CutPrefix(name, programPrefix)
		index, err := strconv.Atoi(digits)
		if !ok || err != nil {
			continue
		}
		path := store.Path(pins.Set(set), name)
		p, err := ebpf.LoadPinnedProgram(path, nil)
		if err != nil {
			ClosePrograms(programs)
			return nil, nil, fmt.Errorf("%s is no program of ours: %w", path, err)
		}
		programs[index] = p
		info, err := p.Info()
		if err != nil {
			ClosePrograms(programs)
			return nil, nil, fmt.Errorf("asking for the number of %s: %w", path, err)
		}
		ids[index], _ = info.ID()
	}
	return programs, ids, nil
}

// ClosePrograms closes programs that OpenPrograms has opened.
func ClosePrograms(programs map[int]*ebpf.Program) {
	for _, p := range programs {
		p.Close()
	}
}

// passPin is the name of the pin, in a set, of the program that passes packets in place of ours in libxdp's dispatchers
// while the hook changes.
const passPin = "pass"

// PinPass pins the program that passes packets in place of ours in dispatchers, in the set of the next generation. By
// the program's id, the next process finds the dispatchers of a killed process that have it.
func (k *Keeper) PinPass(g *loader.Programs, pass *ebpf.Program) error {
	if k == nil {
		return nil
	}
	path := k.Store.Path(pins.Set(g.Set), passPin)
	if err := (ProgramPinner{pass}).PinCopy(path); err != nil {
		return fmt.Errorf("pinning %s, for libxdp's dispatchers while the hook changes: %w", path, err)
	}
	return nil
}

// passOf returns the id of the program that passes packets in place of ours, 0 where there is none.
func passOf(store *pins.Store, set uint64) (ebpf.ProgramID, error) {
	path := store.Path(pins.Set(set), passPin)
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

// ProgramsOf lists the ids of the programs of sets, and of those that pass packets in place of them.
func ProgramsOf(store *pins.Store, sets []uint64) (ids []ebpf.ProgramID, err error) {
	for _, set := range sets {
		programs, numbers, err := OpenPrograms(store, set)
		if err != nil {
			return nil, err
		}
		ClosePrograms(programs)
		for _, id := range numbers {
			ids = append(ids, id)
		}
		pass, err := passOf(store, set)
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

// clearDispatched removes the programs of all sets from libxdp's dispatchers, and the leftover pins of dispatchers that
// had them or were being created with them.
func (k *Keeper) clearDispatched() error {
	sets, err := k.Store.Sets()
	if err != nil || len(sets) == 0 {
		return err
	}
	ids, err := ProgramsOf(k.Store, sets)
	if err != nil {
		// Pins that are not ours, or that cannot be read, identify no program of ours in a dispatcher.
		return nil
	}
	err = attach.RemoveDispatched(k.Interfaces(), attach.AnyOf(ids))
	for _, p := range k.Interfaces() {
		err = errors.Join(err, libxdp.Sweep(p.Index, ids...))
	}
	return err
}
