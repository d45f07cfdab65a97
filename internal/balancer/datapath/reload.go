// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"

	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tracing"
)

// maxUnlockedLoads is how often programs are loaded without the lock before changes have to wait for them.
const maxUnlockedLoads = 3

// loadUnlocked loads programs for the current generation while changes go on: the kernel verifies a traced program for
// a second or more, and a backend that dies meanwhile must be taken out. Begin is called under the lock, and returns
// the function that loads by the maps of the generation that is current then. Those stay open until it has returned:
// awaitLoads. If the generation was replaced meanwhile, discard frees what was loaded, and it is loaded for the next
// one. The caller holds d.mu. Error: ErrClosed.
func (d *Datapath) loadUnlocked(begin func() (load func() error), discard func()) error {
	for range maxUnlockedLoads {
		of, load := d.current, begin()
		d.loading.RLock()
		d.mu.Unlock()
		err := load()
		d.loading.RUnlock()
		d.mu.Lock()
		if d.current == of && !d.closed {
			return err
		}
		if err == nil {
			discard()
		}
		if d.closed {
			return ErrClosed
		}
	}
	return begin()()
}

// awaitLoads waits until nothing is loaded by maps that are about to be closed. The caller holds d.mu.
func (d *Datapath) awaitLoads() {
	d.loading.Lock()
	defer d.loading.Unlock()
}

// reload loads the programs again, for captures with the maps of t or, where t is nil, plain ones, and puts them in the
// place of the present ones. The memory stays. On an error, the present ones go on. Changes go on while it loads.
func (d *Datapath) reload(t *tracing.Loaded) error {
	var kind loader.Kind
	var made *loader.Programs
	err := d.loadUnlocked(func() func() error {
		ports, memory, shared, answers := d.current.Ports, d.current.Memory, d.shared, d.checks.Answers()
		kind = d.presentKind()
		return func() (err error) {
			made, err = d.kernel.LoadPrograms(kind, ports, memory, shared, t.Maps(), answers)
			return err
		}
	}, func() { made.Close() })
	if err != nil {
		return err
	}
	return d.exchange(t, kind, made)
}

// exchange puts programs of a kind, which were loaded for the current generation, in the place of the present ones.
// Where another kind is needed, or none was loaded (nil), it loads them. On an error, the present ones go on.
func (d *Datapath) exchange(t *tracing.Loaded, kind loader.Kind, loaded *loader.Programs) error {
	last, before := d.current, d.tracing
	d.tracing = t
	made, err := d.install(last.Ports, d.hook, func(needed loader.Kind) (*loader.Programs, error) {
		if loaded == nil || !needed.Is(kind) {
			return d.load(needed, last.Ports, last.Memory, d.shared)
		}
		taken := loaded
		loaded = nil
		return d.keep(taken, d.shared)
	})
	loaded.Close()
	if err != nil {
		d.tracing = before
		return err
	}
	d.current = made
	d.keeper.RemoveOld(made)
	last.Close()
	return nil
}

// checkRunning returns an error where no programs are loaded: no Apply yet, or closed.
func (d *Datapath) checkRunning() error {
	if d.closed {
		return ErrClosed
	}
	if d.current == nil {
		return errors.New("the balancer has no configuration yet")
	}
	return nil
}
