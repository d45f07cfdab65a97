// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// arpSource is an IPv4 address of the host that its ARP requests may bear.
type arpSource struct {
	index int
	local netip.Addr
	// subnet is the subnet of the address, or of its peer on a point-to-point link.
	subnet netip.Prefix
	// otherInterfaces: other interfaces take it where they have none.
	otherInterfaces bool
}

// arpSources are the addresses that ARP requests may bear, in the kernel's order, and the neighbours that the host
// has already.
type arpSources struct {
	list  []arpSource
	known map[hop]bool
}

func (p *Paths) readARPSources() (found arpSources, err error) {
	list, err := netdump.Consistent(func() ([]netlink.Addr, error) {
		return p.netlink.AddrList(nil,
			netlink.FAMILY_V4)
	})
	if err != nil {
		return found, fmt.Errorf("list this host's addresses: %w", err)
	}
	neighbours, err := netdump.Consistent(func() ([]netlink.Neigh, error) {
		return p.netlink.NeighList(0, netlink.FAMILY_V4)
	})
	if err != nil {
		return found, fmt.Errorf("read the neighbour table: %w", err)
	}
	found.known = map[hop]bool{}
	for _, n := range neighbours {
		if addr, ok := netip.AddrFromSlice(n.IP); ok && n.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) != 0 {
			found.known[hop{n.LinkIndex, addr.Unmap()}] = true
		}
	}
	for _, a := range list {
		if a.Scope > unix.RT_SCOPE_LINK || a.Flags&unix.IFA_F_SECONDARY != 0 {
			continue
		}
		peer := a.IPNet
		if a.Peer != nil {
			peer = &net.IPNet{IP: a.Peer.IP, Mask: a.IPNet.Mask}
		}
		local, ok := netip.AddrFromSlice(a.IP)
		far, too := netip.AddrFromSlice(peer.IP)
		ones, _ := peer.Mask.Size()
		if ok && too {
			found.list = append(found.list, arpSource{index: a.LinkIndex, local: local.Unmap(),
				subnet: netip.PrefixFrom(far.Unmap(), ones).Masked(), otherInterfaces: a.Scope < unix.RT_SCOPE_LINK})
		}
	}
	return found, nil
}

// forNeighbour returns the address that an ARP request for a neighbour on an interface bears,
// as inet_select_addr in the kernel's net/ipv4/devinet.c chooses it for arp_solicit: the
// first of the interface's in whose subnet the neighbour is, else its first, else that
// of any other interface. (arp_announce counts only where a packet of the host's waits
// for the answer.) Invalid if there is none.
func (f arpSources) forNeighbour(n hop) netip.Addr {
	var first, other netip.Addr
	for _, s := range f.list {
		switch {
		case s.index == n.index && s.subnet.Contains(n.addr):
			return s.local
		case s.index == n.index && !first.IsValid():
			first = s.local
		case s.otherInterfaces && !other.IsValid():
			other = s.local
		}
	}
	if first.IsValid() {
		return first
	}
	return other
}
