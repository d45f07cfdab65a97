// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// neighbourStates maps the states to the kernel's names (ip-neighbour(8)).
var neighbourStates = map[int]string{
	netlink.NUD_INCOMPLETE: "INCOMPLETE", netlink.NUD_REACHABLE: "REACHABLE", netlink.NUD_STALE: "STALE",
	netlink.NUD_DELAY: "DELAY", netlink.NUD_PROBE: "PROBE", netlink.NUD_FAILED: "FAILED",
	netlink.NUD_NOARP: "NOARP", netlink.NUD_PERMANENT: "PERMANENT", netlink.NUD_NONE: "NONE",
}

// tick is the unit of a neighbour's times in the kernel's messages (USER_HZ).
const tick = time.Second / 100

func readNeighbours() ([]evidence.Neighbour, error) {
	gateways := map[netip.Addr]bool{}
	routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
		return netlink.RouteList(nil,
			netlink.FAMILY_ALL)
	})
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	for _, r := range routes {
		if a, ok := netip.AddrFromSlice(r.Gw); ok {
			gateways[a.Unmap()] = true
		}
	}
	all, err := netdump.Consistent(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, netlink.FAMILY_ALL) })
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	var neighbours []evidence.Neighbour
	for _, n := range all {
		address, ok := netip.AddrFromSlice(n.IP)
		if !ok || address.IsMulticast() || n.State == netlink.NUD_NOARP || n.State == netlink.NUD_NONE {
			continue
		}
		address = address.Unmap()
		neighbours = append(neighbours, evidence.Neighbour{Address: address, Interface: n.LinkIndex,
			State: neighbourStates[n.State],
			MAC:   n.HardwareAddr.String(), Since: (time.Duration(n.Updated) * tick).Seconds(),
			Gateway: gateways[address]})
	}
	return neighbours, nil
}

// readTableFulls returns how often a neighbour table of the machine was full.
func readTableFulls() (uint64, error) {
	own, err := procfs.NewFS("/proc/thread-self")
	if err != nil {
		return 0, err
	}
	tables, err := own.NetStat()
	if err != nil {
		return 0, err
	}
	var sum uint64
	for _, t := range tables {
		if strings.HasSuffix(t.Filename, "arp_cache") || strings.HasSuffix(t.Filename, "ndisc_cache") {
			for _, n := range t.Stats["table_fulls"] {
				sum += n
			}
		}
	}
	return sum, nil
}
