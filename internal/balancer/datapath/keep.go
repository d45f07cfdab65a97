// SPDX-License-Identifier: Apache-2.0

package datapath

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
	"github.com/jeoul/jeoul/internal/host/durable"
)

// A data plane that is kept outlives its process: its links, programs and maps are pinned, and
// a snapshot says what the process knew of them. Each loaded generation is a set of pins. The
// snapshot of a change is written before it is made; its number is in the generation's memory
// before packets meet the first part of it, and so says which snapshot holds. What cannot be
// written or pinned never holds up a change: it is noted as a fault, and tried again.

// Keep says where a data plane is kept.
type Keep struct {
	Store *pins.Store
	// Snapshot is the path of the snapshots, without their number.
	Snapshot string
	// Cookie is the network namespace's.
	Cookie uint64
	// Files write the snapshots, and are told of those that cannot be written; nil: nobody is.
	Files *durable.Files
}

// keeper keeps a data plane. A nil one keeps nothing.
type keeper struct {
	Keep
	// number is that of the last snapshot, and set of the last pins.
	number, set uint64
	// pinContent is that of the store; tests have one that fails.
	pinContent func(name string, data []byte) error
	// unwritten is the last snapshot where it is no file, and its number.
	unwritten       []byte
	unwrittenNumber uint64
	// size is that of the last snapshot, and reserved the room that the file for the next one has, in bytes, as far as
	// they are known.
	size, reserved int64
	// lost: the directory that was locked is not at its path any more, and what is kept is not pinned in the
	// one in its place yet. note says that it was, until it is read.
	lost bool
	note string
	// lines are the encoded services of the last snapshot.
	lines map[*generation.Record][]byte
}

func newKeeper(keep *Keep) *keeper {
	if keep == nil {
		return nil
	}
	k := &keeper{Keep: *keep, lines: map[*generation.Record][]byte{}}
	if k.Files == nil {
		k.Files = durable.New(durable.Options{})
	}
	if k.Store != nil {
		k.pinContent = k.Store.Store
	}
	return k
}

// show tells packets' memory which snapshot holds.
func (k *keeper) show(m *generation.Memory) {
	if k != nil {
		atomic.StoreUint64(&m.Head().Snapshot, k.number)
	}
}

// pin pins a generation that was loaded.
func (k *keeper) pin(g *loader.Programs, shared *sharedmaps.Maps, sockets *sockets) {
	if k == nil {
		return
	}
	k.set++
	pinned := map[string]pins.Pinner{generationPin: mapPin{g.Memory.Map}}
	for name, m := range shared.ByName() {
		pinned[name] = mapPin{m}
	}
	for name, m := range sockets.maps() {
		pinned[name] = mapPin{m}
	}
	for i, p := range g.Programs {
		pinned[programPin(g.Ports[i].Index)] = programPinner{p}
	}
	if g.Watch != nil {
		pinned[objects.OrphanMapWatches] = mapPin{g.Watch.Maps[objects.OrphanMapWatches]}
	}
	g.Set = k.set
	if err := k.Store.Put(k.set, pinned); err != nil {
		k.lose(err)
	}
}

// lose notes that something could not be pinned. Packets go by it all the same, and keepAgain pins it later.
func (k *keeper) lose(err error) {
	k.lost = true
	k.Files.Note(whatPins, k.Store.Dir(), err, false)
}

// whatPins is what a fault of the pins is about.
const whatPins = "what the next process goes on with of the data plane"

// generationPin names the pin of a generation's memory.
const generationPin = "generation"

// programPin names the pin of the program on the interface of an index. Neither it nor a link
// goes by the order of the interfaces, which a change of them changes.
func programPin(index int) string { return programPrefix + strconv.Itoa(index) }

const programPrefix = "program-"

// mapPin and programPinner pin a copy of the handle.
type (
	mapPin        struct{ *ebpf.Map }
	programPinner struct{ *ebpf.Program }
)

func (p mapPin) PinCopy(path string) error {
	again, err := p.Clone()
	if err != nil {
		return err
	}
	return errors.Join(again.Pin(path), again.Close())
}

func (p programPinner) PinCopy(path string) error {
	again, err := p.Clone()
	if err != nil {
		return err
	}
	return errors.Join(again.Pin(path), again.Close())
}

// removeOld removes the pins and the snapshots of before. What cannot be removed is tried again
// after the next change; it costs memory, and harms nothing.
func (k *keeper) removeOld(g *loader.Programs) {
	if k == nil {
		return
	}
	_ = k.Store.Keep(g.Set)
	k.sweep(k.holding(g.Memory))
	k.reserve()
}

// giveUp removes the pins, and the snapshot, of generations that did not come into use: the one in use is g,
// nil where there is none.
func (k *keeper) giveUp(g *loader.Programs) {
	if k != nil && g != nil {
		_ = k.Store.Keep(g.Set)
		// A snapshot of what did not come into use would later be taken for the newest that did.
		k.sweep(k.holding(g.Memory))
		k.goBack(k.holding(g.Memory))
	}
}

// forget removes everything that is kept.
func (k *keeper) forget() error {
	if k == nil {
		return nil
	}
	return errors.Join(k.removeSnapshots(), k.Store.Remove())
}

// clear takes off what is attached by links and removes all pins. The links are closed here: where only a
// pin is removed, the kernel takes the program off a moment later, and the interface has it until then.
func (k *keeper) clear() error {
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

// remove removes a file if it is there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// hold pins what keeps a program on an interface. Where it cannot be pinned, it is there all the same.
func (k *keeper) hold(h attach.Hold, w attach.Method, p attach.Port) attach.Hold {
	l, is := h.(link.Link)
	if k == nil || !is {
		return h // a filter outlives us by itself
	}
	if err := l.Pin(k.Store.Path("", w.LinkPin(p.Index))); err != nil {
		k.lose(fmt.Errorf("pinning the link of %s: %w", w.Name, err))
	}
	return attach.PinnedLink{Link: l}
}
