// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
)

// TapPort puts an XDP program on the switch's port to the host, in place of the present one; nil restores that. The
// program sees the frames that the host sends. [Lab.AcceptXDP] detaches it from the balancer's port.
func (h *Host) TapPort(program *ebpf.Program) error {
	switch {
	case program != nil:
	case h.lab.wires != nil:
		program = h.lab.wires.Program()
	case h == h.lab.Balancer:
		return h.lab.AcceptXDP(h.lab.xdp)
	}
	err := h.lab.Switch.Do(func() error { return netdev.AttachXDP(h.Port, programFD(program)) })
	if err != nil {
		return fmt.Errorf("tap the port of %s: %w", h.Name, err)
	}
	return nil
}

// TapDevice puts an XDP program on the host's own device; nil detaches it. The program sees the frames that the host
// receives.
func (h *Host) TapDevice(program *ebpf.Program) error {
	if err := h.Do(func() error { return netdev.AttachXDP(h.Interface, programFD(program)) }); err != nil {
		return fmt.Errorf("tap the device of %s: %w", h.Name, err)
	}
	return nil
}

func programFD(program *ebpf.Program) int {
	if program == nil {
		return -1
	}
	return program.FD()
}

// Indexes returns the index of the host's device, in its own namespace, and that of the switch's port to it, in the
// switch's namespace.
func (h *Host) Indexes() (device, port int, err error) {
	index := func(of *Host, name string, to *int) error {
		return of.Do(func() error {
			link, err := netlink.LinkByName(name)
			if err == nil {
				*to = link.Attrs().Index
			}
			return err
		})
	}
	if err = index(h, h.Interface, &device); err == nil {
		err = index(h.lab.Switch, h.Port, &port)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("find the devices of %s: %w", h.Name, err)
	}
	return device, port, nil
}
