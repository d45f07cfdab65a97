// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// newNICs returns a namespace with two veths, which have native XDP, and two
// bridges, which have none.
func newNICs(t testing.TB) *namespace.Namespace {
	t.Helper()
	ns, peer := testenv.Namespace(t), testenv.Namespace(t)
	for _, number := range []string{"0", "1"} {
		testenv.Veth(t, testenv.End{Namespace: ns, Name: "veth" + number},
			testenv.End{Namespace: peer, Name: "peer" + number})
		testenv.In(t, ns, func() error {
			return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge" + number}})
		})
	}
	return ns
}

func TestAttach(t *testing.T) {
	testenv.Root(t)
	for _, test := range []struct {
		name, nic string
		hook      lb.Hook
		want      string
	}{
		{"XDP where the driver has it", "veth0", lb.HookXDP, "xdp (native)"},
		{"XDP where the driver has none", "bridge0", lb.HookXDP, "xdp (generic)"},
		{"TC", "veth0", lb.HookTC, "tc"},
		{"auto on a veth", "veth0", lb.HookAuto, "tc"},
		{"auto without native XDP", "bridge0", lb.HookAuto, "tc"},
	} {
		t.Run(test.name, func(t *testing.T) {
			testenv.In(t, newNICs(t), func() error {
				d, err := Open(Options{Interfaces: []string{test.nic}, Hook: test.hook, TableSize: testTableSize})
				if err != nil {
					return err
				}
				d.programs = passProgram
				defer d.Close()
				if err := d.Apply(testState()); err != nil {
					return err
				}
				if got := d.Attachments(); len(got) != 1 || got[0].String() != test.want ||
					got[0].Interface != test.nic || got[0].Reason == "" {
					t.Errorf("attached as %+v, want %s", got, test.want)
				}
				if attached, err := attachedTo(test.nic); err != nil || !attached {
					t.Errorf("the kernel says that nothing is attached (%v)", err)
				}
				// A change of the modes swaps the program and leaves the link.
				before := d.Program()
				if err := d.Apply(withSwappedService(testState(), 1)); err != nil {
					return err
				}
				if d.Program() == before {
					t.Error("nothing was swapped")
				}
				if err := expectRunning(test.nic, d.Program()); err != nil {
					t.Error(err)
				}
				if err := d.Close(); err != nil {
					return err
				}
				if attached, err := attachedTo(test.nic); err != nil || attached {
					t.Errorf("something is attached after Close (%v)", err)
				}
				return nil
			})
		})
	}
}

// attachedTo asks the kernel whether a program is on the interface.
func attachedTo(name string) (bool, error) {
	ids, err := programsOn(name)
	return len(ids) > 0, err
}

// TestAttachSeveral: all interfaces are attached to by one method.
func TestAttachSeveral(t *testing.T) {
	testenv.Root(t)
	for _, test := range []struct {
		name   string
		nics   []string
		hook   lb.Hook
		want   string
		reason string
	}{
		{"XDP where all drivers have it", []string{"veth0", "veth1"}, lb.HookXDP, "xdp (native)", "all drivers"},
		{"XDP where one driver has none", []string{"veth0", "bridge0"}, lb.HookXDP, "xdp (generic)", "bridge0"},
		{"TC", []string{"bridge0", "veth0"}, lb.HookTC, "tc", "as configured"},
		{"auto with a veth", []string{"bridge0", "veth1"}, lb.HookAuto, "tc", "veth1"},
		{"auto without native XDP", []string{"bridge0", "bridge1"}, lb.HookAuto, "tc", "bridge0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			testenv.In(t, newNICs(t), func() error {
				d, err := Open(Options{Interfaces: test.nics, Hook: test.hook, TableSize: testTableSize})
				if err != nil {
					return err
				}
				d.programs = passProgram
				defer d.Close()
				if err := d.Apply(testState()); err != nil {
					return err
				}
				got := d.Attachments()
				if len(got) != len(test.nics) {
					return fmt.Errorf("attached as %+v, want %v", got, test.nics)
				}
				for i, nic := range test.nics {
					if got[i].Interface != nic || got[i].String() != test.want ||
						!strings.Contains(got[i].Reason, test.reason) {
						t.Errorf("attached as %+v, want %s on %s because of %q", got[i], test.want, nic, test.reason)
					}
				}
				if err := expectAttached(test.nics, true); err != nil {
					t.Error(err)
				}
				if err := d.Apply(testState()); err != nil {
					return err
				}
				if err := d.Close(); err != nil {
					return err
				}
				return expectAttached(test.nics, false)
			})
		})
	}
}

