// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/lab/claim"
)

// A lab with [Spec.Containers] has its servers where Docker has containers: each is the
// far end of a veth whose other end is in a bridge on the balancer, with the bridge's
// address as its default gateway. The range is on no segment, so that clients beyond the
// balancer reach a server through it only.

// containerBridge is the bridge's address, and containerBridge6 its IPv6 address. Server
// NN has 198.19.2.NN and 2001:2:0:1::2:NN.
var (
	containerBridge  = netip.MustParseAddr("198.19.0.1")
	containerBridge6 = netip.MustParseAddr("2001:2:0:1::1")
)

// containerAddresses returns the addresses of server n (from 1) behind the bridge.
func containerAddresses(n int) (v4, v6 netip.Addr) {
	v4 = netip.AddrFrom4([4]byte{198, 19, byte(roleServer), byte(n)})
	v6 = netip.AddrFrom16([16]byte{0x20, 0x01, 0x00, 0x02, 7: 1, 13: byte(roleServer), 15: bcd(n)})
	return v4, v6
}

// Containers says whether the servers are behind a bridge on the balancer.
func (l *Lab) Containers() bool { return l.Balancer.Bridge != "" }

// ContainerRange is the range that holds the servers' IPv4 addresses and the bridge's,
// where they are behind one.
func (l *Lab) ContainerRange() netip.Prefix {
	return netip.PrefixFrom(containerBridge, prefix4).Masked()
}

// contained says whether a host of a role is behind the bridge on the balancer.
func (l *Lab) contained(r role) bool { return l.spec.Containers && r == roleServer }

// bridgeContainers makes the bridge on the balancer. Its MAC address is fixed, for a bridge
// without one of its own takes the lowest of its ports', anew with each port.
func (l *Lab) bridgeContainers() error {
	h := l.Balancer
	err := h.onKeeper(func() error {
		if err := buildBridge(hostMAC(roleBalancer, 2)); err != nil {
			return err
		}
		note, err := addAddresses(bridgeName, containerBridge, containerBridge6)
		if note != "" {
			l.note(note)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("make the containers' bridge on %s: %w", h.Name, err)
	}
	h.Bridge = bridgeName
	return nil
}

// routeByBridge gives a server its default routes. It runs inside the server.
func (h *Host) routeByBridge() error {
	link, err := netlink.LinkByName(h.Interface)
	if err != nil {
		return fmt.Errorf("find %s: %w", h.Interface, err)
	}
	for _, gateway := range []netip.Addr{containerBridge, containerBridge6} {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice(), Congctl: congestionControl,
			Dst: &net.IPNet{IP: make(net.IP, gateway.BitLen()/8), Mask: net.CIDRMask(0, gateway.BitLen())}}
		if netlink.RouteReplace(route) == nil {
			continue
		}
		// As with the connected routes, of which a note says it.
		route.Congctl = ""
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("route %s by %s: %w", h.Name, gateway, err)
		}
	}
	return nil
}

// deviceTo is the host's device through which others of a role are reached.
func (h *Host) deviceTo(r role) string {
	if h.Bridge != "" && r == roleServer {
		return h.Bridge
	}
	return h.Interface
}

// cgroupsDir is where the balancer's programs see the machine's cgroups.
const cgroupsDir = "/sys/fs/cgroup"

// groupBalancer makes the balancer's cgroup, and shows the machine's cgroups to its programs.
func (l *Lab) groupBalancer() (err error) {
	if l.Balancer.cgroup, err = claim.MakeCgroup(l.ID); err != nil {
		return err
	}
	err = l.Balancer.onKeeper(func() error { return unix.Mount("cgroup2", cgroupsDir, "cgroup2", 0, "") })
	if err != nil {
		return fmt.Errorf("mount the cgroups on %s: %w", l.Balancer.Name, err)
	}
	l.Balancer.Cgroup = filepath.Join(cgroupsDir, claim.CgroupName(l.ID))
	return nil
}
