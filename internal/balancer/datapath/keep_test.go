// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/balancer/datapath/takeover"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// restartRig opens datapaths that outlive each other, on one interface.
type restartRig struct {
	dir      string
	hook     lb.Hook
	attempts func(lb.Hook, []attach.Port) []attach.Attempt
	// programs returns the kind of programs to load instead of the embedded ones; nil for those.
	programs func(lb.Hook) loader.Kind
	limit    uint32
	// orphan is Options.Orphan.
	orphan time.Duration
}

func newRestartRig(t testing.TB) *restartRig {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		// Pins of a test that failed would keep its directory.
		if store, err := pins.Find(dir, "test"); err == nil {
			_ = store.Remove()
		}
	})
	return &restartRig{dir: dir, hook: lb.HookTC}
}

// newRestartRigPass is newRestartRig for a test of files, pins and maps, for which any program will do.
func newRestartRigPass(t testing.TB) *restartRig {
	t.Helper()
	k := newRestartRig(t)
	k.programs = passProgram
	return k
}

func (k *restartRig) store() (*pins.Store, error) { return pins.Open(k.dir, "test") }

func (k *restartRig) location(store *pins.Store) *keeper.Location {
	return &keeper.Location{Store: store, Snapshot: filepath.Join(k.dir, "snapshot"), Cookie: 7}
}

func (k *restartRig) open() (*Datapath, error) {
	store, err := k.store()
	if err != nil {
		return nil, err
	}
	d, err := Open(Options{Interfaces: []string{"veth0"}, Hook: k.hook, TableSize: testTableSize, FlowLimit: k.limit,
		Keep: k.location(store), Orphan: k.orphan})
	if err != nil {
		store.Close()
		return nil, err
	}
	if k.attempts != nil {
		d.attempts = k.attempts
	}
	if k.programs != nil {
		d.programs = k.programs
	}
	return d, nil
}

// next ends the process of a datapath, and lets another one adopt the data plane.
func (k *restartRig) next(before *Datapath) (*Datapath, error) {
	if err := before.Release(); err != nil {
		return nil, err
	}
	return k.adopt()
}