// expectAttached returns an error unless each interface has a program, or none.
func expectAttached(names []string, want bool) error {
	for _, name := range names {
		if attached, err := attachedTo(name); err != nil || attached != want {
			return fmt.Errorf("%s: a program is attached: %v, want %v (%v)", name, attached, want, err)
		}
	}
	return nil
}

// passProgram is a program that passes everything, with the maps of the real one: attaching works the same with any
// program, and this one is verified at once.
func passProgram(hook lb.Hook) loader.Kind {
	kind := loader.KindFor(hook)
	load := kind.Load
	kind.Load = func() (*ebpf.CollectionSpec, error) {
		spec, err := load()
		if err == nil {
			spec.Programs[kind.Name].Instructions = shortProgram(spec.Programs[kind.Name],
				asm.Mov.Imm(asm.R0, int32(actions[hook].pass)), asm.Return())
		}
		return spec, err
	}
	return kind
}

// shortProgram returns instructions for a program in the place of its own. They are of the same function, without which
// they could not be a dispatcher's.
func shortProgram(program *ebpf.ProgramSpec, instructions ...asm.Instruction) asm.Instructions {
	instructions[0].Metadata = program.Instructions[0].Metadata
	return instructions
}

// TestAttachAllOrNone lets the second of two interfaces refuse.
func TestAttachAllOrNone(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		other, err := attachForeign("veth1")
		if err != nil {
			return err
		}
		defer other.Close()
		d, err := Open(Options{Interfaces: []string{"veth0", "veth1"}, Hook: lb.HookXDP, TableSize: testTableSize})
		if err != nil {
			return err
		}
		d.programs = passProgram
		defer d.Close()
		if err := d.Apply(testState()); !errors.Is(err, attach.ErrBusy) || !strings.Contains(err.Error(), "veth1") {
			t.Errorf("the second interface has another XDP program: %v", err)
		}
		return expectAttached([]string{"veth0"}, false)
	})
}

// TestSwapAllOrNone makes the second of two interfaces refuse the swap: another
// interface has its name, and the link it was attached by is dead.
func TestSwapAllOrNone(t *testing.T) {
	testenv.Root(t)
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
		t.Run(string(hook), func(t *testing.T) {
			testenv.In(t, newNICs(t), func() error {
				d, err := Open(Options{Interfaces: []string{"veth0", "bridge0"}, Hook: hook, TableSize: testTableSize})
				if err != nil {
					return err
				}
				d.programs = passProgram
				defer d.Close()
				if err := d.Apply(testState()); err != nil {
					return err
				}
				before := d.Program()
				bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge0"}}
				if err := netlink.LinkDel(bridge); err != nil {
					return err
				}
				if err := netlink.LinkAdd(bridge); err != nil {
					return err
				}
				if err := d.Apply(testState()); err == nil || !strings.Contains(err.Error(), "bridge0") {
					t.Errorf("a swap on an interface that went: %v", err)
				}
				if d.Program() != before {
					t.Error("the program that was refused on one interface is in use")
				}
				return expectRunning("veth0", before)
			})
		})
	}
}

// expectRunning returns an error unless the program is the one on the interface.
func expectRunning(name string, program *ebpf.Program) error {
	info, err := program.Info()
	if err != nil {
		return err
	}
	want, _ := info.ID()
	have, err := programsOn(name)
	if err == nil && (len(have) != 1 || have[0] != want) {
		return fmt.Errorf("%s runs %v, want %v", name, have, want)
	}
	return err
}

