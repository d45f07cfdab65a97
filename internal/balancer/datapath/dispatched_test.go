// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/takeover"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// libxdpObjects is set where libxdp's tools are installed and the kernel lets programs replace functions of
// others: the directory of its objects.
const libxdpObjects = "JEOUL_TEST_LIBXDP"

// xdpLoader runs libxdp's own tool.
func xdpLoader(args ...string) error {
	command := exec.Command("xdp-loader", args...)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", command, err, out)
	}
	return nil
}

// loadWithLibxdp has libxdp load one of its own programs onto veth0.
func loadWithLibxdp(object, program string, priority int) error {
	return loadOnto("veth0", object, program, priority)
}

// chain lists the programs of the dispatcher on veth0.
func chain() (names []string, ids map[string]uint32) {
	ids = map[string]uint32{}
	nic, err := net.InterfaceByName("veth0")
	if err != nil {
		return []string{err.Error()}, ids
	}
	all, _, err := libxdp.Components(nic.Index)
	if err != nil {
		return []string{err.Error()}, ids
	}
	for _, c := range all {
		names = append(names, c.Name)
		ids[c.Name] = uint32(c.ID)
	}
	return names, ids
}

// expectOrder returns an error unless the dispatcher on veth0 runs these programs in this order, and its pins are the
// only ones.
func expectOrder(when string, want ...string) error {
	names, _ := chain()
	if !slices.Equal(names, want) {
		return fmt.Errorf("%s, the dispatcher runs %q, want %q", when, names, want)
	}
	if dirs, err := dispatchers(); err != nil || len(dirs) != 1 {
		return fmt.Errorf("%s, pinned are %v, want one dispatcher: %v", when, dirs, err)
	}
	return nil
}

// dispatchers lists the directories of pinned dispatchers.
func dispatchers() (dirs []string, err error) {
	return filepath.Glob("/sys/fs/bpf/xdp/dispatch-*")
}

// expectText says that a text does not say something.
func expectText(text, what string) error {
	if !strings.Contains(text, what) {
		return fmt.Errorf("it says %q, and not %q", text, what)
	}
	return nil
}

// expectNoDispatchers says that a dispatcher is pinned.
func expectNoDispatchers() error {
	dirs, err := dispatchers()
	if err == nil && len(dirs) > 0 {
		return fmt.Errorf("pinned are still %v", dirs)
	}
	return err
}

// needLibxdp skips a test where libxdp cannot be had.
func needLibxdp(t *testing.T) {
	t.Helper()
	if os.Getenv(libxdpObjects) == "" {
		t.Skip(libxdpObjects + " names no directory: this is for a virtual machine, make test-kernels")
	}
	testenv.Root(t)
}

const (
	libxdpFilter = "xdpfilt_alw_tcp"
	libxdpPass   = "xdp_pass"
)

// TestDispatcher has libxdp's own loader put programs onto the interface before ours and after it, and take them off:
// ours joins, keeps its place when it is exchanged, left and taken over, and leaves.
func TestDispatcher(t *testing.T) {
	needLibxdp(t)
	testenv.In(t, newNICs(t), func() error {
		if err := loadWithLibxdp(libxdpFilter+".o", libxdpFilter, 10); err != nil {
			return err
		}
		k := newRestartRig(t)
		k.hook, k.programs = lb.HookXDP, passProgram
		d, err := k.openWith(testState())
		if err != nil {
			return err
		}
		err = expectJoin(k, &d)
		return errors.Join(err, d.Close())
	})
	if err := expectNoDispatchers(); err != nil {
		t.Error(err)
	}
}

