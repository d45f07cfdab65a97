// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/jeoul/jeoul/internal/datapath/pins"
)

// keptWays are those that can outlive a process.
var keptWays = []way{nativeXDP, genericXDP, tcx, tcFilter}

// attachedBy is what is attached by one way: holds[i] keeps the program with programs[i] as
// its number on the i-th interface; a nil hold: nothing is.
type attachedBy struct {
	way      way
	holds    []hold
	programs []ebpf.ProgramID
}

// findAttached finds the newest set of which a program is attached.
func (f *found) findAttached(sets []uint64) error {
	var all []attachedBy
	for _, w := range keptWays {
		a, err := f.attachedBy(w)
		if err != nil {
			closeHolds(all)
			return err
		}
		all = append(all, a)
	}
	for _, set := range slices.Backward(sets) {
		programs, ids, err := f.openPrograms(set)
		if err != nil {
			closeHolds(all)
			return err
		}
		at := slices.IndexFunc(all, func(a attachedBy) bool { return a.has(ids) })
		if at < 0 {
			closePrograms(programs)
			continue
		}
		f.set, f.way, f.holds, f.programs = set, all[at].way, all[at].holds, programs
		for i, a := range all {
			if i != at {
				f.others = append(f.others, a.there()...)
			}
		}
		if len(f.holds) != len(f.ports) || slices.Contains(f.holds, nil) || len(programs) != len(f.ports) {
			f.holds = all[at].there()
			return &unusable{"it is not attached to all of the interfaces"}
		}
		return nil
	}
	closeHolds(all)
	return &unusable{"none of its programs is attached to the interfaces"}
}

// has says whether the program with one of these numbers is attached to its interface.
func (a attachedBy) has(ids []ebpf.ProgramID) bool {
	for i, h := range a.holds {
		if h != nil && i < len(ids) && a.programs[i] == ids[i] {
			return true
		}
	}
	return false
}

// there returns the holds without gaps.
func (a attachedBy) there() []hold {
	return slices.DeleteFunc(slices.Clone(a.holds), func(h hold) bool { return h == nil })
}

func closeHolds(all []attachedBy) {
	for _, a := range all {
		leaveAll(a.there())
	}
}

// leaveAll lets go of what goes on.
func leaveAll(holds []hold) {
	for _, h := range holds {
		if l, is := h.(leaver); is {
			_ = l.Leave()
		}
	}
}

func closePrograms(programs []*ebpf.Program) {
	for _, p := range programs {
		p.Close()
	}
}

// attachedBy looks for what is attached by a way.
func (f *found) attachedBy(w way) (attachedBy, error) {
	a := attachedBy{way: w, holds: make([]hold, len(f.ports)), programs: make([]ebpf.ProgramID, len(f.ports))}
	for i, p := range f.ports {
		var err error
		if w == tcFilter {
			a.holds[i], a.programs[i], err = filterOn(p)
		} else {
			a.holds[i], a.programs[i], err = linkAt(f.store.Path("", w.linkPin(i)))
		}
		if err != nil {
			leaveAll(a.there())
			return a, err
		}
	}
	return a, nil
}

// linkAt opens a pinned link, if there is one; the hold is nil otherwise.
func linkAt(path string) (hold, ebpf.ProgramID, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s is no link of ours: %w", path, err)
	}
	info, err := l.Info()
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("asking for the program of %s: %w", path, err), l.Close())
	}
	return pinnedLink{l}, info.Program, nil
}

// filterOn returns our filter on an interface; the hold is nil where there is none.
func filterOn(p port) (hold, ebpf.ProgramID, error) {
	f, err := openFilter(p)
	if err != nil {
		return nil, 0, err
	}
	ours, err := f.ours()
	if err != nil || len(ours) == 0 {
		return nil, 0, errors.Join(err, f.Leave())
	}
	f.name = ours[0].Name
	return f, ebpf.ProgramID(ours[0].Id), nil
}

// openPrograms opens the programs of a set, and returns their numbers.
func (f *found) openPrograms(set uint64) (programs []*ebpf.Program, ids []ebpf.ProgramID, err error) {
	for i := range f.ports {
		path := f.store.Path(pins.Set(set), programPin(i))
		p, err := ebpf.LoadPinnedProgram(path, nil)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			closePrograms(programs)
			return nil, nil, fmt.Errorf("%s is no program of ours: %w", path, err)
		}
		programs = append(programs, p)
		info, err := p.Info()
		if err != nil {
			closePrograms(programs)
			return nil, nil, fmt.Errorf("asking for the number of %s: %w", path, err)
		}
		id, _ := info.ID()
		ids = append(ids, id)
	}
	return programs, ids, nil
}

// openMemory opens the pinned memory of a generation. The caller unmaps and closes it.
func openMemory(path string) (*memory, error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return nil, fmt.Errorf("%s is no memory of a generation: %w", path, err)
	}
	if m.Type() != ebpf.Array || m.ValueSize() < cacheLine {
		return nil, errors.Join(fmt.Errorf("%s is no memory of a generation, but %s", path, m), m.Close())
	}
	all, err := mapped(m)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &memory{m: m, storage: all}, nil
}

// openShared opens the shared maps of a set.
func (f *found) openShared(set uint64) (*shared, error) {
	spec, err := xdpProgram.load()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	s := &shared{secret: f.snapshot.Secret}
	for _, at := range s.places() {
		path, like := f.store.Path(pins.Set(set), at.name), spec.Maps[at.name]
		m, err := ebpf.LoadPinnedMap(path, nil)
		if err != nil {
			s.closeUnless(nil)
			return nil, fmt.Errorf("%s is no map of ours: %w", path, err)
		}
		if slices.Contains(f.differ, at.name) {
			if *at.of, err = f.remake(at.name, m, like); err != nil {
				s.closeUnless(nil)
				return nil, err
			}
			continue
		}
		*at.of = m
		if m.Type() != like.Type || m.KeySize() != like.KeySize || m.ValueSize() != like.ValueSize {
			s.closeUnless(nil)
			return nil, fmt.Errorf("%s is no map of ours: it is %s with keys of %d bytes and values of %d, and not %s with %d and %d",
				path, m.Type(), m.KeySize(), m.ValueSize(), like.Type, like.KeySize, like.ValueSize)
		}
	}
	if err := errors.Join(s.mapVectors(nil), s.mapFlows(nil), s.untranslated.restoreLists()); err != nil {
		s.closeUnless(nil)
		return nil, err
	}
	return s, nil
}

// close lets go of what was found, which goes on.
func (f *found) close() {
	leaveAll(f.holds)
	leaveAll(f.others)
	closePrograms(f.programs)
	if f.memory != nil {
		f.memory.storage.unmap()
		f.memory.m.Close()
	}
	f.shared.closeUnless(nil)
	f.former.close()
}
