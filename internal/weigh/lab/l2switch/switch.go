// SPDX-License-Identifier: Apache-2.0

// Package l2switch holds the programs of a laboratory's switch: one that forwards past its bridge, and one for loads of
// packets, in native XDP. They are loaded and attached in the switch's namespace.
package l2switch

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// Port is a port of the switch, and the host at its other end.
type Port struct {
	// Host is the host's name, MAC its address, Name the name of the port's device.
	Host, Name string
	MAC        net.HardwareAddr
}

// FastPath is the switch's program, attached to each port; it forwards frames to known addresses, and leaves the others
// to the bridge.
type FastPath struct {
	objects labSwitchObjects
	links   []link.Link
}

// NewFastPath attaches the program to the hosts' ports. It runs inside the switch.
func NewFastPath(ports []Port) (*FastPath, error) {
	f := &FastPath{}
	spec, err := loadLabSwitch()
	if err != nil {
		return nil, fmt.Errorf("read the switch's program: %w", err)
	}
	if err := numberPorts(spec); err != nil {
		return nil, err
	}
	if err := spec.LoadAndAssign(&f.objects, nil); err != nil {
		return nil, fmt.Errorf("load the switch's program: %w", err)
	}
	for _, h := range ports {
		if err := f.addPort(h); err != nil {
			return nil, errors.Join(fmt.Errorf("plug %s into the switch: %w", h.Host, err), f.Close())
		}
	}
	return f, nil
}

func (f *FastPath) addPort(h Port) error {
	port, err := netlink.LinkByName(h.Name)
	if err != nil {
		return err
	}
	index := port.Attrs().Index
	if err := f.objects.Ports.Put(portPlace(h.MAC), uint32(index)); err != nil {
		return err
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: f.objects.LabSwitch,
		Attach: ebpf.AttachTCXIngress})
	if err == nil {
		f.links = append(f.links, l)
	}
	return err
}

// hostMACBits are the bytes that the MAC addresses of all hosts have in common (see topology.MAC). A switch's program
// uses the other bytes as the port's index.
var hostMACBits = net.HardwareAddr{0xff, 0xff, 0xff, 0, 0xff, 0}

// portPlace is the index of a host's port in the table of a switch's program.
func portPlace(mac net.HardwareAddr) uint32 { return uint32(mac[3])<<8 | uint32(mac[5]) }

// numberPorts configures a switch's program with the bits by which it recognizes hosts' addresses.
func numberPorts(spec *ebpf.CollectionSpec) error {
	bits := topology.MACWord(hostMACBits)
	err := errors.Join(spec.Variables["common_bits"].Set(bits),
		spec.Variables["common_values"].Set(topology.MACWord(topology.MAC(0, 0))&bits))
	if err != nil {
		return fmt.Errorf("set up the switch's program: %w", err)
	}
	return nil
}

// Close detaches the program from all ports.
func (f *FastPath) Close() error {
	var errs []error
	for _, l := range f.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, f.objects.Close())...)
}
