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
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/balancer/datapath/takeover"
)

// A restart, step by step. Each change that a process makes pins a set of programs and maps (keeper) and writes a
// snapshot of the state that only the process has (snapshotwrite.go).
//
//  1. Release: the old process ends. Programs and maps stay, by their pins.
//  2. takeOver: Open of the new process looks for sets of pins. Without any, or where they are unusable, it begins with
//     startFresh, which detaches the attached programs and logs why.
//  3. takeover.Find selects the newest attached set, with the snapshot that its memory names, and compares that
//     snapshot with this build.
//  4. adopt: the register is restored from the snapshot (generation.Restore). Packets are not affected so far.
//  5. The first Apply replaces the generation by one of our own, as every reload does that needs other programs
//     (replace in apply.go). It does so for a generation of this build and of another one alike: the old programs
//     forward until the links have the new ones. Interfaces of the snapshot that the configuration lacks are removed as
//     by a reload.
//  6. finishAdoption: programs and maps that only the old generation needed are closed; noteLedger writes down the
//     counts of its maps.
//
// `jeoul detach` removes all of this without a process.

// Release releases the data plane: it stays attached, and the next process takes it over. A datapath that keeps nothing
// is closed.
func (d *Datapath) Release() error {
	if d.keeper == nil {
		return d.Close()
	}
	return d.end(func() (err error) {
		for _, h := range slices.Concat(d.holds, attach.HoldsOf(d.leftovers)) {
			if l, ok := h.(attach.Releaser); ok {
				err = errors.Join(err, l.Release())
			}
		}
		err = errors.Join(err, d.sockets.Release())
		d.keeper.Store.Close()
		return err
	})
}

// remedy is the last part of errors about a data plane that was found and cannot be used.
const remedy = "the data plane that is attached goes on as it is: start the jeoul that it is of, or take it away with `jeoul detach`, with which its connections end"