func expectJoin(k *restartRig, d **Datapath) error {
	ours := loader.XDP.Name
	if err := expectOrder("joined", libxdpFilter, ours); err != nil {
		return err
	}
	is := (*d).Attachments()[0]
	if is.String() != "xdp (native)" || !strings.Contains(is.Reason, "libxdp's dispatcher is on veth0, which runs "+
		libxdpFilter+" (10): joined at run priority 20") {
		return fmt.Errorf("it is attached as %+v", is)
	}
	if err := loadWithLibxdp("xdp-dispatcher.o", libxdpPass, 50); err != nil {
		return err
	}
	if err := expectOrder("after another has come", libxdpFilter, ours, libxdpPass); err != nil {
		return err
	}
	_, before := chain()
	if err := (*d).Apply(withSwappedService(testState(), 1)); err != nil {
		return err
	}
	if err := expectOrder("exchanged", libxdpFilter, ours, libxdpPass); err != nil {
		return err
	}
	if _, after := chain(); after[ours] == before[ours] || after[libxdpPass] != before[libxdpPass] ||
		after[libxdpFilter] != before[libxdpFilter] {
		return fmt.Errorf("exchanging ours, the programs %v became %v", before, after)
	}
	if err := (*d).Release(); err != nil {
		return err
	}
	_, left := chain()
	if err := xdpLoader("unload", "veth0", "--id", strconv.Itoa(int(left[libxdpFilter]))); err != nil {
		return err
	}
	again, err := k.adopt()
	if err != nil {
		return err
	}
	*d = again
	if err := again.Apply(testState()); err != nil {
		return err
	}
	if err := expectOrder("taken over, and one has gone meanwhile", ours, libxdpPass); err != nil {
		return err
	}
	if err := again.Close(); err != nil {
		return err
	}
	if err := expectOrder("closed", libxdpPass); err != nil {
		return err
	}
	return xdpLoader("unload", "veth0", "--all")
}

// TestDispatcherOfOurs is left alone with the dispatcher, which goes with it.
func TestDispatcherOfOurs(t *testing.T) {
	needLibxdp(t)
	testenv.In(t, newNICs(t), func() error {
		if err := loadWithLibxdp(libxdpFilter+".o", libxdpFilter, 10); err != nil {
			return err
		}
		k := newRestartRig(t)
		k.hook, k.programs = lb.HookXDP, passProgram
		d, err := k.openWith(testState())
		if err != nil {
			return err
		}
		defer d.Close()
		_, ids := chain()
		if err := xdpLoader("unload", "veth0", "--id", strconv.Itoa(int(ids[libxdpFilter]))); err != nil {
			return err
		}
		if err := expectOrder("alone", loader.XDP.Name); err != nil {
			return err
		}
		// A second balancer is refused.
		if err := refusedFor(t, lb.HookXDP, []string{"libxdp's dispatcher, id", loader.XDP.Name,
			"jeoul detach --interface veth0"}); err != nil {
			return err
		}
		// Another takes all off; ours is put back when that is looked at, and by the next change.
		for when, back := range map[string]func() error{
			"looked at": func() error {
				note, err := d.Repin()
				return errors.Join(err, expectText(note, "it is put back"))
			},
			"changed": func() error { return d.Apply(withSwappedService(testState(), 1)) },
		} {
			if err := xdpLoader("unload", "veth0", "--all"); err != nil {
				return err
			}
			if err := errors.Join(back(), expectOrder(when, loader.XDP.Name)); err != nil {
				return err
			}
		}
		if err := d.Close(); err != nil {
			return err
		}
		if ids, err := programsOn("veth0"); err != nil || len(ids) > 0 {
			t.Errorf("after Close, veth0 has the programs %v: %v", ids, err)
		}
		return expectNoDispatchers()
	})
}

