// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// holdTracedLoad has the kernel withhold the first traced program until release is called. Begun is closed when it is
// asked for; loads counts how often.
func holdTracedLoad(t *testing.T, d *Datapath) (begun chan struct{}, release func(), loads *int) {
	t.Helper()
	begun, loads = make(chan struct{}), new(int)
	released := make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	load := d.kernel.Load
	d.kernel.Load = func(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) (*ebpf.Collection, error) {
		if _, isTraced := spec.Maps["trace_noted"]; isTraced {
			if *loads++; *loads == 1 {
				close(begun)
				select {
				case <-released:
				case <-time.After(testenv.WaitLimit):
					t.Error("the change waits for the program")
				}
			}
		}
		return load(spec, maps)
	}
	return begun, release, loads
}

// drainFirst is the state in which the first backend of each service takes no new flow.
func drainFirst(state lb.State) lb.State {
	for i := range state.Services {
		state.Services[i].Backends[0].Draining = true
	}
	return state
}

// TestChangesWhileTracedProgramLoads: a change does not wait for the verification of a program that captures or
// explains packets, and packets are captured and explained by what changed meanwhile.
func TestChangesWhileTracedProgramLoads(t *testing.T) {
	question := trace.Question{Source: client4, SourcePort: 1234, Destination: vip4, DestinationPort: 80,
		Protocol: lb.TCP, Flags: []string{"syn"}}
	for name, change := range map[string]struct {
		state lb.State
		// waits: the change replaces the generation, whose maps stay open until the program is loaded.
		waits bool
	}{
		"in place":           {drainFirst(testState()), false},
		"another generation": {drainFirst(allModes()), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Run("capture", func(t *testing.T) {
				r := newRig(t, lb.HookXDP, testState())
				changed, loads := changeWhileHeld(t, r, change.state, change.waits)
				c := startBackgroundCapture(t, r, "all", capture.Request{})
				<-changed
				if want := map[bool]int{false: 1, true: 2}[change.waits]; *loads != want {
					t.Errorf("the traced program was loaded %d times; want %d", *loads, want)
				}
				r.learnOwners()
				r.run(t, web4().build(t))
				if n := len(c.finish(t).packets); n != 1 || r.traces(t) {
					t.Errorf("captured %d packets; after the end, a traced program: %t", n, r.traces(t))
				}
			})
			t.Run("explain", func(t *testing.T) {
				r := newRig(t, lb.HookXDP, testState())
				changed, _ := changeWhileHeld(t, r, change.state, change.waits)
				p, err := r.datapath.Explain(question)
				if err != nil {
					t.Fatal(err)
				}
				<-changed
				again, err := r.datapath.Explain(question)
				if err != nil || jsonOf(p) != jsonOf(again) {
					t.Errorf("explained as %s; after the change as %s, %v", jsonOf(p), jsonOf(again), err)
				}
			})
		})
	}
}

// releaseWhenLocked calls release once another goroutine holds the data plane's lock.
func releaseWhenLocked(d *Datapath, release func()) {
	for d.mu.TryLock() {
		d.mu.Unlock()
		<-time.After(time.Millisecond)
	}
	release()
}

// changeWhileHeld changes the state while the first traced program is held. Changed is closed when it has.
func changeWhileHeld(t *testing.T, r *rig, state lb.State, waits bool) (changed chan struct{}, loads *int) {
	t.Helper()
	begun, release, loads := holdTracedLoad(t, r.datapath)
	changed = make(chan struct{})
	go func() {
		defer close(changed)
		<-begun
		if waits {
			go releaseWhenLocked(r.datapath, release) // it holds the lock until the program is loaded
		}
		if err := r.datapath.Apply(state); err != nil {
			t.Errorf("the change: %v", err)
		}
		if err := r.model.apply(state); err != nil {
			t.Error(err)
		}
		release()
	}()
	return changed, loads
}

// TestCloseWhileTracedProgramLoads: a capture that begins while the data plane ends says so, and takes nothing along.
func TestCloseWhileTracedProgramLoads(t *testing.T) {
	r := newRig(t, lb.HookTC, testState())
	begun, release, _ := holdTracedLoad(t, r.datapath)
	closed := make(chan error, 1)
	go func() {
		<-begun
		go releaseWhenLocked(r.datapath, release)
		closed <- r.datapath.Close()
	}()
	err := r.datapath.Capture(t.Context(), capture.Request{}, func(capture.Event) error { return nil })
	if !errors.Is(err, ErrClosed) {
		t.Errorf("the capture ends with %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
