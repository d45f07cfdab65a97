// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// fastPath is the switch's program, attached to each port; it forwards what it
// knows, and leaves the rest to the bridge.
type fastPath struct {
	objects labSwitchObjects
	links   []link.Link
}

// newFastPath plugs the hosts in. It runs inside the switch.
func newFastPath(hosts []*Host) (*fastPath, error) {
	f := &fastPath{}
	if err := loadLabSwitchObjects(&f.objects, nil); err != nil {
		return nil, fmt.Errorf("load the switch's program: %w", err)
	}
	for _, h := range hosts {
		if err := f.plug(h); err != nil {
			return nil, errors.Join(fmt.Errorf("plug %s into the switch: %w", h.Name, err), f.close())
		}
	}
	return f, nil
}

func (f *fastPath) plug(h *Host) error {
	port, err := netlink.LinkByName(h.Port)
	if err != nil {
		return err
	}
	index := port.Attrs().Index
	if err := f.objects.Ports.Put(macKey(h.MAC), uint32(index)); err != nil {
		return err
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: f.objects.LabSwitch, Attach: ebpf.AttachTCXIngress})
	if err == nil {
		f.links = append(f.links, l)
	}
	return err
}

// macKey is a MAC address as the program reads it: the first bytes of a word.
func macKey(mac net.HardwareAddr) uint64 {
	var b [8]byte
	copy(b[:], mac)
	return binary.NativeEndian.Uint64(b[:])
}

func (f *fastPath) close() error {
	var errs []error
	for _, l := range f.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, f.objects.Close())...)
}
