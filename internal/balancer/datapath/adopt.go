// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
)

// A process that finds a data plane which was kept goes on with its shared maps, its links and
// what the snapshot says. Its generation is replaced by one of our own with the first change:
// whether the same program or another has made it, that is the same way, and until the links
// have the new programs the old ones forward. Its interfaces may be others than those of our
// configuration: the first change moves to these, as a reload would.

// cure ends an error of what was found and is of no use.
const cure = "the data plane that is attached goes on as it is: start the jeoul that it is of, or take it away with `jeoul detach`, with which its connections end"

// found is a data plane that was kept.
type found struct {
	store *pins.Store
	// set is the number of the newest pins that are attached, way how, and attached what is on
	// the interfaces, whatever has put it there.
	set      uint64
	way      attach.Method
	attached []attached
	// pinned are the programs of the set, by the index of their interface.
	pinned   map[int]*ebpf.Program
	memory   *memory
	snapshot *snapshot.Snapshot
	// stale: changes were made after the snapshot that no snapshot has.
	stale  bool
	shared *shared
	// differ lists the shared maps that are made anew; former and backends are the counters of
	// before, of those that are among them.
	differ   []string
	former   *formerOutcomes
	backends *foreignElements
	// flows are tables of flows that are not among the shared maps; reading is how those of the
	// snapshot are read where these are laid out differently.
	flows   *formerFlows
	reading *flowtable.Reading
	// ports are the interfaces of the snapshot, and holds[i] keeps programs[i] on ports[i].
	ports    []attach.Port
	holds    []attach.Hold
	programs []*ebpf.Program
	// others keep other programs.
	others []leftover
	// sockets are the programs at sockets, nil where there are none.
	sockets *sockets
}

// takeOver looks for a data plane that was kept, and takes it over. One that cannot be, since
// its interfaces are gone, it takes away.
func (d *Datapath) takeOver() error {
	k := d.keeper
	if k == nil {
		return nil
	}
	sets, err := k.Store.Sets()
	if err == nil && len(sets) == 0 {
		because, err := k.unpinned()
		if err != nil {
			return err
		}
		return d.startAfresh(because)
	}
	if err != nil {
		return err
	}
	k.set = sets[len(sets)-1]
	f := &found{store: k.Store}
	err = f.find(k, sets)
	if because := (*unusable)(nil); errors.As(err, &because) {
		f.close()
		return d.startAfresh(because.Error())
	}
	if err == nil {
		err = d.adopt(f)
	}
	if err != nil {
		f.close()
		return fmt.Errorf("taking over the data plane that is kept in %s: %w: %s", k.Store.Dir(), err, cure)
	}
	return nil
}

// unusable is why what was kept is of no use to any process.
type unusable struct{ reason string }

func (u *unusable) Error() string { return u.reason }

// unpinned says that a process has left a snapshot, and nothing is pinned of what it describes; empty where
// there is none. Where its program is attached all the same, its pins cannot be seen, and that is an error.
func (k *keeper) unpinned() (because string, err error) {
	s, err := k.read()
	if err != nil || s.Cookie != k.Cookie {
		return "", nil
	}
	for _, i := range s.Interfaces {
		if id, there := attach.OursOn(attach.Port{Name: i.Name, Index: i.Index}); there {
			return "", fmt.Errorf("nothing is pinned in %s of the data plane whose program (id %d) is on %s: if a bpf file system was mounted over the one with its pins, unmount it (`findmnt /sys/fs/bpf`); if it is of another balancer, stop that", k.Store.Dir(), id, i.Name)
		}
	}
	return "nothing of it is pinned any more: its bpf file system was unmounted or mounted anew, or the machine was started anew", nil
}

// startAfresh removes what is kept, and with it what it has attached.
func (d *Datapath) startAfresh(because string) error {
	k := d.keeper
	if because != "" {
		d.notes = append(d.notes, fmt.Sprintf("the data plane that is kept in %s is taken away, and what it remembered of connections ends: %s", k.Store.Dir(), because))
	}
	ports, err := d.findPorts(d.options.Interfaces)
	if err != nil {
		return err
	}
	// Of filters, those on our interfaces serve until ours take their place.
	gone := slices.DeleteFunc(k.interfaces(), func(p attach.Port) bool { return slices.ContainsFunc(ports, p.SameInterface) })
	err = errors.Join(attach.RemoveFilters(gone), k.clear())
	k.sweep(0)
	return err
}