// programsOn returns the ids of the programs on an interface.
func programsOn(name string) ([]ebpf.ProgramID, error) {
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	var ids []ebpf.ProgramID
	if xdp := nic.Attrs().Xdp; xdp != nil && xdp.Attached {
		ids = append(ids, ebpf.ProgramID(xdp.ProgId))
		if all, _, err := libxdp.Components(nic.Attrs().Index); err == nil {
			ids = nil
			for _, c := range all {
				ids = append(ids, c.ID)
			}
		}
	}
	filters, err := netdump.Consistent(func() ([]netlink.Filter, error) {
		return netlink.FilterList(nic, netlink.HANDLE_MIN_INGRESS)
	})
	if err != nil {
		return nil, err
	}
	for _, filter := range filters {
		if bpf, ok := filter.(*netlink.BpfFilter); ok {
			ids = append(ids, ebpf.ProgramID(bpf.Id))
		}
	}
	result, err := link.QueryPrograms(link.QueryOptions{Target: nic.Attrs().Index, Attach: ebpf.AttachTCXIngress})
	if lacksTCX(err) {
		return ids, nil
	}
	if err != nil {
		return nil, err
	}
	for _, attached := range result.Programs {
		ids = append(ids, attached.ID)
	}
	return ids, nil
}

func TestAttachRefusals(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		if _, err := Open(Options{Interfaces: []string{"nothere"}, Hook: lb.HookXDP}); !errors.Is(err,
			attach.ErrNoInterface) {
			t.Errorf("an interface that is not there: %v", err)
		}
		if _, err := Open(Options{Hook: lb.HookXDP}); !errors.Is(err, attach.ErrNoInterface) {
			t.Errorf("no interface: %v", err)
		}
		if _, err := Open(Options{Interfaces: []string{"veth0", "veth1", "veth0"}, Hook: lb.HookXDP}); !errors.Is(err,
			attach.ErrUnsupported) {
			t.Errorf("an interface that is named twice: %v", err)
		}
		many := slices.Repeat([]string{"veth0"}, lb.MaxInterfaces+1)
		if _, err := Open(Options{Interfaces: many, Hook: lb.HookXDP}); !errors.Is(err, attach.ErrUnsupported) ||
			!strings.Contains(err.Error(), "17") {
			t.Errorf("more interfaces than there can be: %v", err)
		}
		if _, err := Open(Options{Interfaces: []string{"lo"}, Hook: lb.HookXDP}); !errors.Is(err,
			attach.ErrUnsupported) {
			t.Errorf("an interface without Ethernet: %v", err)
		}
		other, err := attachForeign("veth0")
		if err != nil {
			return err
		}
		defer other.Close()
		d, err := Open(Options{Interfaces: []string{"veth0"}, Hook: lb.HookXDP})
		if err != nil {
			return err
		}
		defer d.Close()
		err = d.Apply(testState())
		if !errors.Is(err, attach.ErrBusy) || !strings.Contains(err.Error(), `"occupant"`) ||
			!strings.Contains(err.Error(), "stop its owner") {
			t.Errorf("an interface with another XDP program: %v", err)
		}
		// Once it is free, the same datapath attaches.
		if err := other.Close(); err != nil {
			return err
		}
		return d.Apply(testState())
	})
}

// attachForeign attaches a program that is not ours.
func attachForeign(name string) (link.Link, error) {
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "occupant", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		return nil, err
	}
	defer program.Close()
	return link.AttachXDP(link.XDPOptions{Program: program, Interface: nic.Attrs().Index})
}

// lacksTCX reports whether the error of a query is that of a kernel without TCX.
func lacksTCX(err error) bool { return errors.Is(err, unix.EINVAL) }

// ofThisKernel drops TCX from the ways to attach where the kernel has none.
func ofThisKernel(methods ...attach.Method) []attach.Method {
	const loopback = 1 // of every network namespace
	if _, err := link.QueryPrograms(link.QueryOptions{Target: loopback, Attach: ebpf.AttachTCXIngress}); lacksTCX(err) {
		methods = slices.DeleteFunc(slices.Clone(methods), func(w attach.Method) bool { return w == attach.TCX })
	}
	if os.Getenv(libxdpObjects) == "" {
		methods = slices.DeleteFunc(slices.Clone(methods), func(w attach.Method) bool { return w.Dispatched })
	}
	return methods
}
