// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// Drops returns the frames that a device has dropped, including those that did not fit its queueing discipline.
func Drops(name string) (receive, transmit uint64, err error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, 0, fmt.Errorf("find %s: %w", name, err)
	}
	queued, err := queueDrops(link)
	if err != nil {
		return 0, 0, fmt.Errorf("read the queueing discipline of %s: %w", name, err)
	}
	s := link.Attrs().Statistics
	return s.RxDropped, s.TxDropped + queued, nil
}

// queueDrops returns the frames that did not fit a device's queueing discipline since that was set; the device does not
// count them.
func queueDrops(link netlink.Link) (uint64, error) {
	disciplines, err := netdump.Consistent(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(link) })
	if err != nil {
		return 0, err
	}
	for _, d := range disciplines {
		if a := d.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Statistics != nil && a.Statistics.Queue != nil {
			return uint64(a.Statistics.Queue.Drops), nil
		}
	}
	return 0, nil
}
