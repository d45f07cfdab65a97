// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

func checkReversePath(e *evidence.Evidence) []Finding {
	n := e.Grew("TcpExtIPReversePathFilter")
	dropped, example := e.Dropped("IP_RPFILTER")
	if max(n, dropped) < fewPackets {
		return nil
	}
	title := "The reverse path filter drops packets"
	if example != nil {
		title += " from " + example.Source.String()
	}
	return []Finding{finding(reversePath, title,
		nonZero(counted(e, "TcpExtIPReversePathFilter", "packets"), dropFigure(e, "IP_RPFILTER"))...)}
}

// checkMissingVIP looks for packets to addresses that this host does not have. checkWire reports the same fault of
// backends, from the balancer's side.
func checkMissingVIP(e *evidence.Evidence) []Finding {
	n := e.Grew("IpInAddrErrors") + e.Grew("Ip6InAddrErrors")
	dropped, example := e.Dropped("IP_INADDRERRORS")
	if max(n, dropped) < fewPackets {
		return nil
	}
	title := "Packets arrive for an address that this host does not have"
	if example != nil {
		title = fmt.Sprintf("Packets arrive for %s, and this host does not have that address", example.Destination)
	}
	f := finding(vipMissing, title,
		nonZero(counted(e, "IpInAddrErrors", "packets"), counted(e, "Ip6InAddrErrors", "packets"),
			dropFigure(e, "IP_INADDRERRORS"))...)
	f.Means = "They are dropped. If the address is a VIP, every connection that the balancer gives to this host times out."
	return []Finding{f}
}

func checkRoutes(e *evidence.Evidence) []Finding {
	names := []string{"IpExtInNoRoutes", "IpOutNoRoutes", "Ip6InNoRoutes"}
	if e.After.HasIPv6() {
		// The kernel counts programs that try IPv6 first, too: without an address for it, they are no fault.
		names = append(names, "Ip6OutNoRoutes")
	}
	var n uint64
	var figures []Figure
	for _, name := range names {
		n += e.Grew(name)
		figures = append(figures, counted(e, name, "packets"))
	}
	dropped, example := e.Dropped("IP_OUTNOROUTES", "IP_INNOROUTES")
	if max(n, dropped) < fewPackets {
		return nil
	}
	title := "There is no route for some packets"
	if example != nil {
		title = fmt.Sprintf("There is no route to %s", example.Destination)
	}
	return []Finding{finding(noRoute, title, nonZero(append(figures, dropFigure(e, "IP_OUTNOROUTES"))...)...)}
}

func checkMemory(e *evidence.Evidence) (findings []Finding) {
	figures := nonZero(counted(e, "TcpExtTCPMemoryPressures", "times"), counted(e, "TcpExtTCPAbortOnMemory", "connections"),
		counted(e, "TcpExtTCPRcvQDrop", "packets"), dropFigure(e, "PROTO_MEM"))
	if len(figures) > 0 {
		findings = append(findings, finding(tcpMemory, "TCP runs out of memory for its buffers", figures...))
	}
	figures = nonZero(counted(e, "UdpRcvbufErrors", "datagrams"), counted(e, "Udp6RcvbufErrors", "datagrams"),
		dropFigure(e, "SOCKET_RCVBUFF"))
	if len(figures) > 0 {
		title := "A UDP socket's receive buffer is full"
		if _, example := e.Dropped("SOCKET_RCVBUFF"); example != nil {
			title = fmt.Sprintf("The receive buffer of the socket on port %d is full", example.DestinationPort)
		}
		findings = append(findings, finding(socketBuffer, title, figures...))
	}
	return findings
}

func checkChecksums(e *evidence.Evidence) []Finding {
	figures := nonZero(counted(e, "TcpInCsumErrors", "packets"), counted(e, "UdpInCsumErrors", "packets"),
		counted(e, "IpExtInCsumErrors", "packets"), counted(e, "IcmpInCsumErrors", "packets"),
		counted(e, "Udp6InCsumErrors", "packets"),
		dropFigure(e, "TCP_CSUM"), dropFigure(e, "UDP_CSUM"), dropFigure(e, "IP_CSUM"))
	var most float64
	for _, f := range figures {
		most = max(most, f.Value)
	}
	if most < fewPackets {
		return nil
	}
	return []Finding{finding(checksums, "Packets arrive with wrong checksums", figures...)}
}

func checkTimeWait(e *evidence.Evidence) []Finding {
	if e.Grew("TcpExtTCPTimeWaitOverflow") == 0 {
		return nil
	}
	return []Finding{finding(timeWaitFull, "More connections are in TIME-WAIT than the kernel keeps",
		counted(e, "TcpExtTCPTimeWaitOverflow", "connections"))}
}

func checkRetransmits(e *evidence.Evidence) []Finding {
	again, sent := e.Grew("TcpRetransSegs"), e.Grew("TcpOutSegs")
	if again < fewRetransmits || float64(again) < retransmitsShare*float64(sent) {
		return nil
	}
	f := counted(e, "TcpRetransSegs", "segments")
	f.Of = float64(sent)
	return []Finding{finding(retransmits, fmt.Sprintf("TCP sends %.0f %% of its segments again",
		100*float64(again)/max(1, float64(sent))),
		append([]Figure{f}, nonZero(counted(e, "TcpExtTCPSynRetrans", "segments that open connections"),
			counted(e, "TcpExtTCPTimeouts", "timeouts"))...)...)}
}
