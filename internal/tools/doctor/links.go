// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// Link is an interface and its counters.
type Link struct {
	Name      string         `json:"name"`
	Index     int            `json:"index"`
	Up        bool           `json:"up"`
	MTU       int            `json:"mtu"`
	MAC       string         `json:"mac"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// XDP says that a program is attached.
	XDP bool `json:"xdp,omitempty"`
	// Watched says that its counters were asked for; the rest is there where it is.
	Watched    bool   `json:"watched,omitempty"`
	RxPackets  uint64 `json:"rx_packets,omitempty"`
	RxDropped  uint64 `json:"rx_dropped,omitempty"`
	RxMissed   uint64 `json:"rx_missed,omitempty"`
	RxErrors   uint64 `json:"rx_errors,omitempty"`
	TxPackets  uint64 `json:"tx_packets,omitempty"`
	TxDropped  uint64 `json:"tx_dropped,omitempty"`
	TxErrors   uint64 `json:"tx_errors,omitempty"`
	QdiscDrops uint64 `json:"qdisc_drops,omitempty"`
	QdiscSent  uint64 `json:"qdisc_sent,omitempty"`
	// Driver are the driver's own counters, as `ethtool -S` shows them, but for zeros.
	Driver map[string]uint64 `json:"driver,omitempty"`
}

// readLinks reads all interfaces, and the counters of the one of that name or, if it
// is empty, of all but the loopback.
func readLinks(only string) (links []Link, err error) {
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
			link.count(l, driver)
		}
		links = append(links, link)
	}
	return links, nil
}

func readLink(l netlink.Link) (Link, error) {
	a := l.Attrs()
	link := Link{Name: a.Name, Index: a.Index, MTU: a.MTU, MAC: a.HardwareAddr.String(), Up: a.Flags&net.FlagUp != 0,
		XDP: a.Xdp != nil && a.Xdp.Attached}
	addresses, err := netdump.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	var gone netlink.LinkNotFoundError
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.As(err, &gone) {
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

// count reads an interface's counters, as far as it has them.
func (l *Link) count(device netlink.Link, driver *ethtool.Ethtool) {
	if s := device.Attrs().Statistics; s != nil {
		l.RxPackets, l.RxDropped, l.RxErrors = s.RxPackets, s.RxDropped, s.RxErrors
		l.RxMissed = s.RxMissedErrors + s.RxFifoErrors + s.RxOverErrors
		l.TxPackets, l.TxDropped, l.TxErrors = s.TxPackets, s.TxDropped, s.TxErrors
	}
	if s, err := driver.Stats(l.Name); err == nil {
		maps.DeleteFunc(s, func(_ string, n uint64) bool { return n == 0 })
		l.Driver = s
	}
	qdiscs, err := netdump.Whole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(device) })
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

// pairs returns the interfaces that were watched, before and after.
func (e *Evidence) pairs() (pairs [][2]Link) {
	for _, after := range e.After.Links {
		for _, before := range e.Before.Links {
			if after.Watched && before.Watched && after.Index == before.Index {
				pairs = append(pairs, [2]Link{before, after})
			}
		}
	}
	return pairs
}

// dropShare is which share of packets an interface may drop without a word: the kernel counts packets of protocols that
// it does not have as dropped, too (LLDP, STP).
const dropShare = 0.001

// lossCounters are names of drivers' counters of packets for which the card had no room.
var lossCounters = regexp.MustCompile(
	`(?i)(no_?buf|no_?dma|out_of_buffer|missed|nodesc|discard|fifo|overrun|rx_queue_\d+_drops$|rx\d*_dropped)`)

func judgeLinks(e *Evidence) (findings []Finding) {
	for _, pair := range e.pairs() {
		before, after := pair[0], pair[1]
		packets := less(after.RxPackets, before.RxPackets)
		figure := func(name string, b, a uint64, unit string) Figure {
			return Figure{Name: name, On: after.Name, Value: float64(less(a, b)), Unit: unit}
		}
		lost := seen(figure("rx_missed", before.RxMissed, after.RxMissed, "packets"),
			figure("rx_errors", before.RxErrors, after.RxErrors, "packets"))
		for name, a := range after.Driver {
			if lossCounters.MatchString(name) && less(a, before.Driver[name]) > 0 {
				lost = append(lost, figure(name, before.Driver[name], a, "packets, by the driver"))
			}
		}
		slices.SortFunc(lost, func(a, b Figure) int { return cmp.Compare(a.Name, b.Name) })
		// The kernel adds those for which a core's queue had no room; they are told of apart.
		d := less(less(after.RxDropped, before.RxDropped), e.droppedOn(after.Index, "CPU_BACKLOG"))
		if d >= fewPackets && float64(d) > dropShare*float64(packets+d) {
			lost = append(lost, Figure{Name: "rx_dropped", On: after.Name, Value: float64(d), Unit: "packets",
				Of: float64(packets + d)})
		}
		if len(lost) > 0 {
			findings = append(findings, finding(nicDrops, after.Name+" drops packets that arrive", lost...))
		}
		findings = append(findings, judgeQueues(before, after)...)
	}
	return findings
}

// queueCounter matches a driver's count of packets of one receive queue.
var queueCounter = regexp.MustCompile(`^(?:rx[-_]?(?:queue[-_])?(\d+)[-_.](?:rx[-_])?packets|queue_(\d+)_rx_cnt)$`)

// Queues are uneven where one has this share of at least so many packets, and more
// than twice its due.
const unevenShare, enoughPackets = 0.5, 10000

func judgeQueues(before, after Link) []Finding {
	var most Figure
	var all float64
	queues := 0
	for name, a := range after.Driver {
		if !queueCounter.MatchString(name) {
			continue
		}
		n := float64(less(a, before.Driver[name]))
		queues++
		all += n
		if n > most.Value || n == most.Value && name < most.Name {
			most = Figure{Name: name, On: after.Name, Value: n, Unit: "packets"}
		}
	}
	if queues < 2 || all < enoughPackets || most.Value < max(unevenShare, 2/float64(queues))*all {
		return nil
	}
	most.Of = all
	return []Finding{finding(unevenQueues, fmt.Sprintf("One of %d receive queues of %s gets most packets", queues,
		after.Name), most)}
}

func judgeQdiscs(e *Evidence) (findings []Finding) {
	for _, pair := range e.pairs() {
		before, after := pair[0], pair[1]
		drops := less(after.QdiscDrops, before.QdiscDrops)
		figures := seen(
			Figure{Name: "qdisc drops", On: after.Name, Value: float64(drops), Unit: "packets",
				Of: float64(less(after.QdiscSent, before.QdiscSent) + drops)},
			Figure{Name: "tx_dropped", On: after.Name, Value: float64(less(after.TxDropped, before.TxDropped)),
				Unit: "packets"},
			Figure{Name: "tx_errors", On: after.Name, Value: float64(less(after.TxErrors, before.TxErrors)),
				Unit: "packets"})
		if slices.ContainsFunc(figures, func(f Figure) bool { return f.Value >= fewPackets }) {
			findings = append(findings, finding(qdiscDrops, after.Name+" drops packets that are to be sent",
				figures...))
		}
	}
	return findings
}
