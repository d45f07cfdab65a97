// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/namespace"
	"github.com/jeoul/jeoul/internal/testenv"
)

// nics returns a namespace with a veth, which has native XDP, and a bridge,
// which has none.
func nics(t *testing.T) *namespace.Namespace {
	t.Helper()
	ns, peer := testenv.Namespace(t), testenv.Namespace(t)
	testenv.Veth(t, testenv.End{Namespace: ns, Name: "veth0"}, testenv.End{Namespace: peer, Name: "peer0"})
	testenv.In(t, ns, func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge0"}})
	})
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
			testenv.In(t, nics(t), func() error {
				d, err := Open(Options{Interfaces: []string{test.nic}, Hook: test.hook, TableSize: testTableSize})
				if err != nil {
					return err
				}
				defer d.Close()
				if err := d.Apply(testState()); err != nil {
					return err
				}
				if got := d.Attachments(); len(got) != 1 || got[0].String() != test.want || got[0].Interface != test.nic || got[0].Reason == "" {
					t.Errorf("attached as %+v, want %s", got, test.want)
				}
				if attached, err := attachedTo(test.nic); err != nil || !attached {
					t.Errorf("the kernel says that nothing is attached (%v)", err)
				}
				// A change swaps the program and leaves the link.
				if err := d.Apply(State{Services: testState().Services[:1]}); err != nil {
					return err
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
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return false, err
	}
	result, err := link.QueryPrograms(link.QueryOptions{Target: nic.Attrs().Index, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return false, err
	}
	xdp := nic.Attrs().Xdp
	return len(result.Programs) > 0 || xdp != nil && xdp.Attached, nil
}

func TestAttachRefusals(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, nics(t), func() error {
		if _, err := Open(Options{Interfaces: []string{"nothere"}, Hook: lb.HookXDP}); !errors.Is(err, ErrNoInterface) {
			t.Errorf("an interface that is not there: %v", err)
		}
		if _, err := Open(Options{Interfaces: []string{"lo"}, Hook: lb.HookXDP}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("an interface without Ethernet: %v", err)
		}
		other, err := occupy("veth0")
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
		if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), `"occupant"`) || !strings.Contains(err.Error(), "xdp off") {
			t.Errorf("an interface with another XDP program: %v", err)
		}
		// Once it is free, the same datapath attaches.
		if err := other.Close(); err != nil {
			return err
		}
		return d.Apply(testState())
	})
}

// occupy attaches a program that is not ours.
func occupy(name string) (link.Link, error) {
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
