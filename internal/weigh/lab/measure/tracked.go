// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"errors"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
)

// ConntrackTo selects the tracked connections that were made to an address.
type ConntrackTo struct{ Address netip.Addr }

func (t ConntrackTo) has(flow *netlink.ConntrackFlow) bool {
	to, ok := netip.AddrFromSlice(flow.Forward.DstIP)
	return ok && to.Unmap() == t.Address
}

// MatchConntrackFlow is the netlink library's CustomConntrackFilter.
func (t ConntrackTo) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool { return t.has(flow) }

// Count counts the selected connections of the calling thread's namespace; 0 where the kernel has no connection
// tracking.
func (t ConntrackTo) Count() (n int, err error) {
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4)
	if errors.Is(err, os.ErrNotExist) || err != nil && strings.Contains(err.Error(), "protocol not supported") {
		return 0, nil
	}
	for _, flow := range flows {
		if t.has(flow) {
			n++
		}
	}
	return n, err
}

// Delete deletes the selected connections of the calling thread's namespace from the kernel's table.
func (t ConntrackTo) Delete() error {
	_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.FAMILY_V4, t)
	return err
}
