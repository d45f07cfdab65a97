// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"bytes"
	"fmt"
	"net"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Port is an interface that a program is loaded for. Index 0, in tests, is any interface that packets arrive on.
type Port struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
}

// Same reports whether two ports have the same name, index and MAC address.
func (p Port) Same(o Port) bool {
	return p.Name == o.Name && p.Index == o.Index && bytes.Equal(p.MAC, o.MAC)
}

// SameInterface reports whether two ports are the same interface, whatever their names are.
func (p Port) SameInterface(o Port) bool { return p.Index == o.Index }

// Deleted reports whether the interface was deleted, and all its programs with it.
func (p Port) Deleted() bool {
	_, err := net.InterfaceByIndex(p.Index)
	return err != nil
}

// Ports looks up the interfaces of these names, if packets can be balanced on all of them. Errors: ErrNoInterface,
// ErrUnsupported.
func Ports(names []string) ([]Port, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: the configuration names none", ErrNoInterface)
	}
	if len(names) > lb.MaxInterfaces {
		return nil, fmt.Errorf("%d interfaces: %w: there can be %d", len(names), ErrUnsupported, lb.MaxInterfaces)
	}
	var ports []Port
	for _, name := range names {
		nic, err := net.InterfaceByName(name)
		if err != nil {
			return nil, fmt.Errorf("interface %q: %w in this network namespace: `ip link` lists those there are", name,
				ErrNoInterface)
		}
		if len(nic.HardwareAddr) != lb.MACLength {
			return nil, fmt.Errorf(
				"interface %q has no Ethernet address: %w: packets are taken and sent on in Ethernet frames",
				name, ErrUnsupported)
		}
		// By index, because an interface may have several names.
		if slices.ContainsFunc(ports, func(p Port) bool { return p.Index == nic.Index }) {
			return nil, fmt.Errorf("interface %q is named twice: %w: each can have one program", name, ErrUnsupported)
		}
		ports = append(ports, Port{Name: name, Index: nic.Index, MAC: nic.HardwareAddr})
	}
	return ports, nil
}
