// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
)

// objectPool gives data planes maps and programs that outlive them. The next data plane that asks for the same gets
// them, emptied: verifying a program takes a second of a busy machine, and emptying its maps a few milliseconds. A data
// plane that is kept on disk gets its own, as other processes open what it leaves.
type objectPool struct {
	mu    sync.Mutex
	slots []*poolSlot
}

// poolSlot has maps and programs that are lent to one data plane at a time. The slot's number is its data planes'
// secret, so that programs that are loaded with the same constants in a slot are the same.
type poolSlot struct {
	mu   sync.Mutex
	user *Datapath
	// maps are those of one spec each.
	maps map[string][]*pooledMap
	// programs are those of one key each: see keyOf.
	programs map[string]*ebpf.Collection
}

// pooledMap is a map, and the handle that a data plane has. It is free once that is closed.
type pooledMap struct {
	*ebpf.Map
	handle *ebpf.Map
}

// maxPooled bounds the size in bytes of an array that is kept for the next data plane.
const maxPooled = 16 << 20

var pool objectPool

// attachTo has a data plane take its maps and programs from the first free slot.
func (l *objectPool) attachTo(d *Datapath) {
	if d.options.Keep != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.slots, func(s *poolSlot) bool { return s.user == nil || s.user.over() })
	if at < 0 {
		at = len(l.slots)
		l.slots = append(l.slots, &poolSlot{maps: map[string][]*pooledMap{}, programs: map[string]*ebpf.Collection{}})
	}
	s := l.slots[at]
	s.user = d
	d.kernel, d.secret = loader.Kernel{NewMap: s.newMap, Load: s.load}, 0x5eed_0000_5eed*uint64(at+1)
}

// keep has a data plane that lives as long as the tests make its own maps and programs: all others find the same slots
// free then, in whatever order they run.
func (l *objectPool) keep(d *Datapath) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.slots {
		if s.user == d {
			s.user = nil
		}
	}
	d.kernel = loader.ThisKernel
}

// over reports whether the data plane has ended.
func (d *Datapath) over() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// newMap returns a free map of that spec, emptied, or makes one.
func (s *poolSlot) newMap(spec *ebpf.MapSpec) (*ebpf.Map, error) {
	if spec.Type == ebpf.Array && uint64(spec.MaxEntries)*uint64(spec.ValueSize) > maxPooled {
		return ebpf.NewMap(spec)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprint(spec.Name, spec.Type, spec.KeySize, spec.ValueSize, spec.MaxEntries, spec.Flags)
	for _, m := range s.maps[key] {
		if m.handle.FD() >= 0 {
			continue
		}
		if err := empty(m.Map); err != nil {
			return nil, fmt.Errorf("emptying %s: %v", m.Map, err)
		}
		var err error
		m.handle, err = m.Clone()
		return m.handle, err
	}
	made, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, err
	}
	handle, err := made.Clone()
	if err != nil {
		return nil, errors.Join(err, made.Close())
	}
	s.maps[key] = append(s.maps[key], &pooledMap{made, handle})
	return handle, nil
}

// owns reports whether a data plane has the map from here.
func (s *poolSlot) owns(handle *ebpf.Map) bool {
	for _, of := range s.maps {
		if slices.ContainsFunc(of, func(m *pooledMap) bool { return m.handle == handle }) {
			return true
		}
	}
	return false
}

// load returns programs that were loaded with these maps before, or loads them.
func (s *poolSlot) load(spec *ebpf.CollectionSpec, of map[string]*ebpf.Map) (*ebpf.Collection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range of {
		if !s.owns(m) {
			return loader.LoadReduced(spec, of)
		}
	}
	key, err := keyOf(spec, of)
	if err != nil {
		return nil, err
	}
	if s.programs[key] == nil {
		made, err := loader.LoadReduced(spec, of)
		if err != nil {
			return nil, err
		}
		s.programs[key] = made
	}
	return handlesOf(s.programs[key], of)
}

// keyOf tells programs apart by their constants and maps. The objects that have programs of one name, the plain and the
// traced one, differ in their maps.
func keyOf(spec *ebpf.CollectionSpec, of map[string]*ebpf.Map) (string, error) {
	h := fnv.New128a()
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		p := spec.Programs[name]
		fmt.Fprintln(h, name, p.Type, p.AttachType, len(p.Instructions))
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Variables)) {
		fmt.Fprintln(h, name, spec.Variables[name].Value)
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		m := spec.Maps[name]
		if of[name] == nil {
			fmt.Fprintln(h, name, m.MaxEntries, m.ValueSize, m.Contents)
			continue
		}
		info, err := of[name].Info()
		if err != nil {
			return "", err
		}
		id, _ := info.ID()
		fmt.Fprintln(h, name, id)
	}
	return string(h.Sum(nil)), nil
}

// handlesOf returns handles of loaded programs, and of the maps that are theirs, emptied.
func handlesOf(c *ebpf.Collection, replaced map[string]*ebpf.Map) (_ *ebpf.Collection, err error) {
	handles := &ebpf.Collection{Programs: map[string]*ebpf.Program{}, Maps: map[string]*ebpf.Map{}}
	for name, p := range c.Programs {
		if handles.Programs[name], err = p.Clone(); err != nil {
			return nil, err
		}
	}
	for name, m := range c.Maps {
		// Data of the program are constants.
		if replaced[name] == nil && !strings.HasPrefix(name, ".") {
			err = empty(m)
		}
		if err != nil {
			return nil, fmt.Errorf("emptying %s: %v", m, err)
		}
		if handles.Maps[name], err = m.Clone(); err != nil {
			return nil, err
		}
	}
	return handles, nil
}

// empty makes a map like a new one.
func empty(m *ebpf.Map) error {
	switch m.Type() {
	case ebpf.Array, ebpf.PerCPUArray:
		if m.Flags()&unix.BPF_F_MMAPABLE != 0 {
			return clearMemory(m)
		}
		return clearElements(m)
	}
	for {
		key, err := m.NextKeyBytes(nil)
		if key == nil || err != nil {
			return err
		}
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
}

// clearMemory clears an array by its memory.
func clearMemory(m *ebpf.Map) error {
	all, err := mapmem.Map(m)
	if err != nil {
		return err
	}
	defer all.Unmap()
	clear(all)
	return nil
}

// clearElements clears an array, of which each element may be a value for each CPU.
func clearElements(m *ebpf.Map) error {
	zero := make([]byte, m.ValueSize())
	var value any = zero
	if m.Type() == ebpf.PerCPUArray {
		value = slices.Repeat([][]byte{zero}, ebpf.MustPossibleCPU())
	}
	for i := range m.MaxEntries() {
		if err := m.Update(i, value, ebpf.UpdateAny); err != nil {
			return err
		}
	}
	return nil
}
