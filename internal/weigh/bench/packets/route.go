// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
)

// newRouter creates a network namespace that forwards: the kernel's routing table there leads replies to the clients.
// It has no name and no link to the outside, and ends with its last thread and handle.
func newRouter() (*namespace.Namespace, error) {
	ns, err := namespace.New()
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("measuring packets: %w: run as root", datapath.ErrNoRights)
	}
	if err != nil {
		return nil, err
	}
	if err := ns.Do(route); err != nil {
		return nil, errors.Join(fmt.Errorf("making the routes of the replies: %w", err), ns.Close())
	}
	return ns, nil
}

// route makes the namespace of the calling thread a router, with a link, and a next hop on it that leads to all
// clients. Packets arrive on the loopback interface, as BPF_PROG_TEST_RUN says.
func route() error {
	for _, family := range []string{"ipv4", "ipv6"} {
		name := "/proc/sys/net/" + family + "/conf/all/forwarding"
		if err := os.WriteFile(name, []byte("1"), 0); err != nil {
			return err
		}
	}
	out := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "out"}, PeerName: "far"}
	if err := netlink.LinkAdd(out); err != nil {
		return fmt.Errorf("adding a link: %w", err)
	}
	for _, name := range []string{"lo", "out", "far"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("taking %s up: %w", name, err)
		}
	}
	link, err := netlink.LinkByName("out")
	if err != nil {
		return err
	}
	return errors.Join(
		addGateway(link, gateway4, clients4),
		addGateway(link, gateway6, clients6),
	)
}

// addGateway adds an address, a neighbour on its network with a permanent MAC address, and a route to the clients
// through that neighbour.
func addGateway(link netlink.Link, own, clients netip.Prefix) error {
	hop := own.Addr().Next()
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(own), Flags: unix.IFA_F_NODAD}); err != nil {
		return fmt.Errorf("adding the address %s: %w", own, err)
	}
	if err := netlink.NeighAdd(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: hop.AsSlice(), HardwareAddr: harness.NextHop,
	}); err != nil {
		return fmt.Errorf("adding the neighbour %s: %w", hop, err)
	}
	if err := netlink.RouteAdd(&netlink.Route{
		LinkIndex: link.Attrs().Index, Dst: ipNet(clients), Gw: hop.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
	}); err != nil {
		return fmt.Errorf("adding the route to %s: %w", clients, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
