// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"
	"fmt"
	"net"
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

// KeptMethods are those that can outlive a process.
var KeptMethods = []attach.Method{attach.NativeXDP, attach.GenericXDP, attach.NativeDispatched,
	attach.GenericDispatched, attach.TCX, attach.TCFilter}

// attached is a program on an interface, and the link or filter that keeps it there.
type attached struct {
	attach.Leftover
	program ebpf.ProgramID
}

// findAttached finds the newest set whose programs are attached: one of them at least, and to each of its interfaces a
// program of ours by the same method. A process that is killed while it swaps them one by one leaves such a mixture.
// Ports are the interfaces on which filters are looked for.
func (f *Found) findAttached(sets []uint64, ports []attach.Port) error {
	if err := errors.Join(f.listAttached(ports), f.listDispatched(sets, ports)); err != nil {
		return err
	}
	some := false
	for _, set := range slices.Backward(sets) {
		programs, ids, err := keeper.OpenPrograms(f.Store, set)
		if err != nil {
			return err
		}
		for _, w := range KeptMethods {
			runs, whole := f.isAttached(w, ids)
			if some = some || runs; runs && whole {
				f.Set, f.Method, f.pinned = set, w, programs
				return nil
			}
		}
		keeper.ClosePrograms(programs)
	}
	if some {
		return &Unusable{"it is not attached to all of its interfaces"}
	}
	return &Unusable{"none of its programs is attached to an interface"}
}

// isAttached reports whether one of these programs, by the index of their interface, is attached by a method, and
// whether a program of ours is on each of the interfaces.
func (f *Found) isAttached(w attach.Method, ids map[int]ebpf.ProgramID) (one, whole bool) {
	there := map[int]ebpf.ProgramID{}
	for _, a := range f.attached {
		if a.Method == w {
			there[a.Index] = a.program
		}
	}
	whole = len(ids) > 0
	for index, id := range ids {
		program, is := there[index]
		one, whole = one || is && program == id, whole && is
	}
	return one, whole
}

// selectOurs separates the programs on the snapshot's interfaces from others that are attached.
func (f *Found) selectOurs() error {
	f.Ports = make([]attach.Port, len(f.Snapshot.Interfaces))
	f.Holds, f.Programs = make([]attach.Hold, len(f.Ports)), make([]*ebpf.Program, len(f.Ports))
	for i, of := range f.Snapshot.Interfaces {
		nic, err := net.InterfaceByIndex(of.Index)
		if err != nil {
			return &Unusable{fmt.Sprintf("its interface %s is gone", of.Name)}
		}
		if f.Programs[i] = f.pinned[of.Index]; f.Programs[i] == nil || len(f.pinned) != len(f.Ports) {
			return fmt.Errorf("%w: its programs are for other interfaces than it says", snapshot.ErrDamaged)
		}
		f.Ports[i] = attach.Port{Name: nic.Name, Index: of.Index, MAC: nic.HardwareAddr}
		if current, err := net.InterfaceByName(of.Name); err == nil && current.Index == of.Index {
			f.Ports[i].Name = of.Name // it may have several
		}
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

// listAttached looks for attached programs, by pinned links and by filters.
func (f *Found) listAttached(ports []attach.Port) error {
	names, err := f.Store.Links()
	if err != nil {
		return err
	}
	for _, name := range names {
		for _, w := range KeptMethods {
			digits, is := strings.CutPrefix(name, w.LinkPrefix())
			index, err := strconv.Atoi(digits)
			if !is || err != nil {
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
			// It was left by a build that had no such map.
			if *at.Of, err = sharedmaps.MakeLike(at.Name, like); err != nil {
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
			if *at.Of, err = f.remake(at.Name, m, like); err != nil {
				s.CloseUnless(nil)
				return nil, err
			}
			continue
		}
		*at.Of = m
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

// Close closes the handles of the data plane that was found, which goes on.
func (f *Found) Close() {
	for _, a := range f.attached {
		if l, is := a.Hold.(attach.Leaver); is {
			_ = l.Leave()
		}
	}
	keeper.ClosePrograms(f.pinned)
	_ = f.Sockets.Leave()
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

// findUnfinishedTables finds tables that a process was about to replace when it was killed: packets may have gone by
// them last. Where a set's snapshot is gone, the process had finished replacing it.
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
			of *ebpf.Map
			to *[]sharedmaps.PreviousTable
		}{objects.XDPMapFlows: {f.Shared.Flows, &f.Flows.Proven}, objects.XDPMapNewcomers: {f.Shared.Newcomers,
			&f.Flows.Unproven}} {
			if err := f.noteTable(f.Store.Path(pins.Set(set), name), before, table.of, table.to); err != nil {
				return err
			}
		}
	}
	return nil
}

// snapshotOf reads the snapshot of a set; nil where it is gone, or was not whole.
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

// noteTable notes a pinned table of flows to take over, unless it is one of the shared maps.
func (f *Found) noteTable(path string, of *snapshot.Snapshot, is *ebpf.Map, to *[]sharedmaps.PreviousTable) error {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return fmt.Errorf("%s is no map of ours: %w", path, err)
	}
	if mapmem.SameMap(m, is) || slices.ContainsFunc(*to, func(t sharedmaps.PreviousTable) bool { return t.IsOf(m) }) {
		return m.Close()
	}
	source := of.Flows
	if ours, err := sharedmaps.SharedLayouts(); err == nil &&
		of.Layouts[objects.XDPMapFlows] == ours[objects.XDPMapFlows] {
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
	*to = append(*to, table)
	return nil
}
