// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestKeptByAnotherLibrary takes over links that were made for programs without an attach type, as
// an older library made them, and the other way round: the kernel takes no others for them.
func TestKeptByAnotherLibrary(t *testing.T) {
	testenv.Root(t)
	of := func(unspecific bool) func(lb.Hook) loader.Kind {
		return func(hook lb.Hook) loader.Kind {
			kind := passProgram(hook)
			kind.NoAttachType = unspecific
			return kind
		}
	}
	for name, was := range map[string]bool{"without an attach type": true, "with one": false} {
		t.Run(name, func(t *testing.T) {
			testenv.In(t, newNICs(t), func() error {
				k := newRestartRigPass(t)
				k.hook = lb.HookXDP
				first, err := k.open()
				if err != nil {
					return err
				}
				first.programs, first.noAttachType = of(was), was
				if err := first.Apply(testState()); err != nil {
					return err
				}
				if err := first.Release(); err != nil {
					return err
				}
				again, err := k.open()
				if err != nil {
					return err
				}
				defer again.Close()
				again.noAttachType = !was
				// Twice: the next change must not have to find out again.
				for range 2 {
					if err := again.Apply(testState()); err != nil {
						return err
					}
					if err := expectRunning("veth0", again.Program()); err != nil {
						t.Error(err)
					}
				}
				if again.noAttachType != was {
					t.Errorf("it loads programs without an attach type: %v, want %v", again.noAttachType, was)
				}
				return nil
			})
		})
	}
}

// TestKeptOnChangedInterfaces changes the interface while no process runs: another one in its place
// gets a data plane of its own, and another MAC address is no hindrance.
func TestKeptOnChangedInterfaces(t *testing.T) {
	testenv.Root(t)
	address := net.HardwareAddr{2, 0, 0, 0, 0xab, 1}
	for name, test := range map[string]struct {
		change func(netlink.Link) error
		adopts bool
		says   string
	}{
		"deleted and made anew": {func(link netlink.Link) error {
			if err := netlink.LinkDel(link); err != nil {
				return err
			}
			made := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0", Flags: net.FlagUp}, PeerName: "peer0"}
			return netlink.LinkAdd(made)
		}, false, "is taken away"},
		"another MAC address": {func(link netlink.Link) error { return netlink.LinkSetHardwareAddr(link, address) },
			true, "going on with"},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.In(t, newNICs(t), func() error {
				k := newRestartRigPass(t)
				first, err := k.openWith(testState())
				if err != nil {
					return err
				}
				if err := first.Release(); err != nil {
					return err
				}
				link, err := netlink.LinkByName("veth0")
				if err != nil {
					return err
				}
				if err := test.change(link); err != nil {
					return err
				}
				again, err := k.open()
				if err != nil {
					return err
				}
				defer again.Close()
				if notes := strings.Join(again.Notes(), " "); again.Adopted() != test.adopts ||
					!strings.Contains(notes, test.says) {
					t.Errorf("taken over: %v, and it says %q", again.Adopted(), notes)
				}
				if err := again.Apply(testState()); err != nil {
					return err
				}
				nic, err := net.InterfaceByName("veth0")
				if err != nil {
					return err
				}
				if p := again.current.Ports[0]; p.MAC.String() != nic.HardwareAddr.String() || p.Index != nic.Index {
					t.Errorf("the program is for %+v, and the interface is %+v", p, nic)
				}
				if sets, err := again.keeper.Store.Sets(); err != nil || len(sets) != 1 {
					t.Errorf("sets of pins: %v, %v", sets, err)
				}
				return expectRunning("veth0", again.Program())
			})
		})
	}
}

// TestSweep removes a kept data plane only once its interface is gone.
func TestSweep(t *testing.T) {
	testenv.Root(t)
	for _, w := range ofThisKernel(attach.NativeXDP, attach.GenericXDP, attach.TCX) {
		t.Run(w.Name, func(t *testing.T) {
			testenv.In(t, newNICs(t), func() error {
				k := newRestartRigPass(t)
				k.hook, k.attempts = w.Hook, onlyBy(w)
				d, err := k.openWith(testState())
				if err != nil {
					return err
				}
				if err := d.Release(); err != nil {
					return err
				}
				for _, gone := range []bool{false, true} {
					store, err := k.store()
					if err != nil {
						return err
					}
					if swept, err := keeper.Sweep(k.location(store)); err != nil || swept != gone {
						t.Errorf("the interface is gone: %v, and it was removed: %v, %v", gone, swept, err)
					}
					store.Close()
					link, err := netlink.LinkByName("veth0")
					if err == nil {
						err = netlink.LinkDel(link)
					}
					if !gone && err != nil {
						return err
					}
				}
				if left, err := os.ReadDir(k.dir); err != nil || len(left) != 0 {
					t.Errorf("there is left: %v, %v", left, err)
				}
				return nil
			})
		})
	}
}
