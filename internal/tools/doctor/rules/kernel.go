// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/host/drops"
	"github.com/jeoul/jeoul/internal/host/iface"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// ownRuleReasons are the kernel's drop reasons that other rules evaluate with their own figures.
var ownRuleReasons = []string{
	"IP_RPFILTER", "IP_INADDRERRORS", "IP_OUTNOROUTES", "IP_INNOROUTES", "PROTO_MEM", "SOCKET_RCVBUFF", "TCP_CSUM",
	"UDP_CSUM",
	"IP_CSUM", "NEIGH_FAILED", "NEIGH_QUEUEFULL", "NEIGH_CREATEFAIL", "CPU_BACKLOG", "TCP_LISTEN_OVERFLOW",
}

// harmless are drop reasons that occur on a healthy host at any time: packets that no socket waits for, duplicates,
// ends of connections, and packets that filters are configured to drop.
var harmless = []string{
	"NOT_SPECIFIED", "NO_SOCKET", "OTHERHOST", "UNHANDLED_PROTO", "PACKET_SOCK_ERROR", "SOCKET_FILTER",
	"NETFILTER_DROP", "BPF_CGROUP_EGRESS",
	"TCP_OLD_DATA", "TCP_OLD_ACK", "TCP_OLD_SEQUENCE", "TCP_INVALID_SEQUENCE", "TCP_RFC7323_PAWS",
	"TCP_RFC7323_PAWS_ACK", "TCP_ACK_UNSENT_DATA",
	"TCP_TOO_OLD_ACK", "TCP_OVERWINDOW", "TCP_FLAGS", "TCP_CLOSE", "TCP_RESET", "TCP_INVALID_SYN",
	"TCP_INVALID_ACK_SEQUENCE", "TCP_INVALID_END_SEQUENCE", "TCP_OFOMERGE",
	"TCP_OFO_QUEUE_PRUNE", "TCP_ABORT_ON_DATA", "SKB_CONSUMED", "SKB_UCOPY_FAULT", "IPV6DISABLED",
	"IPV6_NDISC_BAD_OPTIONS", "ICMP_CSUM",
	"XDP", "TC_INGRESS", "TC_EGRESS", "TC_RECLASSIFY_LOOP", "TAP_FILTER", "DEV_READY", "QUEUE_PURGE",
	"UNICAST_IN_L2_MULTICAST", "ARP_PVLAN_DISABLE",
	"PFMEMALLOC", "MAC_INVALID_SOURCE", "BRIDGE_INGRESS_STP_STATE", "NO_TX_TARGET", "LOCAL_MAC", "QDISC_DROP",
	"FULL_RING", "DUP_FRAG", "FRAG_REASM_TIMEOUT",
	"SOCKET_CLOSE", "SOCKET_DESTROY", "NETFILTER_CONNTRACK",
}

// checkKernel reports features that eBPF programs need and the kernel lacks.
func checkKernel(e *evidence.Evidence) []Finding {
	var figures []Figure
	for _, lack := range e.Lacks {
		figures = append(figures, Figure{Name: lack.Feature, Note: lack.Consequence + "; " + lack.Remedy})
	}
	if len(figures) == 0 {
		return nil
	}
	return []Finding{finding(kernelLacks, "The kernel lacks something that eBPF programs need", figures...)}
}

// manyDrops is the rate, in packets per second, from which drops for a reason without a rule are reported.
const manyDrops = 1

// checkOtherDrops reports the kernel's drops for reasons that no other rule evaluates.
func checkOtherDrops(e *evidence.Evidence) (findings []Finding) {
	sums := map[string]Figure{}
	for _, d := range e.Drops {
		if d.Source != drops.Stack || slices.Contains(ownRuleReasons, d.Reason) || slices.Contains(harmless, d.Reason) {
			continue
		}
		f := sums[d.Reason]
		f.Name, f.Unit, f.Value = d.Reason, "packets", f.Value+float64(d.Packets)
		f.Note = "in " + d.Function
		if d.Example != nil {
			f.Note += ", such as " + d.Example.String()
		}
		sums[d.Reason] = f
	}
	if local := sums["IP_LOCAL_SOURCE"]; local.Value <= float64(e.Wire.Provoked) {
		delete(sums, "IP_LOCAL_SOURCE")
	}
	for reason, f := range sums {
		if f.Value >= max(fewPackets, manyDrops*e.Seconds) {
			findings = append(findings,
				finding(otherDrops, fmt.Sprintf("The kernel drops packets for the reason %s", reason), f))
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int { return cmp.Compare(b.Seen[0].Value, a.Seen[0].Value) })
	return findings
}

// checkFilter looks for packets of services that this host's packet filter drops. It cannot tell the rule, chain or
// policy: the kernel's reason is the same for all.
func checkFilter(e *evidence.Evidence) (findings []Finding) {
	seen := map[netip.AddrPort][]Figure{}
	for _, d := range e.Drops {
		if d.Source != drops.Stack || d.Reason != "NETFILTER_DROP" || d.Packets < fewPackets ||
			d.Example == nil || !e.Before.Serves(*d.Example) {
			continue
		}
		to := netip.AddrPortFrom(d.Example.Destination, d.Example.DestinationPort)
		seen[to] = append(seen[to], Figure{Name: d.Reason, Value: float64(d.Packets), Unit: "packets dropped by the kernel",
			Note: "in " + d.Function + ", such as " + d.Example.String()})
	}
	for _, to := range slices.SortedFunc(maps.Keys(seen), netip.AddrPort.Compare) {
		findings = append(findings,
			finding(filterDrops, fmt.Sprintf("A filter of this host drops packets for %s", to), seen[to]...))
	}
	return findings
}

// checkXDP reports frames that XDP programs lost.
func checkXDP(e *evidence.Evidence) []Finding {
	var figures []Figure
	name := func(index int) string {
		for _, l := range e.After.Links {
			if l.Index == index {
				return l.Name
			}
		}
		return fmt.Sprintf("interface %d", index)
	}
	for _, d := range e.Drops {
		if d.Source != drops.Stack {
			figures = append(figures, Figure{Name: string(d.Source), On: name(d.Interface), Value: float64(d.Packets),
				Unit: "frames", Note: d.Reason})
		}
	}
	for _, pair := range e.WatchedLinks() {
		for counter, after := range pair[1].Driver {
			if n := evidence.Growth(after, pair[0].Driver[counter]); n > 0 && iface.CountsXDPLoss(counter) {
				figures = append(figures, Figure{Name: counter, On: pair[1].Name, Value: float64(n),
					Unit: "frames, by the driver"})
			}
		}
	}
	if len(figures) == 0 {
		return nil
	}
	slices.SortFunc(figures, func(a, b Figure) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Name, b.Name))
	})
	return []Finding{finding(xdpFailures, "Frames that an XDP program sent are lost", figures...)}
}
