// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
)

// KeptMethods are the methods whose attachments can outlive a process.
var KeptMethods = []attach.Method{attach.NativeXDP, attach.GenericXDP, attach.NativeDispatched,
	attach.GenericDispatched, attach.TCX, attach.TCFilter}

// attached is a program on an interface, and the link or filter that keeps it attached.
type attached struct {
	attach.Leftover
	program ebpf.ProgramID
}

// findAttached finds the newest attached set: at least one of its programs is attached, and each of its interfaces has
// a program of ours by the same method. A process that is killed while it replaces them one by one leaves such a
// mixture. ports are the interfaces on which to look for filters.
func (f *Found) findAttached(sets []uint64, ports []attach.Port) error {
	if err := errors.Join(f.listAttached(ports), f.listDispatched(sets, ports)); err != nil {
		return err
	}
	anyAttached := false
	for _, set := range slices.Backward(sets) {
		programs, ids, err := keeper.OpenPrograms(f.Store, set)
		if err != nil {
			return err
		}
		for _, w := range KeptMethods {
			attached, complete := f.isAttached(w, ids)
			if anyAttached = anyAttached || attached; attached && complete {
				f.Set, f.Method, f.pinned = set, w, programs
				return nil
			}
		}
		keeper.ClosePrograms(programs)
	}
	if anyAttached {
		return &Unusable{"it is not attached to all of its interfaces"}
	}
	return &Unusable{"none of its programs is attached to an interface"}
}

// isAttached reports whether one of these programs, by the index of their interface, is attached by a method, and
// whether a program of ours is on each of the interfaces.
func (f *Found) isAttached(w attach.Method, ids map[int]ebpf.ProgramID) (any, complete bool) {
	attached := map[int]ebpf.ProgramID{}
	for _, a := range f.attached {
		if a.Method == w {
			attached[a.Index] = a.program
		}
	}
	complete = len(ids) > 0
	for index, id := range ids {
		program, ok := attached[index]
		any, complete = any || ok && program == id, complete && ok
	}
	return any, complete
}

// selectOurs separates the programs on the snapshot's interfaces from other attached ones.
func (f *Found) selectOurs() error {
	f.Ports = make([]attach.Port, len(f.Snapshot.Interfaces))
	f.Holds, f.Programs = make([]attach.Hold, len(f.Ports)), make([]*ebpf.Program, len(f.Ports))
	for i, saved := range f.Snapshot.Interfaces {
		port, err := attach.PortByIndex(saved.Index)
		if errors.Is(err, attach.ErrNoInterface) {
			return &Unusable{fmt.Sprintf("its interface %s is gone", saved.Name)}
		}
		if err != nil {
			return err
		}
		if f.Programs[i] = f.pinned[saved.Index]; f.Programs[i] == nil || len(f.pinned) != len(f.Ports) {
			return fmt.Errorf("%w: its programs are for other interfaces than it says", snapshot.ErrDamaged)
		}
		f.Ports[i] = port
	}
	for _, a := range f.attached {
		i := slices.IndexFunc(f.Ports, func(p attach.Port) bool { return p.Index == a.Index })
		if a.Method == f.Method && i >= 0 {
			f.Holds[i] = a.Hold
		} else {
			f.Others = append(f.Others, a.Leftover)
		}
	}
	return nil
}

// listAttached lists attached programs, by pinned links and by filters.
func (f *Found) listAttached(ports []attach.Port) error {
	names, err := f.Store.Links()
	if err != nil {
		return err
	}
	for _, name := range names {
		for _, w := range KeptMethods {
			digits, ok := strings.CutPrefix(name, w.LinkPrefix())
			index, err := strconv.Atoi(digits)
			if !ok || err != nil {
				continue
			}
			h, program, err := attach.OpenLink(f.Store.Path("", name))
			if err != nil {
				return err
			}
			f.attached = append(f.attached, attached{attach.Leftover{Hold: h, Method: w, Index: index}, program})
		}
	}
	for _, p := range ports {
		h, program, err := attach.FilterOn(p)
		if err != nil {
			return err
		}
		if h != nil {
			f.attached = append(f.attached,
				attached{attach.Leftover{Hold: h, Method: attach.TCFilter, Index: p.Index}, program})
		}
	}
	return nil
}