// Adopted says whether the datapath goes on with a data plane that another process has left:
// it forwards already.
func (d *Datapath) Adopted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current != nil && d.current.adopted
}

// LongAbsence is what Absent returns at most.
const LongAbsence = 365 * 24 * time.Hour

// Absent returns for how long there was no process when Open took a data plane over; LongAbsence where it took none over, or a build
// has left that which does not note it.
func (d *Datapath) Absent() time.Duration { return d.absent }

// Notes returns what there is to say of what Open found, a line each.
func (d *Datapath) Notes() []string { return d.notes }

// find opens what was kept.
func (f *found) find(k *keeper, sets []uint64) error {
	if err := f.findAttached(sets, k.interfaces()); err != nil {
		return err
	}
	var err error
	if f.memory, err = openMemory(f.store.Path(pins.Set(f.set), generationPin)); err != nil {
		return err
	}
	number := f.memory.head().Snapshot
	if f.snapshot, err = k.newest(number); err != nil {
		return err
	}
	if err := f.check(k, number); err != nil {
		return err
	}
	if err := f.choose(); err != nil {
		return err
	}
	if f.shared, err = f.openShared(f.set); err != nil {
		return err
	}
	if f.sockets, err = f.findSockets(); err != nil {
		return err
	}
	return f.catchUp(k, sets)
}

// catchUp notes tables that a process was about to replace when it was killed: packets may have
// gone by them last. Of a set whose snapshot is gone, the process had finished.
func (f *found) catchUp(k *keeper, sets []uint64) error {
	for _, set := range sets {
		if set >= f.set {
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
			to *[]formerTable
		}{objects.XDPMapFlows: {f.shared.flows, &f.flows.proven}, objects.XDPMapNewcomers: {f.shared.newcomers, &f.flows.unproven}} {
			if err := f.noteTable(f.store.Path(pins.Set(set), name), before, table.of, table.to); err != nil {
				return err
			}
		}
	}
	return nil
}

// snapshotOf reads the snapshot of a set; nil where it is gone, or was not whole.
func (f *found) snapshotOf(k *keeper, set uint64) (*snapshot.Snapshot, error) {
	m, err := openMemory(f.store.Path(pins.Set(set), generationPin))
	if err != nil {
		return nil, err
	}
	number := m.head().Snapshot
	m.storage.Unmap()
	m.m.Close()
	s, err := k.decode(number)
	if err != nil {
		return nil, nil
	}
	return s, nil
}

// noteTable notes a pinned table of flows to take over, unless it is one of the shared maps.
func (f *found) noteTable(path string, of *snapshot.Snapshot, is *ebpf.Map, to *[]formerTable) error {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return fmt.Errorf("%s is no map of ours: %w", path, err)
	}
	if mapmem.SameMap(m, is) || slices.ContainsFunc(*to, func(t formerTable) bool { return t.IsOf(m) }) {
		return m.Close()
	}
	theirs := of.Flows
	if ours, err := sharedLayouts(); err == nil && of.Layouts[objects.XDPMapFlows] == ours[objects.XDPMapFlows] {
		theirs, _ = flowtable.Layout()
	}
	reading, err := flowtable.ReadingOf(theirs)
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

// check compares the snapshot with what there is.
func (f *found) check(k *keeper, number uint64) error {
	s := f.snapshot
	f.stale = s.Number != number
	if s.Cookie != k.Cookie {
		return &unusable{"it is of a network namespace that is gone"}
	}
	var err error
	if f.differ, err = otherLayouts(s.Layouts, s.Elements); err != nil {
		return err
	}
	f.flows = &formerFlows{}
	if !slices.Contains(f.differ, objects.XDPMapFlows) {
		return nil
	}
	if f.reading, err = flowtable.ReadingOf(s.Flows); err != nil {
		return fmt.Errorf("%w: its maps %s are laid out differently, and %v", snapshot.ErrVersion, strings.Join(flowMaps, ", "), err)
	}
	return nil
}

