// SPDX-License-Identifier: Apache-2.0

package libxdp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/rcu"
)

// Place is an interface to whose dispatcher a program of ours is added, or is to be.
type Place struct {
	nic *nic
	// version and generic are the protocol version and the mode of a new dispatcher, where there is none.
	version byte
	generic bool
	// ours are programs that only this place has had, by which sweep recognises the pins of a killed process.
	ours []ebpf.ProgramID
}

// Open opens the place on an interface, by its index, in this network namespace. If the interface has no dispatcher, a
// change creates one in native XDP, or in generic. The caller closes the place.
func Open(index int, generic bool) (*Place, error) {
	n, err := openNIC(index)
	if err != nil {
		return nil, err
	}
	return &Place{nic: n, version: versionInUse(), generic: generic}, nil
}

// versionInUse returns the version of the existing dispatchers, so that this host's libxdp can work with ours: it
// rejects newer ones, and does not add to older ones.
func versionInUse() byte {
	entries, _ := os.ReadDir(root())
	for _, e := range entries {
		_, id, ok := parseDir(e.Name())
		if !ok {
			continue
		}
		if d, err := describe(id); err == nil {
			d.close()
			return d.config.version
		}
	}
	return oldestVersion
}

// Close releases the place. The programs in the dispatcher stay.
func (p *Place) Close() { p.nic.close() }

// Remember adds programs that the place had before it was opened.
func (p *Place) Remember(ids ...ebpf.ProgramID) { p.ours = append(p.ours, ids...) }

// Components lists the programs of the dispatcher on an interface, by its index: see Place.Components.
func Components(index int) (components []Component, generic bool, err error) {
	n, err := openNIC(index)
	if err != nil {
		return nil, false, err
	}
	defer n.close()
	return n.components()
}

// Components lists the dispatcher's programs in the order in which they run, and whether it is in generic XDP. Errors:
// ErrForeign, also where the interface has no program, ErrVersion, ErrLocked.
func (p *Place) Components() (components []Component, generic bool, err error) {
	return p.nic.components()
}

func (n *nic) components() (components []Component, generic bool, err error) {
	if id, _, err := n.attached(); err != nil || id == 0 {
		return nil, false, errors.Join(ErrForeign, err)
	}
	if _, err := os.Stat(root()); err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	locked, err := lock()
	if err != nil {
		return nil, false, err
	}
	defer locked.Close()
	d, generic, err := read(n)
	if err != nil || d == nil {
		return nil, false, errors.Join(err, ErrForeign)
	}
	defer d.close()
	components = slices.Clone(d.components)
	for i := range components {
		components[i].program = nil
	}
	return components, generic, nil
}

// Put adds a program to the dispatcher, and atomically removes the program `instead`, if it is there. Errors:
// ErrForeign, ErrVersion, ErrLocked, ErrUnsupported, ErrFull, ErrRaced.
func (p *Place) Put(c Component, instead ebpf.ProgramID) error {
	p.Remember(c.ID)
	return p.change(func(all []Component) []Component { return append(without(all, instead), c) })
}

// Remove removes programs from the dispatcher, and detaches a dispatcher that has no others. Programs that are not in
// it are ignored. Errors are those of Put.
func (p *Place) Remove(ids ...ebpf.ProgramID) error {
	p.Remember(ids...)
	return p.change(func(all []Component) []Component { return without(all, ids...) })
}

func without(all []Component, ids ...ebpf.ProgramID) []Component {
	return slices.DeleteFunc(slices.Clone(all), func(c Component) bool { return slices.Contains(ids, c.ID) })
}

// retries bounds how often a change is retried because the interface's program was replaced meanwhile, which libxdp
// does without the lock.
const retries = 20

// change replaces the dispatcher by one with other components.
func (p *Place) change(edit func([]Component) []Component) error {
	locked, err := lock()
	if err != nil {
		return err
	}
	defer locked.Close()
	for range retries {
		err = p.changeOnce(edit)
		if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EBUSY) {
			return err
		}
		<-time.After(pause)
	}
	return fmt.Errorf("%w: %w", ErrRaced, err)
}

func (p *Place) changeOnce(edit func([]Component) []Component) error {
	old, generic, err := read(p.nic)
	if errors.Is(err, unix.ENODEV) {
		return p.interfaceGone(edit)
	}
	if err != nil {
		return err
	}
	defer old.close()
	like := config{version: p.version}
	var before []Component
	var from *ebpf.Program
	if old != nil {
		like, before, from = old.config, old.components, old.program
		p.version, p.generic = like.version, generic
	}
	if like.bound {
		return fmt.Errorf("%w: it is bound to its device, as libxdp makes it for programs that read a card's metadata",
			ErrUnsupported)
	}
	after := sorted(edit(before))
	if same(before, after) {
		return nil
	}
	if len(after) == 0 {
		if err := p.nic.exchange(from, nil, p.generic); err != nil {
			return fmt.Errorf("taking the dispatcher off: %w", err)
		}
		p.sweepAfter(old, 0, before, after)
		return nil
	}
	dispatcher, err := like.make(after)
	if err != nil {
		return err
	}
	defer dispatcher.close()
	dir, err := dispatcher.pin(p.nic.index)
	if err != nil {
		return err
	}
	if err := p.nic.exchange(from, dispatcher.program, p.generic); err != nil {
		return errors.Join(fmt.Errorf("putting the dispatcher into its place: %w", err), removeDir(dir))
	}
	p.sweepAfter(old, dispatcher.id, before, after)
	return nil
}