// openShared opens the shared maps of a set.
func (f *Found) openShared(set uint64) (*sharedmaps.Maps, error) {
	spec, err := loader.XDP.Load()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	s := &sharedmaps.Maps{Secret: f.Snapshot.Secret}
	for _, at := range s.Places() {
		path, like := f.Store.Path(pins.Set(set), at.Name), spec.Maps[at.Name]
		m, err := ebpf.LoadPinnedMap(path, nil)
		if errors.Is(err, os.ErrNotExist) && slices.Contains(sharedmaps.AddedMaps, at.Name) &&
			slices.Contains(f.Differ, at.Name) {
			// The build of the previous process had no such map.
			if *at.Map, err = sharedmaps.MakeLike(at.Name, like); err != nil {
				s.CloseUnless(nil)
				return nil, err
			}
			continue
		}
		if err != nil {
			s.CloseUnless(nil)
			return nil, fmt.Errorf("%s is no map of ours: %w", path, err)
		}
		if slices.Contains(f.Differ, at.Name) {
			if *at.Map, err = f.remake(at.Name, m, like); err != nil {
				s.CloseUnless(nil)
				return nil, err
			}
			continue
		}
		*at.Map = m
		if m.Type() != like.Type || m.KeySize() != like.KeySize || m.ValueSize() != like.ValueSize {
			s.CloseUnless(nil)
			return nil, fmt.Errorf(
				"%s is no map of ours: it is %s with keys of %d bytes and values of %d, and not %s with %d and %d",
				path, m.Type(), m.KeySize(), m.ValueSize(), like.Type, like.KeySize, like.ValueSize)
		}
	}
	if err := errors.Join(s.MapVectors(nil), s.MapFlows(nil), s.Prefixes.RestoreLists()); err != nil {
		s.CloseUnless(nil)
		return nil, err
	}
	return s, nil
}

// Close closes the handles of the data plane, whose programs stay attached.
func (f *Found) Close() {
	for _, a := range f.attached {
		if l, ok := a.Hold.(attach.Releaser); ok {
			_ = l.Release()
		}
	}
	keeper.ClosePrograms(f.pinned)
	_ = f.Sockets.Release()
	f.Sockets.CloseUnless(nil)
	if f.Memory != nil {
		f.Memory.Storage.Unmap()
		f.Memory.Map.Close()
	}
	f.Shared.CloseUnless(nil)
	f.Previous.Close()
	f.Backends.Close()
	f.Flows.Close()
}

// findUnfinishedTables finds tables that a process was replacing when it was killed, which packets may have used last.
// If a set's snapshot was removed, its replacement was complete.
func (f *Found) findUnfinishedTables(k *keeper.Keeper, sets []uint64) error {
	for _, set := range sets {
		if set >= f.Set {
			continue
		}
		before, err := f.snapshotOf(k, set)
		if err != nil {
			return err
		}
		if before == nil {
			continue
		}
		for name, table := range map[string]struct {
			shared   *ebpf.Map
			previous *[]sharedmaps.PreviousTable
		}{objects.XDPMapFlows: {f.Shared.Flows, &f.Flows.Proven}, objects.XDPMapNewcomers: {f.Shared.Newcomers,
			&f.Flows.Unproven}} {
			if err := f.noteTable(f.Store.Path(pins.Set(set), name), before, table.shared, table.previous); err != nil {
				return err
			}
		}
	}
	return nil
}

// snapshotOf reads the snapshot of a set; nil where it was removed, or is incomplete.
func (f *Found) snapshotOf(k *keeper.Keeper, set uint64) (*snapshot.Snapshot, error) {
	m, err := generation.OpenMemory(f.Store.Path(pins.Set(set), keeper.GenerationPin))
	if err != nil {
		return nil, err
	}
	number := m.Head().Snapshot
	m.Storage.Unmap()
	m.Map.Close()
	s, err := k.Decode(number)
	if err != nil {
		return nil, nil
	}
	return s, nil
}

// noteTable adds a pinned table of flows to those to take over, unless it is the shared map.
func (f *Found) noteTable(
	path string, saved *snapshot.Snapshot, shared *ebpf.Map, tables *[]sharedmaps.PreviousTable,
) error {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return fmt.Errorf("%s is no map of ours: %w", path, err)
	}
	listed := slices.ContainsFunc(*tables, func(t sharedmaps.PreviousTable) bool { return t.IsOf(m) })
	if listed || mapmem.SameMap(m, shared) {
		return m.Close()
	}
	source := saved.Flows
	if ours, err := sharedmaps.SharedLayouts(); err == nil &&
		saved.Layouts[objects.XDPMapFlows] == ours[objects.XDPMapFlows] {
		source, _ = flowtable.Layout()
	}
	reading, err := flowtable.NewForeignLayout(source)
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", path, err), m.Close())
	}
	table, err := flowtable.OpenForeign(m, reading)
	if err != nil {
		return errors.Join(err, m.Close())
	}
	*tables = append(*tables, table)
	return nil
}