// openWith opens a datapath and applies a state.
func (k *restartRig) openWith(state lb.State) (*Datapath, error) {
	d, err := k.open()
	if err != nil {
		return nil, err
	}
	if err := d.Apply(state); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// adopt opens a datapath that must take over another one's data plane.
func (k *restartRig) adopt() (*Datapath, error) {
	d, err := k.open()
	if err == nil && !d.Adopted() {
		return nil, errors.Join(fmt.Errorf("it was not taken over: %q", d.Notes()), d.Close())
	}
	return d, err
}

// onlyBy has programs attached by one way, whatever hook is asked for.
func onlyBy(w attach.Method) func(lb.Hook, []attach.Port) []attach.Attempt {
	return func(lb.Hook, []attach.Port) []attach.Attempt {
		return []attach.Attempt{{Method: w, Reason: "as in the test"}}
	}
}

// rememberFlow puts an established flow of the first service into a datapath's table.
func rememberFlow(t *testing.T, d *Datapath) objects.XDPFlow {
	t.Helper()
	is := d.register.Records[0]
	flow := objects.XDPFlow{Port: 7, Service: is.ID, Backend: is.Places[0].Index, Generation: is.Places[0].Generation}
	if !d.shared.Proven.Insert(flow, objects.XDPFlowStateFLOW_ESTABLISHED, d.janitor.Now()) {
		t.Fatal("no room for a flow")
	}
	return flow
}

// TestKept leaves a datapath and takes it over, by every method to attach: nothing is detached meanwhile, identities,
// flows and counters stay, and a closed datapath leaves nothing.
func TestKept(t *testing.T) {
	testenv.Root(t)
	for _, w := range testenv.Some(t, testenv.HooksTarget, 2, ofThisKernel(takeover.KeptMethods...)) {
		t.Run(w.Name, func(t *testing.T) {
			testenv.In(t, newNICs(t), func() error {
				k := newRestartRig(t)
				k.hook, k.attempts = w.Hook, onlyBy(w)
				first, err := k.open()
				if err != nil {
					return err
				}
				state := testState()
				if err := first.Apply(state); err != nil {
					return err
				}
				flow := rememberFlow(t, first)
				program, backends, clock := first.Program(), maps.Clone(first.register.Places.Backends),
					first.janitor.Now()
				before, err := program.Info()
				if err != nil {
					return err
				}
				id, _ := before.ID()
				again, err := k.next(first)
				if err != nil {
					return err
				}
				info, err := again.Program().Info()
				if err != nil {
					return err
				}
				if now, _ := info.ID(); now != id {
					t.Errorf("before the first Apply, program %d is in the place of %d", now, id)
				}
				if err := again.Apply(state); err != nil {
					return err
				}
				if again.Adopted() {
					t.Error("it goes on with what the process before has loaded")
				}
				if err := expectRunning("veth0", again.Program()); err != nil {
					t.Error(err)
				}
				if !maps.Equal(again.register.Places.Backends, backends) {
					t.Errorf("places were %v and are %v", backends, again.register.Places.Backends)
				}
				if _, there := again.shared.Proven.Find(&flow); !there {
					t.Error("a flow is forgotten")
				}
				if now := again.janitor.Now(); now < clock {
					t.Errorf("the clock goes back from %d to %d", clock, now)
				}
				if again.method != w {
					t.Errorf("it is attached by %s", again.method.Name)
				}
				if sets, err := again.keeper.Store.Sets(); err != nil || len(sets) != 1 {
					t.Errorf("sets of pins: %v, %v", sets, err)
				}
				if err := again.Close(); err != nil {
					return err
				}
				if err := expectAttached([]string{"veth0"}, false); err != nil {
					t.Error(err)
				}
				left, err := os.ReadDir(k.dir)
				if err != nil || len(left) != 0 {
					t.Errorf("there is left: %v, %v", left, err)
				}
				return nil
			})
		})
	}
}

// TestKeptAfterKill takes over the data plane of a process that was killed in the middle of a change, at each step: the
// state before it or after it is there, whole.
func TestKeptAfterKill(t *testing.T) {
	testenv.Root(t)
	more := func() lb.State {
		s := testState()
		s.Services = append(s.Services, testService(netip.MustParseAddr("192.0.2.99"), 99, lb.TCP, lb.RoundRobin, 40))
		return s
	}
	// pinNext makes the next generation, up to its pins.
	pinNext := func(d *Datapath) (*loader.Programs, error) {
		c, err := d.register.Plan(more(), testTableSize, d.now())
		if err != nil {
			return nil, err
		}
		memory, _, err := d.makeMemory(c, d.shared)
		if err != nil {
			return nil, err
		}
		d.writeSnapshot(c, d.current.Ports)
		d.keeper.WriteNumber(memory)
		return d.load(d.programs(lb.HookTC), d.current.Ports, memory, d.shared)
	}
	for name, dies := range map[string]func(d *Datapath) error{
		"before the snapshot": func(*Datapath) error { return nil },
		"after the snapshot, before a change in place": func(d *Datapath) error {
			c, err := d.register.Plan(more(), testTableSize, d.now())
			if err != nil {
				return err
			}
			d.writeSnapshot(c, d.current.Ports)
			return nil
		},
		"in the middle of a change in place": func(d *Datapath) error {
			c, err := d.register.Plan(more(), testTableSize, d.now())
			if err != nil {
				return err
			}
			p := d.current.Memory.Prepare(c)
			if p == nil {
				return errors.New("no room")
			}
			d.writeSnapshot(c, d.current.Ports)
			d.keeper.WriteNumber(d.current.Memory)
			p.PublishRows(p.Rows)
			return nil
		},
		"with a generation that is pinned and not attached": func(d *Datapath) error {
			_, err := pinNext(d)
			return err
		},
		"with a generation that is attached and not noted": func(d *Datapath) error {
			made, err := pinNext(d)
			if err != nil {
				return err
			}
			_, err = d.changeInterfaces(d.current.Ports, made)
			return err
		},
		"with pins that are half made": func(d *Datapath) error {
			return os.Mkdir(d.keeper.Store.Path("", pins.Set(9)+"-new"), 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.In(t, newNICs(t), func() error {
				k := newRestartRigPass(t)
				first, err := k.openWith(testState())
				if err != nil {
					return err
				}
				backends := maps.Clone(first.register.Places.Backends)
				if err := dies(first); err != nil {
					return err
				}
				again, err := k.next(first)
				if err != nil {
					return err
				}
				defer again.Close()
				if err := again.Apply(more()); err != nil {
					return err
				}
				for key, was := range backends {
					if is := again.register.Places.Backends[key]; is != was {
						t.Errorf("%v had the place %v and has %v", key, was, is)
					}
				}
				return expectRunning("veth0", again.Program())
			})
		})
	}
}

// TestKeptIsRefused finds data planes that it cannot take over: nothing is touched, and the error names the remedy.
func TestKeptIsRefused(t *testing.T) {
	testenv.Root(t)
	snapshotOf := func(d *Datapath) string { return d.keeper.File(d.keeper.Number) }
	edit := func(change func([]byte) []byte) func(d *Datapath) error {
		return func(d *Datapath) error {
			data, err := os.ReadFile(snapshotOf(d))
			if err != nil {
				return err
			}
			return os.WriteFile(snapshotOf(d), change(data), 0o600)
		}
	}
	foreign := func(object func(*Datapath) string) func(d *Datapath) error {
		return func(d *Datapath) error {
			path := d.keeper.Store.Path(pins.Set(d.current.Set), object(d))
			if err := os.Remove(path); err != nil {
				return err
			}
			m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
			if err != nil {
				return err
			}
			return errors.Join(m.Pin(path), m.Close())
		}
	}
	for name, test := range map[string]struct {
		spoil func(*Datapath) error
		want  string
	}{
		"no snapshot":     {func(d *Datapath) error { return os.Remove(snapshotOf(d)) }, "is missing"},
		"half a snapshot": {edit(func(b []byte) []byte { return b[:len(b)/2] }), "damaged"},
		"another checksum": {edit(func(b []byte) []byte {
			return bytes.Replace(b, []byte("198.18.2"), []byte("198.18.3"), 1)
		}), "checksum"},
		"a newer snapshot": {edit(func(b []byte) []byte {
			return bytes.Replace(b, fmt.Appendf(nil, `"version":%d`, snapshot.Version),
				fmt.Appendf(nil, `"version":%d`, snapshot.Version+1), 1)
		}), "another version"},
		"counters of backends laid out differently": {func(d *Datapath) error {
			return rewriteSnapshot(d, func(s *snapshot.Snapshot) {
				s.Layouts[objects.XDPMapBackendCounts] = "another"
				delete(s.Elements, objects.XDPMapBackendCounts)
			})
		}, "its map backend_counts is laid out differently, and it does not say where"},
		"counters of backends without a field": {func(d *Datapath) error {
			return rewriteSnapshot(d, func(s *snapshot.Snapshot) {
				s.Layouts[objects.XDPMapBackendCounts] = "another"
				delete(s.Elements[objects.XDPMapBackendCounts].Fields, "bytes")
			})
		}, `have no field "bytes"`},
		"turns for fewer services": {func(d *Datapath) error {
			path := d.keeper.Store.Path(pins.Set(d.current.Set), objects.XDPMapTurns)
			spec, err := loader.XDP.Load()
			if err != nil {
				return err
			}
			m, err := ebpf.NewMap(spec.Maps[objects.XDPMapTurns])
			if err != nil {
				return err
			}
			return errors.Join(os.Remove(path), m.Pin(path), m.Close())
		}, "for fewer services"},
		"a foreign map": {foreign(func(*Datapath) string { return objects.XDPMapFlows }), "is no map of ours"},
		"a foreign program": {foreign(func(d *Datapath) string { return keeper.ProgramPin(d.current.Ports[0].Index) }),
			"is no program of ours"},
		"a foreign memory": {foreign(func(*Datapath) string { return keeper.GenerationPin }), "is no memory"},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.In(t, newNICs(t), func() error {
				k := newRestartRigPass(t)
				first, err := k.openWith(testState())
				if err != nil {
					return err
				}
				program, err := first.Program().Clone()
				if err != nil {
					return err
				}
				defer program.Close()
				if err := errors.Join(test.spoil(first), first.Release()); err != nil {
					return err
				}
				if d, err := k.open(); err == nil {
					d.Close()
					t.Fatal("it was taken over")
				} else if !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "jeoul detach") {
					t.Errorf("the error is %q, want %q and what to do", err, test.want)
				}
				return expectRunning("veth0", program)
			})
		})
	}
}

