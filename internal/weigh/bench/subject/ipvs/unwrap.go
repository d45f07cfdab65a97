// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// unwrapDevice is the name of the tunnel device on a server.
const unwrapDevice = "jeoul-ipip"

// unwrap makes a server's kernel decapsulate IPIP packets to the server, as IPVS's documentation describes (LVS-HOWTO,
// LVS-Tun), or undoes that.
func unwrap(server *lab.Host, on bool) error {
	err := server.Do(func() error {
		device := &netlink.Iptun{LinkAttrs: netlink.NewLinkAttrs(), Local: server.IPv4.AsSlice()}
		device.Name = unwrapDevice
		if !on {
			link, err := netlink.LinkByName(unwrapDevice)
			if netdump.IsLinkMissing(err) {
				return nil
			}
			if err != nil {
				return err
			}
			return netlink.LinkDel(link)
		}
		if err := netlink.LinkAdd(device); err != nil {
			if errors.Is(err, unix.EOPNOTSUPP) {
				return fmt.Errorf("%w: this kernel has no ipip", err)
			}
			return err
		}
		// The clients' addresses are behind another device than the tunnel's, which rp_filter would reject.
		if err := sysctl.Write("net.ipv4.conf."+unwrapDevice+".rp_filter", "0"); err != nil {
			return err
		}
		return netlink.LinkSetUp(device)
	})
	if err != nil {
		return fmt.Errorf("changing the tunnel %s on %s: %w", unwrapDevice, server.Name, err)
	}
	return nil
}
