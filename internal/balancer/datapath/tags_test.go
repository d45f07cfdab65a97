// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// addTagger gives every frame that leaves by an interface a tag of VLAN 7, beside the frame: as a
// card has it there that took it out of one.
func addTagger(name string) (remove func() error, err error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, int32(mapmem.NetworkOrder(0x8100))),
			asm.Mov.Imm(asm.R3, 7),
			asm.FnSkbVlanPush.Call(),
			asm.Mov.Imm(asm.R0, -1),
			asm.Return(),
		}})
	if err != nil {
		return nil, err
	}
	defer program.Close()
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	// A filter, which kernels without TCX have, too.
	clsact := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: nic.Attrs().Index,
		Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0)}}
	if err := netlink.QdiscReplace(clsact); err != nil {
		return nil, err
	}
	return func() error { return netlink.QdiscDel(clsact) }, netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: nic.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS,
			Priority: 1, Protocol: unix.ETH_P_ALL}, Fd: program.FD(), Name: "tagger", DirectAction: true})
}

// setFeatures switches features of an interface of the calling thread's namespace.
func setFeatures(name string, on bool, features ...string) error {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer tool.Close()
	wanted := map[string]bool{}
	for _, feature := range features {
		wanted[feature] = on
	}
	return tool.Change(name, wanted)
}

// TestTagsFromOutside: a tag that comes beside the frame stays with it in TC, and one that
// comes in the frame, as from a card that leaves it there, in both hooks.
func TestTagsFromOutside(t *testing.T) {
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		for _, beside := range []bool{false, true} {
			if beside && hook == lb.HookXDP {
				continue // a veth shows XDP no tag that its peer has left to it: docs/guides/modes.md
			}
			w := newWires(t)
			service := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1)
			service.Paths[0] = w.path(0)
			testenv.In(t, w.balancer, func() error {
				d, err := Open(Options{Interfaces: []string{"in", "out"}, Hook: hook, TableSize: testTableSize})
				if err != nil {
					return err
				}
				t.Cleanup(func() { d.Close() })
				return d.Apply(lb.State{Services: []lb.RoutedService{service}})
			})
			testenv.In(t, w.outside, func() error {
				_, err := addTagger("outin")
				return errors.Join(err, setFeatures("outin", beside, "tx-vlan-hw-insert"))
			})
			p := web4()
			_, ip := p.lower(layers.IPProtocolTCP)
			link := &layers.Ethernet{SrcMAC: routerMAC, DstMAC: w.mac[0], EthernetType: layers.EthernetTypeIPv4}
			w.expect(t, 0, "tagged frame", delivered{0, 14 + 40 + 100, true},
				func() { w.wire[0].Send(link, ip, p.transport(t, ip), gopacket.Payload(make([]byte, 100))) })
		}
	})
}

// TestTagsOfOwnVLAN: a frame of a VLAN whose interface has a program of its own is left to that; one of another VLAN
// keeps its tag and is balanced.
func TestTagsOfOwnVLAN(t *testing.T) {
	for vlan, own := range map[uint32]bool{7: true, 8: false} {
		t.Run(fmt.Sprint(vlan), func(t *testing.T) {
			w := newWires(t)
			service := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1)
			service.Paths[0] = w.path(0)
			var d *Datapath
			testenv.In(t, w.balancer, func() (err error) {
				if d, err = Open(Options{Interfaces: []string{"in", "out"}, Hook: lb.HookTC,
					TableSize: testTableSize}); err != nil {
					return err
				}
				t.Cleanup(func() { d.Close() })
				find := d.findPorts
				d.findPorts = func(names []string) ([]attach.Port, error) {
					ports, err := find(names)
					if err == nil { // "out" stands for a VLAN interface, which not every kernel has
						ports[1].Parent, ports[1].VLAN = ports[0].Index, 0x8100<<16|vlan
					}
					return ports, err
				}
				return d.Apply(lb.State{Services: []lb.RoutedService{service}})
			})
			var removeTagger func() error
			testenv.In(t, w.outside, func() (err error) {
				removeTagger, err = addTagger("outin")
				return err
			})
			p := web4()
			_, ip := p.lower(layers.IPProtocolTCP)
			ethernet := &layers.Ethernet{SrcMAC: routerMAC, DstMAC: w.mac[0], EthernetType: layers.EthernetTypeIPv4}
			send := func() { w.wire[0].Send(ethernet, ip, p.transport(t, ip), gopacket.Payload(make([]byte, 100))) }
			if !own {
				w.expect(t, 0, "tagged frame", delivered{0, 14 + 40 + 100, true}, send)
				return
			}
			send()
			testenv.In(t, w.outside, removeTagger)
			// Frames stay in order: with one of these, the tagged one has come.
			untagged := uint64(0)
			w.expect(t, 0, "frame without a tag", delivered{0, 14 + 40 + 200, false}, func() {
				untagged++
				w.wire[0].Send(ethernet, ip, p.transport(t, ip), gopacket.Payload(make([]byte, 200)))
			})
			counters, err := d.Counters()
			if err != nil {
				t.Fatal(err)
			}
			for _, outcome := range counters.Outcomes {
				if outcome.Name == "forwarded" && outcome.Packets > untagged {
					t.Errorf("%d packets were forwarded, of %d without a tag", outcome.Packets, untagged)
				}
			}
		})
	}
}

