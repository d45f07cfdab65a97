// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestNeighboursInTC has programs of others before and after ours. Those before see every packet, those after only
// packets that ours leaves to the kernel, also once our program has been exchanged and taken over; they stay when ours
// goes.
func TestNeighboursInTC(t *testing.T) {
	testenv.Root(t)
	for _, w := range testenv.Some(t, testenv.HooksTarget, 1, ofThisKernel(attach.TCX, attach.TCFilter)) {
		t.Run(w.Name, func(t *testing.T) {
			ns, outside := testenv.Namespace(t), testenv.Namespace(t)
			mac, _ := testenv.Veth(t, testenv.End{Namespace: ns, Name: "veth0"},
				testenv.End{Namespace: outside, Name: "peer0"})
			wire, served := testenv.OpenWire(t, outside, "peer0"), newPackets(t, outside, "peer0", mac)
			testenv.In(t, ns, func() error {
				k := newRestartRig(t)
				k.hook, k.attempts = w.Hook, onlyBy(w)
				after, err := newForeignFilter(t)
				if err == nil {
					err = after.attach(t, w, false)
				}
				if err != nil {
					return err
				}
				d, err := k.openWith(killState(3, 1))
				if err != nil {
					return err
				}
				before, err := newForeignFilter(t)
				if err == nil {
					err = before.attach(t, w, true)
				}
				if err != nil {
					return errors.Join(err, d.Close())
				}
				look := func(when string) {
					before.clear(t)
					after.clear(t)
					served.begin(t)
					served.end(t, "")
					// The last packet comes when all others have been seen.
					wire.Send(&layers.Ethernet{SrcMAC: routerMAC, DstMAC: mac, EthernetType: markedType},
						gopacket.Payload(make([]byte, 64)))
					testenv.Eventually(t, testenv.WaitLimit, when+": the one after ours sees what is not for a VIP",
						func() bool { return after.seen(t, seenMarked) == 1 })
					if n := before.seen(t, seenMarked); n != 1 {
						t.Errorf("%s: the one before ours has seen %d such packets, want 1", when, n)
					}
					if n := before.seen(t, seenIPv4); n != uint64(served.sent) {
						t.Errorf("%s: the one before ours has seen %d packets for the VIP, want %d", when, n,
							served.sent)
					}
					if n := after.seen(t, seenIPv4); n != 0 {
						t.Errorf("%s: the one after ours has seen %d packets for the VIP", when, n)
					}
				}
				look("attached")
				if err := d.Apply(withSwappedService(killState(3, 1), 1)); err != nil {
					return errors.Join(err, d.Close())
				}
				look("exchanged")
				if err := d.Release(); err != nil {
					return err
				}
				look("left by its process")
				if d, err = k.adopt(); err != nil {
					return err
				}
				if err := d.Apply(killState(3, 1)); err != nil {
					return errors.Join(err, d.Close())
				}
				look("taken over")
				if err := d.Close(); err != nil {
					return err
				}
				if ids, err := programsOn("veth0"); err != nil || len(ids) != 2 {
					t.Errorf("after Close there are the programs %v: %v", ids, err)
				}
				return nil
			})
		})
	}
}

// markedType is an EtherType for experiments.
const markedType layers.EthernetType = 0x88b5

// The counters of a neighbour: packets of IPv4, all of which are for the VIP, marked ones, and those that the kernel of
// the other end sends by itself.
const (
	seenIPv4 uint32 = iota
	seenMarked
	seenOthers
	seenKinds
)

// foreignFilter is another's program in TC, which counts packets and leaves them to the next program.
type foreignFilter struct {
	counts  *ebpf.Map
	program *ebpf.Program
}

func newForeignFilter(t *testing.T) (*foreignFilter, error) {
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: seenKinds})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { counts.Close() })
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "neighbour", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R1, asm.R1, 16 /* __sk_buff.protocol */, asm.Word),
			asm.StoreImm(asm.RFP, -4, int64(seenIPv4), asm.Word),
			asm.JEq.Imm(asm.R1, int32(mapmem.NetworkOrder(uint16(layers.EthernetTypeIPv4))), "count"),
			asm.StoreImm(asm.RFP, -4, int64(seenMarked), asm.Word),
			asm.JEq.Imm(asm.R1, int32(mapmem.NetworkOrder(uint16(markedType))), "count"),
			asm.StoreImm(asm.RFP, -4, int64(seenOthers), asm.Word),
			asm.LoadMapPtr(asm.R1, counts.FD()).WithSymbol("count"),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "next"),
			asm.Mov.Imm(asm.R1, 1),
			asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
			asm.Mov.Imm(asm.R0, -1 /* TC_ACT_UNSPEC */).WithSymbol("next"),
			asm.Return(),
		}})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { program.Close() })
	return &foreignFilter{counts, program}, nil
}

// attach puts it before or after all programs that are on veth0.
func (n *foreignFilter) attach(t *testing.T, w attach.Method, before bool) error {
	nic, err := netlink.LinkByName("veth0")
	if err != nil {
		return err
	}
	index := nic.Attrs().Index
	if w == attach.TCX {
		anchor := link.Tail()
		if before {
			anchor = link.Head()
		}
		l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: n.program, Attach: ebpf.AttachTCXIngress,
			Anchor: anchor})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}
	if err := addQdisc("veth0", "clsact"); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	priority := uint16(attach.FilterPriority + 1)
	if before {
		priority = attach.FilterPriority - 1
	}
	return netlink.FilterAdd(&netlink.BpfFilter{Fd: n.program.FD(), Name: "neighbour", DirectAction: true,
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: priority,
			Protocol: unix.ETH_P_ALL}})
}

// seen returns how many packets of a kind it has seen.
func (n *foreignFilter) seen(t *testing.T, kind uint32) (count uint64) {
	t.Helper()
	if err := n.counts.Lookup(kind, &count); err != nil {
		t.Fatal(err)
	}
	return count
}

func (n *foreignFilter) clear(t *testing.T) {
	t.Helper()
	for kind := range seenKinds {
		if err := n.counts.Put(kind, uint64(0)); err != nil {
			t.Fatal(err)
		}
	}
}
