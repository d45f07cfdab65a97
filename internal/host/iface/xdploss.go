// SPDX-License-Identifier: Apache-2.0

package iface

import (
	"regexp"

	"github.com/safchain/ethtool"
)

// xdpLosses matches the names of drivers' counters of frames that XDP_TX or a redirect lost. It does not match counters
// of frames that a program drops on purpose.
var xdpLosses = regexp.MustCompile(`(?i)xdp.*(err|full|redirect_drop|tx_drop)`)

// CountsXDPLoss reports whether a driver's counter, by its name in `ethtool -S`, counts lost frames that an XDP program
// sent.
func CountsXDPLoss(counter string) bool { return xdpLosses.MatchString(counter) }

// XDPLost returns the number of frames sent by XDP programs that were lost on each interface since Watch, in the order
// of the names, as far as the driver counts them. The programs have counted these frames as sent. Where the driver
// fails, the number is that of its last answer: a counter must not fall.
func (i *Interfaces) XDPLost() []uint64 {
	all := i.watchedInterfaces()
	lost, losses := make([]uint64, len(all)), map[int]uint64{}
	i.mu.Lock()
	latest := i.losses
	i.mu.Unlock()
	for at, w := range all {
		switch now, ok := i.countXDPLost(w); {
		case !ok:
			lost[at] = latest[w.index]
		case now > w.lost:
			lost[at] = now - w.lost
		}
		losses[w.index] = lost[at]
	}
	i.mu.Lock()
	i.losses = losses
	i.mu.Unlock()
	return lost
}

// countXDPLost reads the counters; false if that fails.
func (i *Interfaces) countXDPLost(w watched) (lost uint64, ok bool) {
	if i.driver == nil {
		return 0, false
	}
	stats, err := i.driver.Stats(w.name)
	if err != nil {
		return 0, false
	}
	for counter, n := range stats {
		if CountsXDPLoss(counter) {
			lost += n
		}
	}
	// Frames that are redirected to a veth whose peer does not take them are in no other counter; those that XDP_TX
	// lost are in both.
	if driver, err := i.driver.DriverName(w.name); err == nil && driver == "veth" {
		if link, err := i.handle.LinkByIndex(w.index); err == nil && link.Attrs().Statistics != nil {
			lost = max(lost, link.Attrs().Statistics.TxDropped)
		}
	}
	return lost, true
}

// openDriver opens ethtool, and records the losses so far; if that fails, no losses are counted.
func (i *Interfaces) openDriver() {
	driver, err := ethtool.NewEthtool()
	if err != nil {
		return
	}
	i.driver = driver
	for at := range i.watched {
		i.watched[at].lost, _ = i.countXDPLost(i.watched[at])
	}
}
