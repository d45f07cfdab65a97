// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestFailsOpen compares program and model while the program fails open, and before and after: packets for a VIP are
// left to the kernel, and replies go on.
func TestFailsOpen(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		state := allKinds()
		r := newRig(t, hook, state)
		g := &generator{Rand: rand.New(rand.NewPCG(1, 2)), tb: t, model: r.model, ids: 1, first: state.Services}
		ends := r.feedRandom(t, hook, g, func(part int) {
			r.model.failOpen = ""
			head := r.datapath.current.Memory.Head()
			head.Orphaned = uint16(part % 2)
			r.datapath.Standby(part%3 == 2)
			switch {
			case head.Orphaned != 0:
				r.model.failOpen = "passed_orphaned"
			case head.Standby != 0:
				r.model.failOpen = "passed_backup"
			}
		}, func() bool { return r.model.failOpen != "" })
		failOpen, not := ends[true], ends[false]
		if failOpen["passed_orphaned"] == 0 || failOpen["passed_backup"] == 0 || failOpen["returned"] == 0 ||
			failOpen["forwarded"] != 0 ||
			not["forwarded"] == 0 || not["passed_orphaned"]+not["passed_backup"] != 0 {
			t.Errorf("packets ended so while it did not fail open: %v, and so while it did: %v", not, failOpen)
		}
	})
}

// TestStandbyOutlivesGenerations: a program that is loaded again for a backup leaves packets for VIPs to the kernel as
// well, and one for the balancer that holds them does not.
func TestStandbyOutlivesGenerations(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, testState())
		d := r.datapath
		for _, standby := range []bool{true, false} {
			d.Standby(standby)
			before := d.current
			d.tracing, before.Tracing = nil, &traced.Tracing{}
			if err := d.Apply(testState()); err != nil {
				t.Fatal(err)
			}
			if d.current == before || d.current.Memory.Head().Standby != 0 != standby {
				t.Errorf("the program loaded anew: %t; it stands by: %d, want %t", d.current != before,
					d.current.Memory.Head().Standby, standby)
			}
		}
	})
}

// TestOrphanFailsOpen leaves a kept data plane: after its time it fails open, by the kernel alone, and no more once
// another process moves its clock or has taken it over.
func TestOrphanFailsOpen(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		k := newRestartRig(t)
		k.orphan = 500 * time.Millisecond
		first, err := k.open()
		if err != nil {
			return err
		}
		if len(first.Notes()) != 0 {
			t.Errorf("it says %q", first.Notes())
		}
		if err := first.Apply(testState()); err != nil {
			return err
		}
		path := first.keeper.Store.Path(pins.Set(first.current.Set), keeper.GenerationPin)
		if err := first.Release(); err != nil {
			return err
		}
		m, err := generation.OpenMemory(path)
		if err != nil {
			return err
		}
		failOpen := func() bool { return m.Head().Orphaned != 0 }
		testenv.Eventually(t, testenv.WaitLimit, "it fails open", failOpen)
		store, err := k.store()
		if err != nil {
			return err
		}
		kept, err := keeper.Read(k.location(store))
		store.Close()
		if now := time.Now(); err != nil || !kept.IsFailOpen || kept.FailOpen.After(now) ||
			kept.FailOpen.Before(now.Add(-time.Hour)) {
			t.Errorf("the kept data plane failed open (%t) at %v: %v", kept.IsFailOpen, kept.FailOpen, err)
		}
		// As a process that was only held up does.
		testenv.Eventually(t, testenv.WaitLimit, "it balances again", func() bool {
			atomic.AddUint32(&m.Head().Clock, 50)
			return !failOpen()
		})
		testenv.Eventually(t, testenv.WaitLimit, "it fails open again", failOpen)
		m.Storage.Unmap()
		m.Map.Close()

		// Longer than this process may be stopped.
		k.orphan = time.Minute
		again, err := k.open()
		if err != nil {
			return err
		}
		defer again.Close()
		if err := again.Apply(testState()); err != nil {
			return err
		}
		if again.current.Memory.Head().Orphaned != 0 {
			t.Error("a data plane that another process has taken over fails open")
		}
		return nil
	})
}

// TestWatchEnds removes the handles and pins that keep a watch: its timer stops.
func TestWatchEnds(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		k := newRestartRig(t)
		k.orphan = time.Minute
		d, err := k.openWith(testState())
		if err != nil {
			return err
		}
		watches, err := d.current.Watchdog.Maps[objects.OrphanMapWatches].Info()
		if err != nil {
			return err
		}
		id, _ := watches.ID()
		if err := d.Close(); err != nil {
			return err
		}
		testenv.Eventually(t, testenv.WaitLimit, "the kernel has freed the map of the timer", func() bool {
			m, err := ebpf.NewMapFromID(id)
			if err == nil {
				m.Close()
			}
			return err != nil
		})
		return nil
	})
}
