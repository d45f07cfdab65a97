// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/jeoul/jeoul/internal/datapath/pins"
)

// A data plane that is kept outlives its process: its links, programs and maps are pinned, and
// a snapshot says what the process knew of them. Each loaded generation is a set of pins. The
// snapshot of a change is written before it is made; its number is in the generation's memory
// before packets meet the first part of it, and so says which snapshot holds.

// Keep says where a data plane is kept.
type Keep struct {
	Store *pins.Store
	// Snapshot is the path of the snapshots, without their number.
	Snapshot string
	// Cookie is the network namespace's.
	Cookie uint64
}

// keeper keeps a data plane. A nil one keeps nothing.
type keeper struct {
	Keep
	// number is that of the last snapshot that was written, and set of the last pins.
	number, set uint64
	// lost: the directory that was locked is not at its path any more, and what is kept is not pinned in the
	// one in its place yet. note says that it was, until it is read.
	lost bool
	note string
	// lines are the encoded services of the last snapshot.
	lines map[*record][]byte
}

func newKeeper(keep *Keep) *keeper {
	if keep == nil {
		return nil
	}
	return &keeper{Keep: *keep, lines: map[*record][]byte{}}
}

// file returns the path of a snapshot.
func (k *keeper) file(number uint64) string {
	return k.Snapshot + "." + strconv.FormatUint(number, 10)
}

// write writes a snapshot, whole or not at all.
func (k *keeper) write(number uint64, data []byte) error {
	path := k.file(number)
	err := os.WriteFile(path+".new", data, 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing the snapshot of the data plane (nothing was changed): %w", err), remove(path+".new"))
	}
	return nil
}

// show tells packets' memory which snapshot holds.
func (k *keeper) show(m *memory) {
	if k != nil {
		atomic.StoreUint64(&m.head().Snapshot, k.number)
	}
}

// pin pins a generation that was loaded.
func (k *keeper) pin(g *generation, shared *shared, sockets *sockets) error {
	if k == nil {
		return nil
	}
	k.set++
	objects := map[string]pins.Pinner{generationPin: mapPin{g.memory.m}}
	for name, m := range shared.maps() {
		objects[name] = mapPin{m}
	}
	for name, m := range sockets.maps() {
		objects[name] = mapPin{m}
	}
	for i, p := range g.programs {
		objects[programPin(g.ports[i].index)] = programPinner{p}
	}
	if g.watch != nil {
		objects[orphanMapWatches] = mapPin{g.watch.Maps[orphanMapWatches]}
	}
	g.set = k.set
	return k.Store.Put(k.set, objects)
}

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

// settle removes the pins and the snapshots of before. What cannot be removed is tried again
// after the next change; it costs memory, and harms nothing.
func (k *keeper) settle(g *generation) {
	if k == nil {
		return
	}
	_ = k.Store.Keep(g.set)
	k.sweep(g.memory.head().Snapshot)
}

// giveUp removes the pins of generations that did not come into use: the one in use is g,
// nil where there is none.
func (k *keeper) giveUp(g *generation) {
	if k != nil && g != nil {
		_ = k.Store.Keep(g.set)
	}
}

// sweep removes all snapshots but one.
func (k *keeper) sweep(but uint64) {
	numbers, _ := k.snapshots()
	for _, n := range numbers {
		if n != but {
			_ = remove(k.file(n))
		}
	}
}

// snapshots lists the numbers of those that there are.
func (k *keeper) snapshots() (numbers []uint64, err error) {
	entries, err := os.ReadDir(filepath.Dir(k.Snapshot))
	for _, e := range entries {
		digits, is := strings.CutPrefix(e.Name(), filepath.Base(k.Snapshot)+".")
		if n, err := strconv.ParseUint(digits, 10, 64); is && err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers, err
}

// forget removes everything that is kept.
func (k *keeper) forget() error {
	if k == nil {
		return nil
	}
	numbers, err := k.snapshots()
	for _, n := range numbers {
		err = errors.Join(err, remove(k.file(n)))
	}
	return errors.Join(err, k.Store.Remove())
}

// clear takes off what is attached by links and removes all pins. The links are closed here: where only a
// pin is removed, the kernel takes the program off a moment later, and the interface has it until then.
func (k *keeper) clear() error {
	err := k.clearDispatched()
	names, failed := k.Store.Links()
	err = errors.Join(err, failed)
	for _, name := range names {
		if l, _, failed := linkAt(k.Store.Path("", name)); failed == nil {
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

// leaver is a hold that can be let go of without taking the program off.
type leaver interface{ Leave() error }

// pinnedLink keeps a program on an interface, and goes on when the process ends.
type pinnedLink struct{ link.Link }

// Leave lets go of the link, which goes on.
func (p pinnedLink) Leave() error { return p.Link.Close() }

// Close takes the program off the interface, also where a pin that cannot be reached keeps the link, under
// a mount for one. The pin goes first: a link that is detached is of no use to a next process.
func (p pinnedLink) Close() error {
	err := p.Unpin()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, p.Detach(), p.Link.Close())
}

// linkPin names the pin of the link to the interface of an index.
func (w way) linkPin(index int) string { return w.linkPrefix() + strconv.Itoa(index) }

// linkPrefix begins the names of the pins of a way's links.
func (w way) linkPrefix() string {
	return strings.ReplaceAll(strings.ToLower(w.name), " ", "-") + "-"
}

// hold pins what keeps a program on an interface. On an error it is closed.
func (k *keeper) hold(h hold, w way, p port) (hold, error) {
	l, is := h.(link.Link)
	if k == nil || !is {
		return h, nil // a filter outlives us by itself
	}
	if err := l.Pin(k.Store.Path("", w.linkPin(p.index))); err != nil {
		return nil, errors.Join(fmt.Errorf("pinning the link of %s: %w", w.name, err), h.Close())
	}
	return pinnedLink{l}, nil
}
