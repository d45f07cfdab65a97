// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/testenv"
)

// TestHolders finds the place taken by each kind of owner: the error names it and what to do, and what
// was there stays.
func TestHolders(t *testing.T) {
	testenv.Root(t)
	byNetlink := func(program string) func(*testing.T) error {
		return func(t *testing.T) error { return occupyByNetlink(t, program) }
	}
	for name, test := range map[string]struct {
		hook   lb.Hook
		occupy func(*testing.T) error
		says   []string
	}{
		"by a link": {lb.HookXDP, func(t *testing.T) error {
			other, err := occupy("veth0")
			if err == nil {
				t.Cleanup(func() { other.Close() })
			}
			return err
		}, []string{`program "occupant", id`, "bpftool link detach id", "hook: tc"}},
		"without a link": {lb.HookXDP, byNetlink("occupant"), []string{`program "occupant", id`, "ip link set dev veth0 xdp off", "hook: tc"}},
		"libxdp's dispatcher": {lb.HookXDP, byNetlink(dispatcherName), []string{"libxdp's dispatcher, id",
			"`xdp-loader unload veth0 --all`", "hook: tc"}},
		"another balancer in XDP": {lb.HookXDP, occupyByJeoul(lb.HookXDP), []string{`program "jeoul_xdp", id`, "jeoul detach --interface veth0"}},
		"another balancer in TC":  {lb.HookTC, occupyByJeoul(lb.HookTC), []string{`program "jeoul_tc", id`, "jeoul detach --interface veth0"}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.hook == lb.HookTC && ofThisKernel(tcx, tcFilter)[0] != tcx {
				t.Skip("a filter of Jeoul's takes the place of the one before: TestFilterOfAKilledBalancer")
			}
			testenv.In(t, nics(t), func() error {
				if err := test.occupy(t); err != nil {
					return err
				}
				return refusedFor(t, test.hook, test.says)
			})
		})
	}
}

// refusedFor attaches to veth0, which another program has.
func refusedFor(t *testing.T, hook lb.Hook, says []string) error {
	before, err := programsOn("veth0")
	if err != nil || len(before) != 1 {
		return fmt.Errorf("veth0 has the programs %v, want one: %v", before, err)
	}
	d, err := Open(Options{Interfaces: []string{"veth0"}, Hook: hook, TableSize: testTableSize})
	if err != nil {
		return err
	}
	d.programs = bystander
	defer d.Close()
	err = d.Apply(testState())
	if !errors.Is(err, ErrBusy) {
		t.Errorf("the error is %v, want %v", err, ErrBusy)
	}
	for _, want := range says {
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %q and does not say %q", err, want)
		}
	}
	if err := d.Close(); err != nil {
		return err
	}
	after, err := programsOn("veth0")
	if err == nil && (len(after) != 1 || after[0] != before[0]) {
		t.Errorf("veth0 had the programs %v and has %v", before, after)
	}
	return err
}

// occupyByJeoul has a balancer of its own on veth0.
func occupyByJeoul(hook lb.Hook) func(*testing.T) error {
	return func(t *testing.T) error {
		d, err := Open(Options{Interfaces: []string{"veth0"}, Hook: hook, TableSize: testTableSize})
		if err != nil {
			return err
		}
		t.Cleanup(func() { d.Close() })
		d.programs = bystander
		return d.Apply(testState())
	}
}

// occupyByNetlink attaches a program that is not ours without a link, as `ip` and libxdp do.
func occupyByNetlink(t *testing.T, name string) error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		return err
	}
	t.Cleanup(func() { program.Close() })
	nic, err := netlink.LinkByName("veth0")
	if err != nil {
		return err
	}
	return netlink.LinkSetXdpFd(nic, program.FD())
}

// libxdpObjects is set where libxdp's tools are installed and the kernel lets programs replace functions of
// others: the directory of its objects.
const libxdpObjects = "JEOUL_TEST_LIBXDP"

// TestDispatcher has libxdp's own dispatcher on the interface, with two programs: the error names them, and in
// TC the balancer is beside them.
func TestDispatcher(t *testing.T) {
	objects := os.Getenv(libxdpObjects)
	if objects == "" {
		t.Skip(libxdpObjects + " names no directory: this is for a virtual machine, make test-kernels")
	}
	testenv.Root(t)
	testenv.In(t, nics(t), func() error {
		for _, object := range []string{"xdpfilt_alw_tcp.o", "xdpfilt_dny_udp.o"} {
			load := exec.Command("xdp-loader", "load", "--mode", "native", "veth0", filepath.Join(objects, object))
			if out, err := load.CombinedOutput(); err != nil {
				return fmt.Errorf("%v: %w\n%s", load, err, out)
			}
		}
		if err := refusedFor(t, lb.HookXDP, []string{"libxdp's dispatcher, id", "which runs xdpfilt_alw_tcp, xdpfilt_dny_udp",
			"`xdp-loader unload veth0 --all`"}); err != nil {
			return err
		}
		d, err := Open(Options{Interfaces: []string{"veth0"}, Hook: lb.HookTC, TableSize: testTableSize})
		if err != nil {
			return err
		}
		defer d.Close()
		d.programs = bystander
		if err := d.Apply(testState()); err != nil {
			return fmt.Errorf("in TC, beside it: %w", err)
		}
		// What its error says to do.
		unload := exec.Command("xdp-loader", "unload", "veth0", "--all")
		if out, err := unload.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", unload, err, out)
		}
		state := testState()
		state.Hook = lb.HookXDP
		return d.Apply(state)
	})
}
