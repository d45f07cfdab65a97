// SPDX-License-Identifier: Apache-2.0

// Package keeper keeps a data plane beyond its process: the pins of its programs, maps and links, and the snapshots of
// the state that only its process has. A write or a pin that fails never holds up a change: it is noted as a fault, and
// tried again. The package also describes a kept data plane, and removes it; package datapath takes it over.
package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/host/durable"
)

// A data plane that is kept outlives its process: its links, programs and maps are pinned, and a snapshot has the
// process's knowledge of them. Each loaded generation is a set of pins. The snapshot of a change is written before the
// change is made; its number is in the generation's memory before packets meet the first part of the change, and so
// names the valid snapshot. A write or a pin that fails never holds up a change: it is noted as a fault, and tried
// again.

// Location is where a data plane is kept.
type Location struct {
	// Store holds the pins; nil where only snapshots can be read.
	Store *pins.Store
	// Snapshot is the path of the snapshots, without their number.
	Snapshot string
	// Cookie is the network namespace's.
	Cookie uint64
	// Files writes the snapshots, and records those that cannot be written; nil: none is recorded.
	Files *durable.Files
}

// Keeper keeps a data plane. A nil one keeps nothing.
type Keeper struct {
	Location
	// Number is that of the last snapshot, and Set of the last pins.
	Number, Set uint64
	// PinContent is that of the store; tests have one that fails.
	PinContent func(name string, data []byte) error
	// unwritten is the last snapshot, where it could not be written to a file, and its number.
	unwritten       snapshot.Parts
	unwrittenNumber uint64
	// Size is the last snapshot's, and Reserved the room in the file for the next one, in bytes, as far as they are
	// known.
	Size, Reserved int64
	// Lost: the directory that was locked is not at its path any more, and nothing is pinned in the one in its place
	// yet. Note is the message about the loss, until it is read.
	Lost bool
	Note string
	// Lines are the encoded services of the last snapshot.
	Lines map[*generation.Record][]byte
}

// New returns a keeper; nil, which keeps nothing, for nil.
func New(keep *Location) *Keeper {
	if keep == nil {
		return nil
	}
	k := &Keeper{Location: *keep, Lines: map[*generation.Record][]byte{}}
	if k.Files == nil {
		k.Files = durable.New(durable.Options{})
	}
	if k.Store != nil {
		k.PinContent = k.Store.Store
	}
	return k
}

// WriteNumber writes the number of the valid snapshot into the generation's memory.
func (k *Keeper) WriteNumber(m *generation.Memory) {
	if k != nil {
		atomic.StoreUint64(&m.Head().Snapshot, k.Number)
	}
}

// Pin pins a generation that was loaded, with more maps that it has.
func (k *Keeper) Pin(g *loader.Programs, shared *sharedmaps.Maps, more map[string]*ebpf.Map) {
	if k == nil {
		return
	}
	k.Set++
	pinned := map[string]pins.Pinner{GenerationPin: MapPin{g.Memory.Map}}
	for name, m := range shared.ByName() {
		pinned[name] = MapPin{m}
	}
	for name, m := range more {
		pinned[name] = MapPin{m}
	}
	for i, p := range g.Programs {
		pinned[ProgramPin(g.Ports[i].Index)] = ProgramPinner{p}
	}
	if g.Watchdog != nil {
		pinned[objects.OrphanMapWatches] = MapPin{g.Watchdog.Maps[objects.OrphanMapWatches]}
	}
	g.Set = k.Set
	if err := k.Store.Put(k.Set, pinned); err != nil {
		k.NotePinError(err)
	}
}

// NotePinError records that something could not be pinned. It is in use all the same, and Repin pins it later.
func (k *Keeper) NotePinError(err error) {
	k.Lost = true
	k.Files.RecordResult(PinsSubject, k.Store.Dir(), err, false)
}

// PinsSubject names the pins in messages about their faults.
const PinsSubject = "the pins by which the next process takes the data plane over"

// GenerationPin names the pin of a generation's memory.
const GenerationPin = "generation"

// SocketPrefix begins the names of the pins of links to sockets.
const SocketPrefix = "sockets-"

// ProgramPin names the pin of the program on the interface of an index. Neither its name nor a link's depends on the
// order of the interfaces, which may change.
func ProgramPin(index int) string { return programPrefix + strconv.Itoa(index) }

const programPrefix = "program-"

type (
	// MapPin pins a copy of a map's handle.
	MapPin struct{ *ebpf.Map }
	// ProgramPinner pins a copy of a program's handle.
	ProgramPinner struct{ *ebpf.Program }
)

// PinCopy pins a copy of the handle.
func (p MapPin) PinCopy(path string) error {
	clone, err := p.Clone()
	if err != nil {
		return err
	}
	return errors.Join(clone.Pin(path), clone.Close())
}

// PinCopy pins a copy of the handle.
func (p ProgramPinner) PinCopy(path string) error {
	clone, err := p.Clone()
	if err != nil {
		return err
	}
	return errors.Join(clone.Pin(path), clone.Close())
}

// RemoveOld removes the previous pins and snapshots. Those that cannot be removed cost memory only, and are tried again
// after the next change.
func (k *Keeper) RemoveOld(g *loader.Programs) {
	if k == nil {
		return
	}
	_ = k.Store.KeepOnly(g.Set)
	k.Sweep(k.successorNumber(g.Memory))
	k.reserve()
}

// RemoveUnused removes the pins, and the snapshot, of generations that did not come into use: the one in use is g,
// nil where there is none.
func (k *Keeper) RemoveUnused(g *loader.Programs) {
	if k != nil && g != nil {
		_ = k.Store.KeepOnly(g.Set)
		// The snapshot of a change that was not made would later be taken for the newest one.
		k.Sweep(k.successorNumber(g.Memory))
		k.revert(k.successorNumber(g.Memory))
	}
}

// RemoveAll removes everything that is kept.
func (k *Keeper) RemoveAll() error {
	if k == nil {
		return nil
	}
	return errors.Join(k.removeSnapshots(), k.Store.Remove())
}

// Clear detaches all links and removes all pins. The links are closed here: where only a pin is removed, the kernel
// takes the program off a moment later, and the interface has it until then.
func (k *Keeper) Clear() error {
	err := k.clearDispatched()
	names, failed := k.Store.Links()
	err = errors.Join(err, failed)
	for _, name := range names {
		if l, _, failed := attach.OpenLink(k.Store.Path("", name)); failed == nil {
			err = errors.Join(err, l.Close())
		}
	}
	return errors.Join(err, k.Store.Clear())
}

// removeFile removes a file if it is there.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// PinLink pins the link that keeps a program on an interface. Where that fails, the program is attached all the same.
func (k *Keeper) PinLink(h attach.Hold, w attach.Method, p attach.Port) attach.Hold {
	l, is := h.(link.Link)
	if k == nil || !is {
		return h // a filter outlives us by itself
	}
	if err := l.Pin(k.Store.Path("", w.LinkPin(p.Index))); err != nil {
		k.NotePinError(fmt.Errorf("pinning the link of %s: %w", w.Name, err))
	}
	return attach.PinnedLink{Link: l}
}
