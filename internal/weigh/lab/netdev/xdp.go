// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// XDPPass is XDP_PASS (include/uapi/linux/bpf.h).
const XDPPass = 2

// AcceptXDP attaches a program that passes every frame. It runs inside the
// device's namespace.
func AcceptXDP(name string) error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "lab_pass",
		Type:         ebpf.XDP,
		License:      "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, XDPPass), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load the XDP program for %s: %w", name, err)
	}
	defer program.Close()
	return AttachXDP(name, program.FD())
}

// AttachXDP attaches a native XDP program to a device, where it stays until the device is removed; a negative
// descriptor detaches it.
func AttachXDP(name string, fd int) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetXdpFdWithFlags(link, fd, nl.XDP_FLAGS_DRV_MODE)
	}
	if err != nil {
		return fmt.Errorf("set the XDP program of %s: %w", name, err)
	}
	return nil
}

// ForgetHash makes packets that arrive at a device of the calling thread's namespace lose the hash that their sender
// has given them. A router in another machine never gets that hash. Here it comes with the packet, is the key by which
// the kernel selects a next hop (fib_multipath_hash: l4_hash), and changes with a retransmission, so a flow that
// reaches the wrong balancer would find another one by itself.
func ForgetHash(device string) error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "lab_unhash", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.FnSetHashInvalid.Call(), asm.Mov.Imm(asm.R0, tcOK), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load the program that forgets hashes: %w", err)
	}
	defer program.Close()
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find %s: %w", device, err)
	}
	index := link.Attrs().Index
	err = netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: "clsact",
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0),
			Parent: netlink.HANDLE_CLSACT}})
	if err == nil {
		err = netlink.FilterAdd(&netlink.BpfFilter{Fd: program.FD(), Name: "lab_unhash", DirectAction: true,
			FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1,
				Protocol: unix.ETH_P_ALL, Priority: 1}})
	}
	if err != nil {
		return fmt.Errorf("forget the hashes of what comes in at %s: %w", device, err)
	}
	return nil
}

// tcOK is TC_ACT_OK (include/uapi/linux/pkt_cls.h).
const tcOK = 0
