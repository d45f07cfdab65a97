// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// deviceQueues is the number of queues of each device, and so of cores that can
// share a host's kernel work, unless the lab has CoreQueues. With a queueing discipline
// more than one gets stuck (seen on 6.18): a veth with
// GRO but without XDP gives the sign that there is room again to its peer's first
// queue only, whichever was held back.
const deviceQueues = 1

// connect makes the link of host h: one end in h, the other a port of the
// switch, or of the bridge that h is behind. It runs where the port is.
func connect(h *Host) error {
	bridge, err := netlink.LinkByName(netdev.Bridge)
	if err != nil {
		return fmt.Errorf("find the bridge %s: %w", netdev.Bridge, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = h.Port
	attrs.HardwareAddr = topology.PortMAC(h.role, h.number)
	attrs.MasterIndex = bridge.Attrs().Index
	queues, back := h.lab.queues(), h.lab.backQueues(h)
	attrs.NumTxQueues, attrs.NumRxQueues = queues, back
	veth := netlink.NewVeth(attrs)
	veth.PeerName = h.Interface
	veth.PeerHardwareAddr = h.MAC
	veth.PeerNamespace = netlink.NsFd(h.netns.Fd())
	veth.PeerNumTxQueues, veth.PeerNumRxQueues = uint32(back), uint32(queues)
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("link %s to %s: %w", h.Name, h.portOn.Name, err)
	}
	return nil
}

// setDevice sets a device's offloads and its queueing, and puts it up. It runs
// inside the device's namespace.
func (l *Lab) setDevice(name string, offloads netdev.Offloads) error {
	if err := netdev.Up(name); err != nil {
		return err
	}
	if err := l.setQueues(name); err != nil {
		return err
	}
	return l.apply(name, offloads)
}

// address gives the host's device its addresses and sets the congestion control
// of the routes that come with them. It runs inside the host. The text returned
// says why congestion control could not be set.
func (h *Host) address() (note string, err error) {
	return netdev.AddAddresses(h.Interface, h.IPv4, h.IPv6)
}