// TestKeptByOne keeps a second process away from the first one's data plane.
func TestKeptByOne(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		k := newRestartRigPass(t)
		first, err := k.open()
		if err != nil {
			return err
		}
		defer first.Close()
		if err := first.Apply(testState()); err != nil {
			return err
		}
		if _, err := k.open(); !errors.Is(err, pins.ErrBusy) {
			t.Errorf("a second one: %v", err)
		}
		return expectRunning("veth0", first.Program())
	})
}

// TestKeptGrows lets the tables grow while a datapath is taken over, and keeps transitions
// and previous endpoints.
func TestKeptGrows(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		k := newRestartRigPass(t)
		k.limit = 1000
		first, err := k.open()
		if err != nil {
			return err
		}
		nat := testService(netip.MustParseAddr("192.0.2.77"), 77, lb.TCP, lb.Maglev, 4)
		nat.Mode = lb.NAT
		if err := first.Apply(lb.State{Services: []lb.RoutedService{nat}}); err != nil {
			return err
		}
		less := nat
		less.Backends, less.Paths = nat.Backends[:3], nat.Paths[:3]
		if err := first.Apply(lb.State{Services: []lb.RoutedService{less}}); err != nil {
			return err
		}
		was := first.register.Records[0].View
		if len(first.register.Places.Previous) != 1 || was.Base == nil || was.Moved.Empty() {
			t.Fatalf("no transition, or no previous endpoint: %+v", was)
		}
		previous := maps.Clone(first.register.Places.Previous)
		if err := first.Release(); err != nil {
			return err
		}
		k.limit = 5000
		again, err := k.open()
		if err != nil {
			return err
		}
		defer again.Close()
		if err := again.Apply(lb.State{Services: []lb.RoutedService{less}}); err != nil {
			return err
		}
		is := again.register.Records[0].View
		if is.Base == nil || is.Moved.Empty() || is.Moved.Count != was.Moved.Count || !is.Until.Equal(was.Until) ||
			!is.Since.Equal(was.Since) {
			t.Errorf("the transition was %+v and is %+v", was, is)
		}
		for key, e := range previous {
			if now, there := again.register.Places.Previous[key]; !there || now.Index != e.Index ||
				!now.Until.Equal(e.Until) {
				t.Errorf("the previous endpoint %v was %v and is %v", key, e, now)
			}
		}
		if have := again.shared.Flows.MaxEntries(); have < flowtable.BucketsFor(5000) {
			t.Errorf("the table has %d buckets", have)
		}
		return nil
	})
}

