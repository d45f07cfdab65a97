// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestStandsAside compares program and model while the program stands aside, and before and after:
// what is for a VIP is left to the kernel, and replies go on.
func TestStandsAside(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		state := allKinds()
		r := newRig(t, hook, state)
		g := &generator{Rand: rand.New(rand.NewPCG(1, 2)), tb: t, model: r.model, ids: 1, first: state.Services}
		ends := r.feedRandom(t, hook, g, func(part int) {
			r.model.aside = part%2 == 1
			var aside uint32
			if r.model.aside {
				aside = 1
			}
			atomic.StoreUint32(&r.datapath.current.memory.head().Aside, aside)
		}, func() bool { return r.model.aside })
		if ends[true]["passed_orphaned"] == 0 || ends[true]["returned"] == 0 || ends[false]["forwarded"] == 0 ||
			ends[true]["forwarded"] != 0 || ends[false]["passed_orphaned"] != 0 {
			t.Errorf("packets ended so while it did not stand aside: %v, and so while it did: %v", ends[false], ends[true])
		}
	})
}

// TestOrphanStepsAside lets a kept data plane go: after its time it stands aside, by the kernel
// alone, and no more once another process moves its clock or has taken it over.
func TestOrphanStepsAside(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, nics(t), func() error {
		k := newKept(t)
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
		path := first.keeper.Store.Path(pins.Set(first.current.set), generationPin)
		if err := first.Leave(); err != nil {
			return err
		}
		m, err := openMemory(path)
		if err != nil {
			return err
		}
		aside := func() bool { return atomic.LoadUint32(&m.head().Aside) != 0 }
		testenv.Eventually(t, 30*time.Second, "it stands aside", aside)
		store, err := k.store()
		if err != nil {
			return err
		}
		kept, err := ReadKept(k.keep(store))
		store.Close()
		if now := time.Now(); err != nil || !kept.IsFailOpen || kept.FailOpen.After(now) || kept.FailOpen.Before(now.Add(-time.Hour)) {
			t.Errorf("what is kept stepped aside (%t) at %v: %v", kept.IsFailOpen, kept.FailOpen, err)
		}
		// As a process that was only held up does.
		testenv.Eventually(t, 30*time.Second, "it balances again", func() bool {
			atomic.AddUint32(&m.head().Clock, 50)
			return !aside()
		})
		testenv.Eventually(t, 30*time.Second, "it stands aside again", aside)
		m.storage.Unmap()
		m.m.Close()

		again, err := k.open()
		if err != nil {
			return err
		}
		defer again.Close()
		if err := again.Apply(testState()); err != nil {
			return err
		}
		if atomic.LoadUint32(&again.current.memory.head().Aside) != 0 {
			t.Error("what another process has taken over stands aside")
		}
		return nil
	})
}

// TestWatchEnds takes away what a watch is kept by, and finds that it has looked for the last time.
func TestWatchEnds(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, nics(t), func() error {
		k := newKept(t)
		k.orphan = time.Minute
		d, err := k.openWith(testState())
		if err != nil {
			return err
		}
		watches, err := d.current.watch.Maps[objects.OrphanMapWatches].Info()
		if err != nil {
			return err
		}
		id, _ := watches.ID()
		if err := d.Close(); err != nil {
			return err
		}
		testenv.Eventually(t, 30*time.Second, "the kernel has freed the map of the timer", func() bool {
			m, err := ebpf.NewMapFromID(id)
			if err == nil {
				m.Close()
			}
			return err != nil
		})
		return nil
	})
}