// strippingFeatures are the features of an interface that hide tags and are on.
func strippingFeatures(t *testing.T, name string) (on []string) {
	t.Helper()
	tool, err := ethtool.NewEthtool()
	if err != nil {
		t.Fatal(err)
	}
	defer tool.Close()
	features, err := tool.Features(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, feature := range attach.TagOffloads {
		if features[feature] {
			on = append(on, feature)
		}
	}
	return on
}

// TestShowTags: with XDP, devices leave VLAN tags in the frame for as long as the balancer runs; TC does not need that.
func TestShowTags(t *testing.T) {
	testenv.Root(t)
	for hook, want := range map[lb.Hook]int{lb.HookXDP: 0, lb.HookTC: len(attach.TagOffloads),
		lb.HookAuto: len(attach.TagOffloads)} {
		testenv.In(t, newNICs(t), func() error {
			changes, err := hostnet.Open(t.TempDir(), "test")
			if err != nil {
				return err
			}
			defer changes.Close()
			d, err := Open(Options{Interfaces: []string{"veth0", "veth1"}, Hook: hook, TableSize: testTableSize,
				DisableFeature: changes.DisableFeature})
			if err != nil {
				return err
			}
			d.programs = passProgram
			defer d.Close()
			if err := d.Apply(testState()); err != nil {
				return err
			}
			for _, name := range []string{"veth0", "veth1"} {
				if on := strippingFeatures(t, name); len(on) != want {
					t.Errorf("%s: of %s, %v are on, want %d", hook, name, on, want)
				}
			}
			if err := changes.Close(); err != nil {
				return err
			}
			if on := strippingFeatures(t, "veth1"); len(on) != len(attach.TagOffloads) {
				t.Errorf("%s: afterwards %v are on", hook, on)
			}
			return nil
		})
	}
}

// TestTagsHiddenLater: where a device takes VLAN tags out of frames later, such as a new port of a bond, that is
// switched off when it is looked at, and on again with the rest.
func TestTagsHiddenLater(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		changes, err := hostnet.Open(t.TempDir(), "test")
		if err != nil {
			return err
		}
		defer changes.Close()
		if err := setFeatures("veth1", false, attach.TagOffloads...); err != nil {
			return err
		}
		d, err := Open(Options{Interfaces: []string{"veth0", "veth1"}, Hook: lb.HookXDP, TableSize: testTableSize,
			DisableFeature: changes.DisableFeature})
		if err != nil {
			return err
		}
		d.programs = passProgram
		defer d.Close()
		if err := errors.Join(d.Apply(testState()), setFeatures("veth1", true, attach.TagOffloads...)); err != nil {
			return err
		}
		for _, want := range []string{"veth1 took VLAN tags out of frames", ""} {
			if note, err := d.Repin(); err != nil || !strings.Contains(note, want) || (note == "") != (want == "") {
				t.Errorf("it says %q (%v), want %q", note, err, want)
			}
			if on := strippingFeatures(t, "veth1"); len(on) > 0 {
				t.Errorf("%v are on", on)
			}
		}
		if err := changes.Close(); err != nil {
			return err
		}
		if on := strippingFeatures(t, "veth1"); len(on) != len(attach.TagOffloads) {
			t.Errorf("afterwards %v are on", on)
		}
		return nil
	})
}

// TestTagsThatStayHidden: where a device will not leave tags in the frame, XDP is refused, with the remedy; with hook:
// auto, it is TC. Nothing else stays attached.
func TestTagsThatStayHidden(t *testing.T) {
	testenv.Root(t)
	refuse := func(name, feature, why string) error {
		if name == "veth1" {
			return errors.New("its driver leaves it as it is")
		}
		return nil
	}
	for _, auto := range []bool{false, true} {
		testenv.In(t, newNICs(t), func() error {
			d, err := Open(Options{Interfaces: []string{"veth0", "veth1"}, Hook: lb.HookXDP, TableSize: testTableSize,
				DisableFeature: refuse})
			if err != nil {
				return err
			}
			d.programs = passProgram
			defer d.Close()
			if auto {
				d.attempts = func(lb.Hook, []attach.Port) []attach.Attempt {
					return append([]attach.Attempt{{Method: attach.NativeXDP}}, attach.Attempts(lb.HookTC, nil)...)
				}
			}
			err = d.Apply(testState())
			const says = "veth1 takes VLAN tags out of frames before XDP"
			if !auto {
				if !errors.Is(err, attach.ErrUnsupported) || !strings.Contains(err.Error(), says) ||
					!strings.Contains(err.Error(), "hook: tc") {
					t.Errorf("%v; want ErrUnsupported, and what to do", err)
				}
				if attached, err := attachedTo("veth0"); err != nil || attached {
					t.Errorf("a program stayed on veth0 (%v)", err)
				}
				return nil
			}
			if err != nil {
				return err
			}
			if got := d.Attachments()[0]; got.Hook != lb.HookTC || !strings.Contains(got.Reason, says) {
				t.Errorf("attached as %s, because %s", got, got.Reason)
			}
			return nil
		})
	}
}