// staleNote says what an older snapshot than the one that packets go by means.
const staleNote = "the last changes before the process ended could be written down nowhere: " +
	"connections of backends that came with them are balanced anew"

// adopt goes on with what was found.
func (d *Datapath) adopt(f *found) error {
	s := f.snapshot
	if s.IDs > f.shared.turns.MaxEntries() || len(s.Generations) > int(f.shared.counts.MaxEntries()) || len(s.Generations) > int(f.shared.loads.MaxEntries()) {
		return fmt.Errorf("%w: its maps are for fewer services or backends than it says", snapshot.ErrDamaged)
	}
	r, err := restore(s)
	if err != nil {
		return err
	}
	if f.stale {
		r.places.doubt(f.shared.counts.MaxEntries())
		d.notes = append(d.notes, staleNote)
	}
	f.memory.later = mapmem.NewGrace(&d.mu)
	d.register, d.secret, d.shared, d.ledger = r, s.Secret, f.shared, restoreLedger(&s.Head)
	d.ledger.former, d.ledger.backends = f.former, f.backends
	if len(f.differ) > 0 {
		f.writeAnew(r)
		d.janitor.Uncounted = true
		d.notes = append(d.notes, "of the data plane that is attached, maps are laid out differently and are made anew; flows and counters stay: "+strings.Join(f.differ, ", "))
	}
	if d.former = f.flows; d.former.bytes > 0 {
		d.notes = append(d.notes, fmt.Sprintf("flows are copied into tables of another layout; until the programs are exchanged, the old tables take %d MiB besides", d.former.bytes>>20))
	}
	d.holds, d.leftovers, d.way, d.hook = f.holds, f.others, f.way, s.Hook
	d.sockets = f.sockets
	d.attachments = attach.Describe(f.ports, f.way, "as the process before has left it")
	for _, one := range s.Shown {
		d.tags.Note(one.Link, one.Name)
	}
	programs := map[string]*ebpf.Program{}
	for i, p := range f.programs {
		programs[programPin(f.ports[i].Index)] = p
	}
	d.current = &generation{adopted: true, set: f.set, ports: f.ports, programs: f.programs, memory: f.memory,
		collections: []*ebpf.Collection{{Programs: programs}}, state: r.state, places: r.places}
	d.keeper.number = d.keeper.latest(max(s.Number, f.memory.head().Snapshot))
	head := f.memory.head()
	var stood time.Duration
	if moved := atomic.LoadUint64(&head.Moved); moved != 0 { // a build that does not note it has left the data plane
		stood = max(flowtable.Monotonic()-time.Duration(moved), 0)
		d.absent = min(stood, LongAbsence)
	}
	d.janitor.Begin(atomic.LoadUint32(&head.Clock), stood)
	d.notes = append(d.notes, fmt.Sprintf("going on with the data plane that is attached (%s): services: %d, its configuration was last changed at %s",
		d.attachments[0], len(s.Services), s.Written.Format(time.DateTime)))
	return nil
}

// latest returns the greatest number of a snapshot that there is, at least the one given: one
// of a change that was not made is not written over.
func (k *keeper) latest(number uint64) uint64 {
	numbers, _ := k.snapshots()
	return max(number, slices.Max(append(numbers, number)))
}

// settleKept does what is left to do once a generation of ours has taken the place of one
// before. Old are the shared maps of before.
func (d *Datapath) settleKept(old *shared) {
	if d.keeper == nil {
		return
	}
	ended := d.ledger.endFormer()
	if len(ended) > 0 {
		d.publishPicture()
		d.awaitReaders()
		for _, end := range ended {
			end()
		}
	}
	if len(ended) > 0 || old != nil && old.counts != d.shared.counts {
		d.noteLedger()
	}
	for _, l := range d.leftovers {
		_ = l.hold.Close()
	}
	d.leftovers = nil
	d.keeper.settle(d.current)
}

// noteLedger writes down what maps of counters had counted that were replaced: until the last
// packet had gone by them, that was not known. Without it, a snapshot is less exact.
func (d *Datapath) noteLedger() {
	c := &revision{state: d.register.state, records: d.register.records, places: d.register.places.resettle(d.now())}
	c.places.free = d.register.places.free
	d.writeAhead(c, d.current.ports)
	d.keeper.show(d.current.memory)
}
