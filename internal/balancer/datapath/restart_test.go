// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// BenchmarkAdoption measures how long it takes until a process serves with a data plane that another one has left: to
// find it (found-ms), and with the first change (apply-ms), in which its programs take the place of those that forward
// until then; cpu-ms is what the process uses of the processors for both. With flows, they are in tables of this
// build's layout, or of another.
func BenchmarkAdoption(b *testing.B) {
	testenv.Root(b)
	for _, c := range []struct {
		services, backends, flows int
		other                     bool
	}{{10, 10, 0, false}, {10_000, 10, 0, false}, {10_000, 10, 1_000_000, false}, {10_000, 10, 1_000_000, true}} {
		layout := "same"
		if c.other {
			layout = "other"
		}
		b.Run(fmt.Sprintf("%dx%d/flows=%d/layout=%s", c.services, c.backends, c.flows, layout), func(b *testing.B) {
			testenv.In(b, newNICs(b), func() error {
				k := newRestartRig(b)
				k.hook, k.limit = lb.HookXDP, 1_000_000
				return adoptAgain(b, k, scaledState(c.services, c.backends, lb.RoundRobin), c.flows, c.other)
			})
		})
	}
}

// adoptAgain takes a data plane over as often as is asked.
func adoptAgain(b *testing.B, k *restartRig, state lb.State, flows int, other bool) error {
	d, err := k.openWith(state)
	if err != nil {
		return err
	}
	remembered := 0
	for n := range flows {
		flow := benchFlow(d, n)
		if d.shared.Proven.Insert(flow, objects.XDPFlowStateFLOW_ESTABLISHED, d.janitor.Now()) {
			remembered++
		}
	}
	var found, applied, busy time.Duration
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		if other {
			if err := replacePinnedTables(b, d); err != nil {
				return err
			}
		}
		if err := d.Release(); err != nil {
			return err
		}
		b.StartTimer()
		began, used := time.Now(), processTime()
		if d, err = k.adopt(); err != nil {
			return err
		}
		found += time.Since(began)
		began = time.Now()
		if err := d.Apply(state); err != nil {
			return err
		}
		applied += time.Since(began)
		busy += processTime() - used
	}
	b.StopTimer()
	b.ReportMetric(float64(busy.Milliseconds())/float64(b.N), "cpu-ms")
	b.ReportMetric(float64(found.Milliseconds())/float64(b.N), "found-ms")
	b.ReportMetric(float64(applied.Milliseconds())/float64(b.N), "apply-ms")
	if n := len(d.shared.Proven.Places()); n != remembered {
		return errors.Join(fmt.Errorf("of %d flows %d are remembered", remembered, n), d.Close())
	}
	return d.Close()
}

// processTime is the CPU time of the process: on a busy machine, it says more than the time that went by.
func processTime() time.Duration {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// benchFlow is a flow of one of the services, to one of its backends.
func benchFlow(d *Datapath, n int) objects.XDPFlow {
	is := d.register.Records[n%len(d.register.Records)]
	to := is.Places[n/len(d.register.Records)%len(is.Places)]
	return objects.XDPFlow{Address: [4]uint32{uint32(n)}, Port: uint16(n), Service: is.ID, Backend: to.Index,
		Generation: to.Generation}
}

// replacePinnedTables puts tables of another layout in the place of a datapath's pinned ones, with its flows.
func replacePinnedTables(b *testing.B, d *Datapath) error {
	layout := anotherLayout(b)
	none := func(*objects.XDPFlow) bool { return false }
	store, set := d.keeper.Store, d.current.Set
	for name, table := range map[string]*flowtable.Table{objects.XDPMapFlows: d.shared.Proven,
		objects.XDPMapNewcomers: d.shared.Unproven} {
		w := newForeign(b, layout, len(table.Buckets)*flowtable.PerBucket)
		w.copyFrom(table, none)
		path := store.Path(pins.Set(set), name)
		err := errors.Join(os.Remove(path), w.table.Map.Pin(path))
		w.table.Close()
		if err != nil {
			return err
		}
	}
	return rewriteSnapshot(d, func(s *snapshot.Snapshot) {
		s.Flows = layout
		s.Layouts[objects.XDPMapFlows], s.Layouts[objects.XDPMapNewcomers] = "another", "another"
	})
}
