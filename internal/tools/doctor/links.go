// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"maps"
	"net"
	"net/netip"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// readLinks reads all interfaces, and the counters of the named one or, if only is empty, of all but the loopback.
func readLinks(only string) (links []evidence.Link, err error) {
	all, err := netdump.Links()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	driver, err := ethtool.NewEthtool()
	if err != nil {
		return nil, err
	}
	defer driver.Close()
	for _, l := range all {
		link, err := readLink(l)
		if err != nil {
			return nil, err
		}
		link.Watched = link.Name == only || only == "" && link.Up && l.Attrs().Flags&net.FlagLoopback == 0
		if link.Watched {
			countLink(&link, l, driver)
		}
		links = append(links, link)
	}
	return links, nil
}

func readLink(l netlink.Link) (evidence.Link, error) {
	a := l.Attrs()
	link := evidence.Link{Name: a.Name, Index: a.Index, MTU: a.MTU, MAC: a.HardwareAddr.String(),
		Up:  a.Flags&net.FlagUp != 0,
		XDP: a.Xdp != nil && a.Xdp.Attached}
	addresses, err := netdump.Consistent(func() ([]netlink.Addr, error) {
		return netlink.AddrList(l, netlink.FAMILY_ALL)
	})
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) && !netdump.IsLinkMissing(err) {
		return link, err
	}
	for _, address := range addresses {
		if ip, ok := netip.AddrFromSlice(address.IP); ok {
			ones, _ := address.Mask.Size()
			link.Addresses = append(link.Addresses, netip.PrefixFrom(ip.Unmap(), ones))
		}
	}
	return link, nil
}

// countLink reads the interface's counters that exist.
func countLink(l *evidence.Link, device netlink.Link, driver *ethtool.Ethtool) {
	if s := device.Attrs().Statistics; s != nil {
		l.RxPackets, l.RxDropped, l.RxErrors = s.RxPackets, s.RxDropped, s.RxErrors
		l.RxMissed = s.RxMissedErrors + s.RxFifoErrors + s.RxOverErrors
		l.TxPackets, l.TxDropped, l.TxErrors = s.TxPackets, s.TxDropped, s.TxErrors
	}
	if s, err := driver.Stats(l.Name); err == nil {
		maps.DeleteFunc(s, func(_ string, n uint64) bool { return n == 0 })
		l.Driver = s
	}
	qdiscs, err := netdump.Consistent(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(device) })
	if err != nil {
		return
	}
	for _, q := range qdiscs {
		// The root's counters include those below it.
		if s := q.Attrs().Statistics; s != nil && q.Attrs().Parent == netlink.HANDLE_ROOT {
			if s.Queue != nil {
				l.QdiscDrops += uint64(s.Queue.Drops)
			}
			if s.Basic != nil {
				l.QdiscSent += uint64(s.Basic.Packets)
			}
		}
	}
}
