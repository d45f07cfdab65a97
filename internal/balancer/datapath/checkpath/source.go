// SPDX-License-Identifier: Apache-2.0

package checkpath

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/host/netdump"
)

// hostAddress returns a source address for checks whose backend has the other family than the VIP: a global address of
// an interface, of the VIP's family, that is no VIP of ours.
func (c *Checks) hostAddress(index int, four bool) (address netip.Addr, err error) {
	family, name := netlink.FAMILY_V6, "IPv6"
	if four {
		family, name = netlink.FAMILY_V4, "IPv4"
	}
	var all []netlink.Addr
	err = c.net.Host(func() (err error) {
		link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
		all, err = netdump.Consistent(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
		return err
	})
	if err != nil {
		return address, fmt.Errorf("listing the addresses of the interface %d: %w", index, err)
	}
	vips := c.vips()
	for _, one := range all {
		found, ok := netip.AddrFromSlice(one.IP)
		if ok && one.Scope == int(netlink.SCOPE_UNIVERSE) && !vips[found.Unmap()] {
			return found.Unmap(), nil
		}
	}
	where := fmt.Sprintf("the interface %d", index)
	if nic, err := net.InterfaceByIndex(index); err == nil {
		where = nic.Name
	}
	return address, fmt.Errorf("%w: %s has no %s address of the host's, which answers to a VIP of %s would be sent to",
		health.ErrNoPath, where, name, name)
}

// vips returns the addresses of the services.
func (c *Checks) vips() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, r := range c.published.Load().Records {
		all[r.Key.VIP] = true
	}
	return all
}