// TestSnapshotRestores writes a snapshot of a register and restores another register from it.
func TestSnapshotRestores(t *testing.T) {
	r := generation.NewRegister()
	states := [][]int{{4, 6}, {3, 6}, {3}, {5, 2}}
	now := time.Unix(1_000_000, 0)
	for _, sizes := range states {
		var state lb.State
		for i, n := range sizes {
			s := testService(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 80, lb.TCP, lb.RoundRobin, n)
			s.Mode = lb.NAT
			for at := range s.Backends {
				s.Backends[at].Port = uint16(1000*i + at + 1)
			}
			state.Services = append(state.Services, s)
		}
		c, err := r.Plan(state, testTableSize, now)
		if err != nil {
			t.Fatal(err)
		}
		head := c.Places.Saved()
		head.Hook = lb.HookTC
		var lines [][]byte
		for _, is := range c.Records {
			line, err := is.Saved().Line()
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
		r.Commit(c)
		data, err := snapshot.Encode(head, lines)
		if err != nil {
			t.Fatal(err)
		}
		saved, err := snapshot.Decode(data.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		got, err := generation.Restore(saved)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got.Places.Backends, r.Places.Backends) || !maps.Equal(got.Places.Services, r.Places.Services) {
			t.Errorf("places were %v, %v and are %v, %v", r.Places.Backends, r.Places.Services, got.Places.Backends,
				got.Places.Services)
		}
		if !bytes.Equal(got.Places.References, r.Places.References) {
			t.Errorf("holders were %v and are %v", r.Places.References, got.Places.References)
		}
		if !maps.Equal(got.Places.Endpoints, r.Places.Endpoints) || len(got.Places.Previous) != len(r.Places.Previous) {
			t.Errorf("endpoints were %v, %v and are %v, %v", r.Places.Endpoints, r.Places.Previous,
				got.Places.Endpoints, got.Places.Previous)
		}
	}
}
