// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/lab"
)

// xdpPass is the value of XDP_PASS (include/uapi/linux/bpf.h).
const xdpPass = 2

// acceptFrames puts an XDP program that passes everything on the switch's port
// to host, and returns what takes it off again. A veth device wakes its peer for
// frames that it sends back with XDP_TX only if the peer has an XDP program
// (drivers/net/veth.c, veth_xdp_flush): without one they wait there until
// something else comes by, and no counter shows it. A real network card has no
// such peer.
func acceptFrames(l *lab.Lab, host *lab.Host) (remove func() error, err error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "jeoul_lab_pass", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("loading the switch's XDP program: %w", err)
	}
	var attached link.Link
	err = l.Switch.Do(func() error {
		port, err := netlink.LinkByName(host.Port)
		if err != nil {
			return err
		}
		attached, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: port.Attrs().Index, Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attaching an XDP program to %s: %w", host.Port, err), program.Close())
	}
	return func() error { return errors.Join(attached.Close(), program.Close()) }, nil
}
