// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestHolders finds the place taken by each kind of owner: the error names the owner and the remedy, and its program
// stays.
func TestHolders(t *testing.T) {
	testenv.Root(t)
	byNetlink := func(program string) func(*testing.T) error {
		return func(t *testing.T) error { return attachForeignByNetlink(t, program) }
	}
	for name, test := range map[string]struct {
		hook   lb.Hook
		occupy func(*testing.T) error
		says   []string
	}{
		"by a link": {lb.HookXDP, func(t *testing.T) error {
			other, err := attachForeign("veth0")
			if err == nil {
				t.Cleanup(func() { other.Close() })
			}
			return err
		}, []string{`program "occupant", id`, "bpftool link detach id", "hook: tc"}},
		"without a link": {lb.HookXDP, byNetlink("occupant"),
			[]string{`program "occupant", id`, "ip link set dev veth0 xdp off", "hook: tc"}},
		"libxdp's dispatcher": {lb.HookXDP, byNetlink(attach.DispatcherName), []string{"libxdp's dispatcher, id",
			"`xdp-loader unload veth0 --all`", "hook: tc"}},
		"another balancer in XDP": {lb.HookXDP, attachOtherBalancer(lb.HookXDP),
			[]string{`program "jeoul_xdp", id`, "jeoul detach --interface veth0"}},
		"another balancer in TC": {lb.HookTC, attachOtherBalancer(lb.HookTC),
			[]string{`program "jeoul_tc", id`, "jeoul detach --interface veth0"}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.hook == lb.HookTC && ofThisKernel(attach.TCX, attach.TCFilter)[0] != attach.TCX {
				t.Skip("a filter of Jeoul's takes the place of the one before: TestFilterOfAKilledBalancer")
			}
			testenv.In(t, newNICs(t), func() error {
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
	d.programs = passProgram
	defer d.Close()
	err = d.Apply(testState())
	if !errors.Is(err, attach.ErrBusy) {
		t.Errorf("the error is %v, want %v", err, attach.ErrBusy)
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

// attachOtherBalancer has a balancer of its own on veth0.
func attachOtherBalancer(hook lb.Hook) func(*testing.T) error {
	return func(t *testing.T) error {
		d, err := Open(Options{Interfaces: []string{"veth0"}, Hook: hook, TableSize: testTableSize})
		if err != nil {
			return err
		}
		t.Cleanup(func() { d.Close() })
		d.programs = passProgram
		return d.Apply(testState())
	}
}

// attachForeignByNetlink attaches a program that is not ours without a link, as `ip` and libxdp do.
func attachForeignByNetlink(t *testing.T, name string) error {
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
