// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// device is the interface of a port.
type device struct {
	port  Port
	index int
	mac   net.HardwareAddr
	mtu   int
	// attached is our program on the device.
	attached link.Link
}

// in runs a function in a port's network namespace.
func (p Port) in(f func() error) error {
	if p.Do == nil {
		return f()
	}
	return p.Do(f)
}

// find looks up a port's interface.
func (p Port) find() (*device, error) {
	d := &device{port: p}
	err := p.in(func() error {
		nic, err := netlink.LinkByName(p.Interface)
		if err != nil {
			return err
		}
		a := nic.Attrs()
		d.index, d.mac, d.mtu = a.Index, a.HardwareAddr, a.MTU
		if a.Flags&net.FlagUp == 0 {
			return errors.New("the interface is down: `ip link set up` it")
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w %s: %v", ErrPort, p, err)
	case len(d.mac) != 6:
		return nil, fmt.Errorf("%w %s: it has no MAC address: use an Ethernet interface", ErrPort, p)
	}
	return d, nil
}

// attach attaches a program to the port, in the driver.
func (d *device) attach(program *ebpf.Program) error {
	err := d.port.in(func() (err error) {
		d.attached, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: d.index,
			Flags: link.XDPDriverMode})
		return err
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return fmt.Errorf(
			"%w %s: another XDP program is on it: take it off (`ip link set dev %s xdp off`, or end the process that has attached it)",
			ErrPort, d.port, d.port.Interface)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf(
			"%w %s: its driver has no native XDP, and the generic one is no measure: use another interface",
			ErrPort, d.port)
	case errors.Is(err, unix.ERANGE), errors.Is(err, unix.EINVAL):
		return fmt.Errorf(
			"%w %s: the driver refuses native XDP (%v): an MTU above one page, or too few queues (`ethtool -L`)?",
			ErrPort, d.port, err)
	}
	return fmt.Errorf("%w %s: attaching an XDP program: %v", ErrPort, d.port, err)
}

// detach detaches the program.
func (d *device) detach() error {
	if d.attached == nil {
		return nil
	}
	err := d.attached.Close()
	d.attached = nil
	return err
}

// MACs returns the MAC addresses of ports.
func MACs(ports []Port) ([]net.HardwareAddr, error) {
	var all []net.HardwareAddr
	for _, p := range ports {
		d, err := p.find()
		if err != nil {
			return nil, err
		}
		all = append(all, d.mac)
	}
	return all, nil
}
