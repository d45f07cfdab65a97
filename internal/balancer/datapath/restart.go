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
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/localsockets"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
)

// The story of a restart, from top to bottom. Each change that a process makes pins a set of programs and maps
// (keeper) and writes a snapshot of what only the process knows (snapshotwrite.go).
//
//  1. Leave: the old process ends. Programs and maps stay, by their pins.
//  2. takeOver: Open of the new process looks for sets of pins. Without any, or where they are of no use, it begins
//     with startAfresh, which takes off what is attached and says why.
//  3. find: of the sets it takes the newest one that is attached (found.go), with the snapshot that its memory names;
//     check compares that snapshot with this build.
//  4. adopt: the register is restored from the snapshot (restore.go). Packets have noticed nothing so far.
//  5. The first Apply replaces the generation by one of our own, as every reload does that needs other programs
//     (replace in apply.go). Whether the same build or another one made it, that is one way: until the links have the
//     new programs the old ones forward. Interfaces of the snapshot that the configuration lacks are left as by a
//     reload.
//  6. finishAdoption: what only the old generation needed is closed; noteLedger writes down what its maps had counted.
//
// Detach ends it: without a process, it takes all of this away.

// Leave ends the process's part: what is kept goes on, and the next process takes it over. A
// datapath that keeps nothing is closed.
func (d *Datapath) Leave() error {
	if d.keeper == nil {
		return d.Close()
	}
	return d.end(func() (err error) {
		for _, h := range slices.Concat(d.holds, holdsOf(d.leftovers)) {
			if l, is := h.(attach.Leaver); is {
				err = errors.Join(err, l.Leave())
			}
		}
		err = errors.Join(err, d.sockets.Leave())
		d.keeper.Store.Close()
		return err
	})
}

// cure ends an error of what was found and is of no use.
const cure = "the data plane that is attached goes on as it is: start the jeoul that it is of, or take it away with `jeoul detach`, with which its connections end"

// found is a data plane that was kept.
type found struct {
	store *pins.Store
	// set is the number of the newest pins that are attached, way how, and attached what is on
	// the interfaces, whatever has put it there.
	set      uint64
	method   attach.Method
	attached []attached
	// pinned are the programs of the set, by the index of their interface.
	pinned   map[int]*ebpf.Program
	memory   *generation.Memory
	snapshot *snapshot.Snapshot
	// stale: changes were made after the snapshot that no snapshot has.
	stale  bool
	shared *sharedmaps.Maps
	// differ lists the shared maps that are made anew; previous and backends are the counters of
	// before, of those that are among them.
	differ   []string
	previous *sharedmaps.PreviousOutcomes
	backends *sharedmaps.ForeignElements
	// flows are tables of flows that are not among the shared maps; reading is how those of the
	// snapshot are read where these are laid out differently.
	flows   *sharedmaps.PreviousFlows
	reading *flowtable.Reading
	// ports are the interfaces of the snapshot, and holds[i] keeps programs[i] on ports[i].
	ports    []attach.Port
	holds    []attach.Hold
	programs []*ebpf.Program
	// others keep other programs.
	others []leftover
	// sockets are the programs at sockets, nil where there are none.
	sockets *localsockets.Sockets
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
		because, err := k.Unpinned()
		if err != nil {
			return err
		}
		return d.startAfresh(because)
	}
	if err != nil {
		return err
	}
	k.Set = sets[len(sets)-1]
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

// startAfresh removes what is kept, and with it what it has attached.
func (d *Datapath) startAfresh(because string) error {
	k := d.keeper
	if because != "" {
		d.notes = append(d.notes,
			fmt.Sprintf("the data plane that is kept in %s is taken away, and what it remembered of connections ends: %s", k.Store.Dir(), because))
	}
	ports, err := d.findPorts(d.options.Interfaces)
	if err != nil {
		return err
	}
	// Of filters, those on our interfaces serve until ours take their place.
	gone := slices.DeleteFunc(k.Interfaces(), func(p attach.Port) bool {
		return slices.ContainsFunc(ports,
			p.SameInterface)
	})
	err = errors.Join(attach.RemoveFilters(gone), k.Clear())
	k.Sweep(0)
	return err
}

