// SPDX-License-Identifier: Apache-2.0

// Package keeper makes a data plane outlive its process: it pins the programs, maps and links, and writes snapshots of
// the state that only the process has. A failed write or pin never prevents a change: it is recorded as a fault, and
// retried. The package also describes a kept data plane, and removes it; package datapath takes it over.
package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

// Each loaded generation is a set of pins. The snapshot of a change is written before the change is made, and its
// number is written into the generation's memory before packets can see the first part of the change: so that number
// names the valid snapshot.

// Location is where a data plane is kept.
type Location struct {
	// Store holds the pins; nil where only snapshots can be read.
	Store *pins.Store
	// Snapshot is the path of the snapshots, without their number.
	Snapshot string
	// Cookie identifies the network namespace.
	Cookie uint64
	// Files writes the snapshots, and records failures; nil: they are not recorded.
	Files *durable.Files
}

// Keeper keeps a data plane. A nil one keeps nothing.
type Keeper struct {
	Location
	// Number is the number of the last snapshot, and Set of the last set of pins.
	Number, Set uint64
	// PinContent is Store.Store; tests replace it by one that fails.
	PinContent func(name string, data []byte) error
	// unwritten is the last snapshot, where it could not be written to a file, and its number.
	unwritten       snapshot.Parts
	unwrittenNumber uint64
	// Size is the size of the last snapshot, and Reserved the room in the file for the next one, in bytes; 0: unknown.
	Size, Reserved int64
	// Lost: the locked directory is no longer at its path, and nothing is pinned in the one at that path yet. Note is
	// the message about that, until Repin returns it.
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

// Pin pins a loaded generation, with more objects that belong to it, by the names of their pins.
func (k *Keeper) Pin(g *loader.Programs, shared *sharedmaps.Maps, more map[string]pins.Pinner) {
	if k == nil {
		return
	}
	k.Set++
	pinned := map[string]pins.Pinner{GenerationPin: MapPin{g.Memory.Map}}
	for name, m := range shared.ByName() {
		pinned[name] = MapPin{m}
	}
	maps.Copy(pinned, more)
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

// Unpin removes objects that are no longer used from the last set: a program's pin would keep the memory of its
// generation. Pins that cannot be removed only cost memory; they go with their set.
func (k *Keeper) Unpin(names []string) {
	if k == nil {
		return
	}
	for _, name := range names {
		_ = removeFile(k.Store.Path(pins.Set(k.Set), name))
	}
}

// NotePinError records that an object could not be pinned. The object stays in use, and Repin pins it later.
func (k *Keeper) NotePinError(err error) {
	k.Lost = true
	k.Files.RecordResult(PinsSubject, k.Store.Dir(), err, false)
}

// PinsSubject names the pins in messages about their faults.
const PinsSubject = "the pins by which the next process takes the data plane over"

// GenerationPin names the pin of a generation's memory.
const GenerationPin = "generation"

// SocketPrefix is the prefix of the names of the pins of links to sockets.
const SocketPrefix = "sockets-"

// ProgramPin returns the name of the pin of an interface's program, by the interface's index: neither this name nor a
// link's depends on the order of the interfaces, which may change.
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

// RemoveOld removes the previous pins and snapshots. Those that cannot be removed only cost memory; the next change
// retries that.
func (k *Keeper) RemoveOld(g *loader.Programs) {
	if k == nil {
		return
	}
	_ = k.Store.KeepOnly(g.Set)
	k.Sweep(k.successorNumber(g.Memory))
	k.reserve()
}

// RemoveUnused removes the pins and the snapshot of generations that were never used. g is the generation in use, nil
// where there is none.
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

// Clear detaches all links and removes all pins. It closes the links: after the removal of a pin alone, the kernel
// detaches the program only a moment later.
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

// PinLink pins the link that keeps a program attached to an interface. If that fails, the program stays attached.
func (k *Keeper) PinLink(h attach.Hold, w attach.Method, p attach.Port) attach.Hold {
	l, ok := h.(link.Link)
	if k == nil || !ok {
		return h // a filter outlives the process by itself
	}
	if err := l.Pin(k.Store.Path("", w.LinkPin(p.Index))); err != nil {
		k.NotePinError(fmt.Errorf("pinning the link of %s: %w", w.Name, err))
	}
	return attach.PinnedLink{Link: l}
}