// TestDispatcherHooks changes the hook on an interface with libxdp's dispatcher, there and back.
func TestDispatcherHooks(t *testing.T) {
	needLibxdp(t)
	testenv.In(t, newNICs(t), func() error {
		if err := loadWithLibxdp(libxdpFilter+".o", libxdpFilter, 10); err != nil {
			return err
		}
		d, err := Open(Options{Interfaces: []string{"veth0"}, Hook: lb.HookTC, TableSize: testTableSize})
		if err != nil {
			return err
		}
		d.programs = passProgram
		defer d.Close()
		for _, step := range []struct {
			hook lb.Hook
			want []string
		}{
			{lb.HookTC, []string{libxdpFilter}},
			{lb.HookXDP, []string{libxdpFilter, loader.XDP.Name}},
			{lb.HookTC, []string{libxdpFilter}},
		} {
			state := testState()
			state.Hook = step.hook
			if err := d.Apply(state); err != nil {
				return err
			}
			if err := expectOrder("with hook: "+string(step.hook), step.want...); err != nil {
				return err
			}
		}
		return errors.Join(d.Close(), xdpLoader("unload", "veth0", "--all"))
	})
}

// TestDispatcherPackets has the balancer's own program between two others: packets for the VIP come back, each of
// them, also while the dispatcher is exchanged by us and by libxdp. Where the kernel keeps programs that change packets
// out of the dispatcher of this libxdp, the balancer is refused, or in TC.
func TestDispatcherPackets(t *testing.T) {
	needLibxdp(t)
	ns, outside := testenv.Namespace(t), testenv.Namespace(t)
	mac, _ := testenv.Veth(t, testenv.End{Namespace: ns, Name: "veth0"}, testenv.End{Namespace: outside, Name: "peer0"})
	testenv.In(t, outside, func() error { return attachPassXDP(t, "peer0") })
	served := newPackets(t, outside, "peer0", mac)
	testenv.In(t, ns, func() error {
		if err := loadWithLibxdp("xdp-dispatcher.o", libxdpPass, 10); err != nil {
			return err
		}
		k := newRestartRig(t)
		k.hook = lb.HookXDP
		d, err := k.openWith(killState(3, 1))
		if errors.Is(err, libxdp.ErrUnsupported) {
			t.Logf("this kernel and this libxdp: %v", err)
			return errors.Join(expectInTC(k, err), xdpLoader("unload", "veth0", "--all"), expectNoDispatchers())
		}
		if err != nil {
			return err
		}
		defer d.Close()
		served.begin(t)
		if err := errors.Join(loadWithLibxdp("xdp-dispatcher.o", libxdpPass, 50),
			d.Apply(withSwappedService(killState(3, 1), 1))); err != nil {
			return err
		}
		served.end(t, "")
		if err := expectOrder("in the end", libxdpPass, loader.XDP.Name, libxdpPass); err != nil {
			return err
		}
		return errors.Join(d.Close(), xdpLoader("unload", "veth0", "--all"), expectNoDispatchers())
	})
}

// expectInTC has a balancer in TC whose program cannot be in the dispatcher.
func expectInTC(k *restartRig, refused error) error {
	err := errors.Join(expectText(refused.Error(), "those of 1.5.5 and newer do"), expectText(refused.Error(), "set hook: tc"),
		expectOrder("refused", libxdpPass))
	if err != nil {
		return err
	}
	// A veth is for TC anyway.
	k.attempts = func(requested lb.Hook, ports []attach.Port) []attach.Attempt {
		return append(attach.Attempts(lb.HookXDP, ports), attach.Attempts(lb.HookTC, nil)...)
	}
	k.hook = lb.HookAuto
	d, err := k.openWith(killState(3, 1))
	if err != nil {
		return err
	}
	is := d.Attachments()[0]
	return errors.Join(expectText(is.String(), "tc"),
		expectText(is.Reason, "another program has XDP on veth0 (libxdp's dispatcher, id"), d.Close())
}