// find opens what was kept.
func (f *found) find(k *keeper.Keeper, sets []uint64) error {
	if err := f.findAttached(sets, k.Interfaces()); err != nil {
		return err
	}
	var err error
	if f.memory, err = generation.OpenMemory(f.store.Path(pins.Set(f.set), keeper.GenerationPin)); err != nil {
		return err
	}
	number := f.memory.Head().Snapshot
	if f.snapshot, err = k.Newest(number); err != nil {
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
	if f.sockets, err = localsockets.Find(f.store, f.set); err != nil {
		return err
	}
	return f.catchUp(k, sets)
}

// check compares the snapshot with what there is.
func (f *found) check(k *keeper.Keeper, number uint64) error {
	s := f.snapshot
	f.stale = s.Number != number
	if s.Cookie != k.Cookie {
		return &unusable{"it is of a network namespace that is gone"}
	}
	var err error
	if f.differ, err = sharedmaps.OtherLayouts(s.Layouts, s.Elements); err != nil {
		return err
	}
	f.flows = &sharedmaps.PreviousFlows{}
	if !slices.Contains(f.differ, objects.XDPMapFlows) {
		return nil
	}
	if f.reading, err = flowtable.ReadingOf(s.Flows); err != nil {
		return fmt.Errorf("%w: its maps %s are laid out differently, and %v", snapshot.ErrVersion,
			strings.Join(sharedmaps.FlowMaps, ", "), err)
	}
	return nil
}

// staleNote says what an older snapshot than the one that packets go by means.
const staleNote = "the last changes before the process ended could be written down nowhere: " +
	"connections of backends that came with them are balanced anew"

// adopt goes on with what was found.
func (d *Datapath) adopt(f *found) error {
	s := f.snapshot
	if s.IDs > f.shared.Turns.MaxEntries() || len(s.Generations) > int(f.shared.Counts.MaxEntries()) ||
		len(s.Generations) > int(f.shared.Loads.MaxEntries()) {
		return fmt.Errorf("%w: its maps are for fewer services or backends than it says", snapshot.ErrDamaged)
	}
	r, err := generation.Restore(s)
	if err != nil {
		return err
	}
	if f.stale {
		r.Places.MarkStale(f.shared.Counts.MaxEntries())
		d.notes = append(d.notes, staleNote)
	}
	f.memory.Later = mapmem.NewGrace(&d.mu)
	d.register, d.secret, d.shared, d.ledger = r, s.Secret, f.shared, sharedmaps.RestoreLedger(&s.Head)
	d.ledger.Previous, d.ledger.Backends = f.previous, f.backends
	if len(f.differ) > 0 {
		f.writeAnew(r)
		d.janitor.Uncounted = true
		d.notes = append(d.notes,
			"of the data plane that is attached, maps are laid out differently and are made anew; flows and counters stay: "+strings.Join(f.differ, ", "))
	}
	if d.previous = f.flows; d.previous.Bytes > 0 {
		d.notes = append(d.notes,
			fmt.Sprintf("flows are copied into tables of another layout; until the programs are exchanged, "+
				"the old tables take %d MiB besides", d.previous.Bytes>>20))
	}
	d.holds, d.leftovers, d.method, d.hook = f.holds, f.others, f.method, s.Hook
	d.sockets = f.sockets
	d.attachments = attach.Describe(f.ports, f.method, "as the process before has left it")
	for _, one := range s.Shown {
		d.tags.Note(one.Link, one.Name)
	}
	programs := map[string]*ebpf.Program{}
	for i, p := range f.programs {
		programs[keeper.ProgramPin(f.ports[i].Index)] = p
	}
	d.current = &loader.Programs{Adopted: true, Set: f.set, Ports: f.ports, Programs: f.programs, Memory: f.memory,
		Collections: []*ebpf.Collection{{Programs: programs}}}
	d.keeper.Number = d.keeper.Latest(max(s.Number, f.memory.Head().Snapshot))
	head := f.memory.Head()
	var stood time.Duration
	if moved := atomic.LoadUint64(&head.Moved); moved != 0 { // a build that does not note it has left the data plane
		stood = max(flowtable.Monotonic()-time.Duration(moved), 0)
		d.absent = min(stood, LongAbsence)
	}
	d.janitor.Begin(atomic.LoadUint32(&head.Clock), stood)
	d.notes = append(d.notes,
		fmt.Sprintf("going on with the data plane that is attached (%s): services: %d, its configuration was last changed at %s",
			d.attachments[0], len(s.Services), s.Written.Format(time.DateTime)))
	return nil
}

// finishAdoption does what is left to do once a generation of ours has taken the place of one
// before. Old are the shared maps of before.
func (d *Datapath) finishAdoption(old *sharedmaps.Maps) {
	if d.keeper == nil {
		return
	}
	ended := d.ledger.EndPrevious()
	if len(ended) > 0 {
		d.publishPicture()
		d.awaitReaders()
		for _, end := range ended {
			end()
		}
	}
	if len(ended) > 0 || old != nil && old.Counts != d.shared.Counts {
		d.noteLedger()
	}
	for _, l := range d.leftovers {
		_ = l.hold.Close()
	}
	d.leftovers = nil
	d.keeper.RemoveOld(d.current)
}

// noteLedger writes down what maps of counters had counted that were replaced: until the last
// packet had gone by them, that was not known. Without it, a snapshot is less exact.
func (d *Datapath) noteLedger() {
	d.writeSnapshot(d.register.Unchanged(d.now()), d.current.Ports)
	d.keeper.Show(d.current.Memory)
}

// end closes the datapath: release lets go of what is attached.
func (d *Datapath) end(release func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	close(d.stop)
	d.janitor.Leave()
	err := errors.Join(release(), d.checks.close())
	d.publishPicture()
	d.awaitReaders()
	d.ledger.Previous.Close()
	d.ledger.Backends.Close()
	d.previous.Close()
	d.sockets.CloseUnless(nil)
	d.current.Close()
	if d.current != nil {
		d.current.Memory.Close()
	}
	d.shared.CloseUnless(nil)
	return err
}

// Adopted says whether the datapath goes on with a data plane that another process has left:
// it forwards already.
func (d *Datapath) Adopted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current != nil && d.current.Adopted
}

// LongAbsence is what Absent returns at most.
const LongAbsence = 365 * 24 * time.Hour

// Absent returns for how long there was no process when Open took a data plane over; LongAbsence where it took none
// over, or a build has left that which does not note it.
func (d *Datapath) Absent() time.Duration { return d.absent }

// Notes returns what there is to say of what Open found, a line each.
func (d *Datapath) Notes() []string { return d.notes }