// takeOver looks for a data plane that was kept, and takes it over, or removes it if it is unusable.
func (d *Datapath) takeOver() error {
	k := d.keeper
	if k == nil {
		return nil
	}
	sets, err := k.Store.Sets()
	if err == nil && len(sets) == 0 {
		unusable, err := k.Unpinned()
		if err != nil {
			return err
		}
		return d.startFresh(unusable)
	}
	if err != nil {
		return err
	}
	k.Set = sets[len(sets)-1]
	f, err := takeover.Find(k, sets)
	if unusable := (*takeover.Unusable)(nil); errors.As(err, &unusable) {
		return d.startFresh(unusable.Error())
	}
	if err == nil {
		if err = d.adopt(f); err != nil {
			f.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("taking over the data plane that is kept in %s: %w: %s", k.Store.Dir(), err, remedy)
	}
	return nil
}

// startFresh removes a kept data plane, and detaches its programs.
func (d *Datapath) startFresh(reason string) error {
	k := d.keeper
	if reason != "" {
		d.notes = append(d.notes,
			fmt.Sprintf("the data plane that is kept in %s is taken away, and what it remembered of connections ends: %s", k.Store.Dir(), reason))
	}
	ports, err := d.findPorts(d.options.Interfaces)
	if err != nil {
		return err
	}
	// Filters on our interfaces forward until ours replace them.
	removed := slices.DeleteFunc(k.Interfaces(), func(p attach.Port) bool {
		return slices.ContainsFunc(ports,
			p.SameInterface)
	})
	err = errors.Join(attach.RemoveFilters(removed), k.Clear())
	k.Sweep(0)
	return err
}

// staleNote explains the effect of a snapshot that is older than the attached generation.
const staleNote = "the last changes before the process ended could be written down nowhere: " +
	"connections of backends that came with them are balanced anew"

// adopt takes over the data plane that was found.
func (d *Datapath) adopt(f *takeover.Found) error {
	s := f.Snapshot
	if s.IDs > f.Shared.Turns.MaxEntries() || len(s.Generations) > int(f.Shared.Counts.MaxEntries()) ||
		len(s.Generations) > int(f.Shared.Loads.MaxEntries()) {
		return fmt.Errorf("%w: its maps are for fewer services or backends than it says", snapshot.ErrDamaged)
	}
	r, err := generation.Restore(s)
	if err != nil {
		return err
	}
	if f.Stale {
		r.Places.MarkStale(f.Shared.Counts.MaxEntries())
		d.notes = append(d.notes, staleNote)
	}
	f.Memory.Grace = mapmem.NewGrace(&d.mu)
	d.register, d.secret, d.shared, d.ledger = r, s.Secret, f.Shared, sharedmaps.RestoreLedger(&s.Head)
	d.ledger.Previous, d.ledger.Backends = f.Previous, f.Backends
	if len(f.Differ) > 0 {
		f.RewriteLimits(r)
		d.janitor.Uncounted = true
		d.notes = append(d.notes,
			"of the data plane that is attached, maps are laid out differently and are made anew; flows and counters stay: "+strings.Join(f.Differ, ", "))
	}
	if d.previous = f.Flows; d.previous.Bytes > 0 {
		d.notes = append(d.notes,
			fmt.Sprintf("flows are copied into tables of another layout; until the programs are exchanged, "+
				"the old tables take %d MiB besides", d.previous.Bytes>>20))
	}
	d.holds, d.leftovers, d.method, d.hook = f.Holds, f.Others, f.Method, s.Hook
	d.sockets = f.Sockets
	if f.SocketsNote != "" {
		d.notes = append(d.notes, f.SocketsNote)
	}
	d.attachments = attach.Describe(f.Ports, f.Method, "as the process before has left it")
	for _, one := range s.Shown {
		d.tags.NoteDisabled(one.Link, one.Name)
	}
	programs := map[string]*ebpf.Program{}
	for i, p := range f.Programs {
		programs[keeper.ProgramPin(f.Ports[i].Index)] = p
	}
	d.current = &loader.Programs{Adopted: true, Set: f.Set, Ports: f.Ports, Programs: f.Programs, Memory: f.Memory,
		Collections: []*ebpf.Collection{{Programs: programs}}}
	d.keeper.Number = d.keeper.Latest(max(s.Number, f.Memory.Head().Snapshot))
	head := f.Memory.Head()
	var gap time.Duration
	if moved := atomic.LoadUint64(&head.Moved); moved != 0 { // 0: by a build that does not record the time
		gap = max(flowtable.Monotonic()-time.Duration(moved), 0)
		d.absent = min(gap, LongAbsence)
	}
	d.janitor.Resume(atomic.LoadUint32(&head.Clock), gap)
	d.notes = append(d.notes,
		fmt.Sprintf("going on with the data plane that is attached (%s): services: %d, its configuration was last changed at %s",
			d.attachments[0], len(s.Services), s.Written.Format(time.DateTime)))
	return nil
}

// finishAdoption completes the take-over once a generation of ours has replaced the adopted one. old are the shared
// maps before that.
func (d *Datapath) finishAdoption(old *sharedmaps.Maps) {
	if d.keeper == nil {
		return
	}
	ended := d.ledger.EndPrevious()
	if len(ended) > 0 {
		d.publishView()
		d.published.WaitForReaders()
		for _, end := range ended {
			end()
		}
	}
	if len(ended) > 0 || old != nil && old.Counts != d.shared.Counts {
		d.noteLedger()
	}
	for _, l := range d.leftovers {
		_ = l.Hold.Close()
	}
	d.leftovers = nil
	d.keeper.RemoveOld(d.current)
}

// noteLedger writes a snapshot with the final counts of replaced maps, which are known only after the last packet that
// used them.
func (d *Datapath) noteLedger() {
	d.writeSnapshot(d.register.Unchanged(d.now()), d.current.Ports)
	d.keeper.WriteNumber(d.current.Memory)
}

// Close detaches and frees everything. Flows and counters are gone.
func (d *Datapath) Close() error {
	return d.end(func() error {
		err := errors.Join(d.sockets.Detach(), d.detach(), attach.CloseAll(attach.HoldsOf(d.leftovers)))
		return errors.Join(err, d.keeper.RemoveAll())
	})
}

// end closes the datapath; release detaches the programs, or leaves them attached.
func (d *Datapath) end(release func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	close(d.stop)
	d.janitor.Stop()
	err := errors.Join(release(), d.checks.Close())
	d.publishView()
	d.published.WaitForReaders()
	d.awaitLoads()
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

// Adopted reports whether the datapath has taken over a data plane of another process, which forwards already.
func (d *Datapath) Adopted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current != nil && d.current.Adopted
}

// LongAbsence is the longest time that Absent returns.
const LongAbsence = 365 * 24 * time.Hour

// Absent returns for how long the data plane that Open took over had no process; LongAbsence where Open took none over,
// or where the build of the previous process does not record the time.
func (d *Datapath) Absent() time.Duration { return d.absent }

// Notes returns messages about the data plane that Open took over, a line each.
func (d *Datapath) Notes() []string { return d.notes }