// TestLoaderAfterOurs has libxdp's loader come to an interface that ours has without a dispatcher: it is refused.
func TestLoaderAfterOurs(t *testing.T) {
	needLibxdp(t)
	testenv.In(t, newNICs(t), func() error {
		d, err := Open(Options{Interfaces: []string{"veth0"}, Hook: lb.HookXDP, TableSize: testTableSize})
		if err != nil {
			return err
		}
		d.programs = passProgram
		defer d.Close()
		if err := d.Apply(testState()); err != nil {
			return err
		}
		if err := loadWithLibxdp(libxdpFilter+".o", libxdpFilter, 10); err == nil {
			t.Error("the loader has put its program beside ours")
		}
		return errors.Join(expectRunning("veth0", d.Program()), d.Close(), expectNoDispatchers())
	})
}

// TestAutoBesideOthers has XDP taken by a program that cannot be joined, and by a dispatcher that cannot have ours:
// with hook: auto the balancer is in TC and says why, with hook: xdp it is refused.
func TestAutoBesideOthers(t *testing.T) {
	testenv.Root(t)
	for name, test := range map[string]struct {
		method attach.Method
		occupy bool
		says   string
	}{
		"another's program": {attach.NativeXDP, true,
			`another program has XDP on veth0 (program "occupant", id `},
		"a dispatcher without it": {attach.NativeDispatched, false, "the program cannot be in libxdp's dispatcher"},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.In(t, newNICs(t), func() error {
				if test.occupy {
					other, err := attachForeign("veth0")
					if err != nil {
						return err
					}
					defer other.Close()
				}
				d, err := Open(Options{Interfaces: []string{"veth0"}, Hook: lb.HookAuto, TableSize: testTableSize})
				if err != nil {
					return err
				}
				defer d.Close()
				// No function of a dispatcher can be replaced by a program of which nothing tells its type.
				d.programs = func(hook lb.Hook) loader.Kind {
					kind := passProgram(hook)
					load := kind.Load
					kind.Load = func() (*ebpf.CollectionSpec, error) {
						spec, err := load()
						if err == nil {
							spec.Programs[kind.Name].Instructions[0].Metadata = asm.Metadata{}
						}
						return spec, err
					}
					return kind
				}
				d.attempts = func(requested lb.Hook, _ []attach.Port) []attach.Attempt {
					if requested == lb.HookXDP {
						return []attach.Attempt{{Method: test.method}}
					}
					return append([]attach.Attempt{{Method: test.method}}, attach.Attempts(lb.HookTC, nil)...)
				}
				refused := testState()
				refused.Hook = lb.HookXDP
				if err := d.Apply(refused); err == nil || !strings.Contains(err.Error(), "hook: tc") {
					t.Errorf("with hook: xdp the error is %v", err)
				}
				state := testState()
				state.Hook = lb.HookAuto
				if err := d.Apply(state); err != nil {
					return err
				}
				if is := d.Attachments()[0]; is.Hook != lb.HookTC || !strings.Contains(is.Reason, test.says) {
					t.Errorf("it is attached as %+v, want in TC and that %q", is, test.says)
				}
				return d.Close()
			})
		})
	}
}

// TestPassIsKnown: the program that stands in for ours while the hook changes is known by its number once a process was
// killed meanwhile.
func TestPassIsKnown(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		k := newRestartRig(t)
		k.hook, k.programs = lb.HookTC, passProgram
		d, err := k.openWith(testState())
		if err != nil {
			return err
		}
		defer d.Close()
		pass, err := attach.PassXDP()
		if err != nil {
			return err
		}
		defer pass.Close()
		f := &takeover.Found{Store: d.keeper.Store}
		before, err := keeper.ProgramsOf(f.Store, []uint64{d.current.Set})
		if err != nil {
			return err
		}
		if err := d.keeper.PinPass(d.current, pass); err != nil {
			return err
		}
		after, err := keeper.ProgramsOf(f.Store, []uint64{d.current.Set})
		if err != nil {
			return err
		}
		info, err := pass.Info()
		if err != nil {
			return err
		}
		if id, _ := info.ID(); len(after) != len(before)+1 || !slices.Contains(after, id) {
			t.Errorf("with program %d pinned, those of the set are %v, and were %v", id, after, before)
		}
		return d.Close()
	})
}
