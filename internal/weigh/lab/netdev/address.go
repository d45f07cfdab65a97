// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// CongestionControl is set per route: the kernel rejects a namespace's default.
const CongestionControl = "cubic"

// AddAddresses gives a device its addresses and sets the congestion control of the routes that come with them. The note
// gives the reason why congestion control could not be set.
func AddAddresses(device string, v4, v6 netip.Addr) (note string, err error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", device, err)
	}
	prefixes := []netip.Prefix{netip.PrefixFrom(v4, topology.Prefix4), netip.PrefixFrom(v6, topology.Prefix6)}
	for _, p := range prefixes {
		flags := 0
		if p.Addr().Is6() {
			flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: IPNet(p), Flags: flags}); err != nil {
			return "", fmt.Errorf("give %s the address %s: %w", device, p, err)
		}
		if err := setCongestionControl(link, p); err != nil {
			note = fmt.Sprintf("congestion control is the kernel's default, not %s: %v", CongestionControl, err)
		}
	}
	return note, nil
}

// setCongestionControl replaces the connected route that the kernel made for an address by a route that names the
// congestion control.
func setCongestionControl(link netlink.Link, p netip.Prefix) error {
	route := netlink.Route{
		LinkIndex: link.Attrs().Index,
		Dst:       IPNet(p.Masked()),
		Protocol:  unix.RTPROT_KERNEL,
		Congctl:   CongestionControl,
	}
	if p.Addr().Is4() {
		route.Scope = netlink.SCOPE_LINK
		route.Src = p.Addr().AsSlice()
	} else {
		// The kernel's own connected route has this metric; another metric would add a second route.
		route.Priority = 256
	}
	return netlink.RouteReplace(&route)
}

// IPNet converts a prefix to the netlink library's type.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// SetUpWithAddress sets a device of the calling thread's namespace up, with an address.
func SetUpWithAddress(device string, prefix netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find %s: %w", device, err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: IPNet(prefix)}); err != nil {
		return fmt.Errorf("give %s the address %s: %w", device, prefix, err)
	}
	return Up(device)
}

// SwitchRoute adds a route, or deletes it if it exists.
func SwitchRoute(route *netlink.Route, on bool) error {
	if on {
		return netlink.RouteReplace(route)
	}
	if err := netlink.RouteDel(route); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}
