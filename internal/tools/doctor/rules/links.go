// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// dropShare is the share of packets that an interface may drop without a finding: the kernel also counts packets of
// protocols that it does not support as dropped (LLDP, STP).
const dropShare = 0.001

// lossCounters matches names of drivers' counters of packets that the card had no room for.
var lossCounters = regexp.MustCompile(
	`(?i)(no_?buf|no_?dma|out_of_buffer|missed|nodesc|discard|fifo|overrun|rx_queue_\d+_drops$|rx\d*_dropped)`)

func checkLinks(e *evidence.Evidence) (findings []Finding) {
	for _, pair := range e.WatchedLinks() {
		before, after := pair[0], pair[1]
		packets := evidence.Growth(after.RxPackets, before.RxPackets)
		figure := func(name string, b, a uint64, unit string) Figure {
			return Figure{Name: name, On: after.Name, Value: float64(evidence.Growth(a, b)), Unit: unit}
		}
		lost := nonZero(figure("rx_missed", before.RxMissed, after.RxMissed, "packets"),
			figure("rx_errors", before.RxErrors, after.RxErrors, "packets"))
		for name, a := range after.Driver {
			if lossCounters.MatchString(name) && evidence.Growth(a, before.Driver[name]) > 0 {
				lost = append(lost, figure(name, before.Driver[name], a, "packets, by the driver"))
			}
		}
		slices.SortFunc(lost, func(a, b Figure) int { return cmp.Compare(a.Name, b.Name) })
		// The kernel includes packets that a core's full backlog queue dropped; they are reported separately.
		d := evidence.Growth(evidence.Growth(after.RxDropped, before.RxDropped), e.DroppedOn(after.Index, "CPU_BACKLOG"))
		if d >= fewPackets && float64(d) > dropShare*float64(packets+d) {
			lost = append(lost, Figure{Name: "rx_dropped", On: after.Name, Value: float64(d), Unit: "packets",
				Of: float64(packets + d)})
		}
		if len(lost) > 0 {
			findings = append(findings, finding(nicDrops, after.Name+" drops packets that arrive", lost...))
		}
		findings = append(findings, checkQueues(before, after)...)
	}
	return findings
}

// queueCounter matches a driver's count of packets of one receive queue.
var queueCounter = regexp.MustCompile(`^(?:rx[-_]?(?:queue[-_])?(\d+)[-_.](?:rx[-_])?packets|queue_(\d+)_rx_cnt)$`)

// Queues are uneven if one gets at least unevenShare of the packets and twice its fair share, of at least
// enoughPackets.
const unevenShare, enoughPackets = 0.5, 10000

func checkQueues(before, after evidence.Link) []Finding {
	var most Figure
	var all float64
	queues := 0
	for name, a := range after.Driver {
		if !queueCounter.MatchString(name) {
			continue
		}
		n := float64(evidence.Growth(a, before.Driver[name]))
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

func checkQdiscs(e *evidence.Evidence) (findings []Finding) {
	for _, pair := range e.WatchedLinks() {
		before, after := pair[0], pair[1]
		drops := evidence.Growth(after.QdiscDrops, before.QdiscDrops)
		figures := nonZero(
			Figure{Name: "qdisc drops", On: after.Name, Value: float64(drops), Unit: "packets",
				Of: float64(evidence.Growth(after.QdiscSent, before.QdiscSent) + drops)},
			Figure{Name: "tx_dropped", On: after.Name, Value: float64(evidence.Growth(after.TxDropped, before.TxDropped)),
				Unit: "packets"},
			Figure{Name: "tx_errors", On: after.Name, Value: float64(evidence.Growth(after.TxErrors, before.TxErrors)),
				Unit: "packets"})
		if slices.ContainsFunc(figures, func(f Figure) bool { return f.Value >= fewPackets }) {
			findings = append(findings, finding(qdiscDrops, after.Name+" drops packets that are to be sent",
				figures...))
		}
	}
	return findings
}