// same reports whether components are the same programs with the same settings, in the same order.
func same(a, b []Component) bool {
	return slices.EqualFunc(a, b, func(a, b Component) bool { return a.ID == b.ID && a.slot == b.slot })
}

// numbers lists the ids of components' programs.
func numbers(components ...[]Component) (ids []ebpf.ProgramID) {
	for _, c := range slices.Concat(components...) {
		ids = append(ids, c.ID)
	}
	return ids
}

// interfaceGone handles a change of a dispatcher whose interface was deleted, and all its programs with it.
func (p *Place) interfaceGone(edit func([]Component) []Component) error {
	if len(edit(nil)) > 0 {
		return unix.ENODEV
	}
	p.sweepAfter(nil, 0, nil, nil)
	return nil
}

// sweepAfter sweeps after a change: pins that cannot be removed only cost memory, and the next change retries that.
func (p *Place) sweepAfter(old *dispatcher, now ebpf.ProgramID, before, after []Component) {
	known := slices.Concat(p.ours, numbers(before, after))
	if old != nil {
		known = append(known, old.id)
		// A packet may still be in the old dispatcher, and would skip programs that are detached with their pins.
		rcu.Wait()
	}
	if p.nic.sweep(now, known) != nil {
		return
	}
	p.ours = slices.DeleteFunc(p.ours, func(id ebpf.ProgramID) bool {
		return !slices.ContainsFunc(after, func(c Component) bool { return c.ID == id })
	})
}

// pin pins a dispatcher's components, all or none, and returns the directory.
func (d *dispatcher) pin(index int) (dir string, err error) {
	dir = filepath.Join(root(), dirName(index, d.id))
	// A program's id is reused only after 2^31 others.
	if err = removeDir(dir); err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	for i := 0; err == nil && i < len(d.components); i++ {
		if err = d.links[i].Pin(filepath.Join(dir, linkPin(i))); err == nil {
			err = pinCopy(d.components[i].program, filepath.Join(dir, programPin(i)))
		}
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("pinning a dispatcher in %s: %w", dir, err), removeDir(dir))
	}
	return dir, nil
}

// pinCopy pins a program in addition to its present pin, which the library would move.
func pinCopy(program *ebpf.Program, path string) error {
	clone, err := program.Clone()
	if err != nil {
		return err
	}
	return errors.Join(clone.Pin(path), clone.Close())
}

// Sweep removes the pins that a killed process has left for an interface, by its index: those of dispatchers with these
// programs, except the attached one. Without dispatchers on this host it does nothing.
func Sweep(index int, ids ...ebpf.ProgramID) error {
	if _, err := os.Stat(root()); err != nil {
		return nil
	}
	n, err := openNIC(index)
	if err != nil {
		return err
	}
	defer n.close()
	locked, err := lock()
	if err != nil {
		return err
	}
	defer locked.Close()
	now, _, err := n.attached()
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return err
	}
	if d, _, err := read(n); err == nil && d != nil {
		defer d.close()
		running := numbers(d.components)
		ids = slices.DeleteFunc(slices.Clone(ids), func(id ebpf.ProgramID) bool { return slices.Contains(running, id) })
	}
	return n.sweep(now, ids)
}

// sweep removes the pins of dispatchers for the interface that are not attached: of those that are known or have a
// known program, and of incomplete ones, which a killed process leaves. Known are the replaced dispatcher, programs of
// ours, and the others that this dispatcher ran or runs: the leftover pins of a dispatcher from which ours were to be
// removed have only those. Nothing else shows that a dispatcher is attached nowhere: an interface of another network
// namespace may have the same index.
//
// Another process may be about to attach a dispatcher that it has pinned, but that fails once the attached one was
// replaced; so other processes' programs are passed as known only after the replacement. A process pins while it holds
// the lock, so no incomplete dispatcher is still being completed.
func (n *nic) sweep(now ebpf.ProgramID, known []ebpf.ProgramID) error {
	entries, err := os.ReadDir(root())
	if err != nil {
		return fmt.Errorf("looking for pins of dispatchers: %w", err)
	}
	for _, e := range entries {
		index, id, ok := parseDir(e.Name())
		if !ok || index != n.index || id == now {
			continue
		}
		dir := filepath.Join(root(), e.Name())
		if slices.Contains(known, id) || !isComplete(dir, id) || hasOneOf(dir, known) {
			err = errors.Join(err, removeDir(dir))
		}
	}
	return err
}

// isComplete reports whether all programs of a dispatcher are pinned in a directory. A dispatcher that cannot be read
// counts as complete.
func isComplete(dir string, id ebpf.ProgramID) bool {
	d, err := describe(id)
	if errors.Is(err, fs.ErrNotExist) {
		return false // the dispatcher is not loaded any more
	}
	if err != nil {
		return true
	}
	defer d.close()
	for i := range d.config.slots {
		if _, err := os.Stat(filepath.Join(dir, programPin(i))); errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// hasOneOf reports whether one of these programs is pinned in a directory.
func hasOneOf(dir string, ids []ebpf.ProgramID) bool {
	for i := range Slots {
		c, err := open(filepath.Join(dir, programPin(i)), slot{})
		if err != nil {
			continue
		}
		c.program.Close()
		if slices.Contains(ids, c.ID) {
			return true
		}
	}
	return false
}

// removeDir removes a dispatcher's pins, if they are there.
func removeDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
	}
	return errors.Join(err, os.Remove(dir))
}
