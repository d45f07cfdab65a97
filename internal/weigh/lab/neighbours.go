// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// neighbourRoom is the number of neighbours for which the kernel has room without evicting others: a family has one
// table for all namespaces of a machine, by default of up to 1,024 entries, and swept every five seconds from 512 on
// (net.ipv4.neigh.default.gc_thresh3 and gc_thresh2, which only the machine can set). Where the table is full, a packet
// to a new host is lost.
const neighbourRoom = 512

// presetNeighbours adds permanent neighbour entries between clients and servers if their tables would overflow: without
// a balancer, every client resolves every server, and every server every client. Permanent entries do not count. The
// balancer learns its neighbours, and they learn it, as on a real network. Containers are neighbours of the balancer
// alone.
func (l *Lab) presetNeighbours() error {
	if l.spec.Containers || 2*len(l.Clients)*len(l.Servers) <= neighbourRoom {
		return nil
	}
	for _, side := range []struct{ hosts, others []*Host }{{l.Clients, l.Servers}, {l.Servers, l.Clients}} {
		for _, h := range side.hosts {
			if err := h.Do(func() error { return h.preset(side.others) }); err != nil {
				return err
			}
		}
	}
	l.note(fmt.Sprintf(
		"clients and servers know each other's MAC addresses beforehand: %d and %d of them in one kernel are more than its table of neighbours has room for (net.ipv4.neigh.default.gc_thresh3); the balancer's are learnt",
		len(l.Clients), len(l.Servers)))
	return nil
}

// preset adds entries for the others' addresses. It runs inside the host.
func (h *Host) preset(others []*Host) error {
	link, err := netlink.LinkByName(h.Interface)
	if err != nil {
		return fmt.Errorf("find %s: %w", h.Interface, err)
	}
	for _, o := range others {
		for _, address := range []netip.Addr{o.IPv4, o.IPv6} {
			if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT,
				IP: net.IP(address.AsSlice()), HardwareAddr: o.MAC}); err != nil {
				return fmt.Errorf("tell %s the MAC address of %s: %w", h.Name, o.Name, err)
			}
		}
	}
	return nil
}
