// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/netdump"
)

// Port is an interface that a program is loaded for. Index 0, in tests, is any interface that packets arrive on.
type Port struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	// Parent is the index of the interface that a VLAN interface is on, and VLAN its protocol, in the upper 16 bits,
	// and VLAN ID; both are 0 for any other interface.
	Parent int
	VLAN   uint32
}

// Same reports whether two ports have the same name, index and MAC address.
func (p Port) Same(o Port) bool {
	return p.Name == o.Name && p.Index == o.Index && bytes.Equal(p.MAC, o.MAC)
}

// SameInterface reports whether two ports are the same interface, whatever their names are.
func (p Port) SameInterface(o Port) bool { return p.Index == o.Index }

// Deleted reports whether the interface was deleted, and all its programs with it.
func (p Port) Deleted() bool {
	_, err := PortByIndex(p.Index)
	return errors.Is(err, ErrNoInterface)
}

// linkByName and linkByIndex ask for one link; tests replace them. A dump of all links, as those of package net, may
// lack one that exists while others are deleted.
var linkByName, linkByIndex = netlink.LinkByName, netlink.LinkByIndex

// PortByName looks up the interface of a name. Errors: ErrNoInterface, only if the kernel reports that there is none.
func PortByName(name string) (Port, error) {
	link, err := linkByName(name)
	// The kernel finds an interface by an alternative name, too, by which nothing else does.
	if netdump.IsLinkMissing(err) || err == nil && link.Attrs().Name != name {
		return Port{}, fmt.Errorf("interface %q: %w in this network namespace: `ip link` lists those there are", name,
			ErrNoInterface)
	}
	if err != nil {
		return Port{}, fmt.Errorf("asking the kernel for the interface %q: %w", name, err)
	}
	return portOf(link), nil
}

// PortByIndex looks up the interface of an index. Errors: as those of PortByName.
func PortByIndex(index int) (Port, error) {
	link, err := linkByIndex(index)
	if netdump.IsLinkMissing(err) {
		return Port{}, fmt.Errorf("interface %d: %w in this network namespace", index, ErrNoInterface)
	}
	if err != nil {
		return Port{}, fmt.Errorf("asking the kernel for the interface of index %d: %w", index, err)
	}
	return portOf(link), nil
}

func portOf(link netlink.Link) Port {
	attrs := link.Attrs()
	p := Port{Name: attrs.Name, Index: attrs.Index, MAC: attrs.HardwareAddr}
	if vlan, ok := link.(*netlink.Vlan); ok {
		p.Parent, p.VLAN = attrs.ParentIndex, uint32(vlan.VlanProtocol)<<16|uint32(vlan.VlanId)
	}
	return p
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
		port, err := PortByName(name)
		if err != nil {
			return nil, err
		}
		if len(port.MAC) != lb.MACLength {
			return nil, fmt.Errorf(
				"interface %q has no Ethernet address: %w: packets are taken and sent on in Ethernet frames",
				name, ErrUnsupported)
		}
		if slices.ContainsFunc(ports, port.SameInterface) {
			return nil, fmt.Errorf("interface %q is named twice: %w: each can have one program", name, ErrUnsupported)
		}
		ports = append(ports, port)
	}
	return ports, nil
}
