// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"os"
	"reflect"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// readProtocols reads the counters of /proc/net/snmp, netstat and snmp6 of the calling
// thread's network namespace.
func readProtocols() (map[string]uint64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	self, err := fs.Thread(os.Getpid(), unix.Gettid())
	if err != nil {
		return nil, err
	}
	counters := map[string]uint64{}
	snmp, err := self.Snmp()
	if err != nil {
		return nil, err
	}
	netstat, err := self.Netstat()
	if err != nil {
		return nil, err
	}
	flatten(counters, snmp)
	flatten(counters, netstat)
	// A kernel without IPv6 has no such file.
	if snmp6, err := self.Snmp6(); err == nil {
		flatten(counters, snmp6)
	}
	return counters, nil
}

// flatten takes the counters out of a structure of structures, each under the names
// of both: TcpExt.ListenDrops becomes TcpExtListenDrops. Those that are 0 are left out.
func flatten(into map[string]uint64, protocols any) {
	outer := reflect.ValueOf(protocols)
	for i := range outer.NumField() {
		group := outer.Field(i)
		if group.Kind() != reflect.Struct {
			continue
		}
		for j := range group.NumField() {
			if counter, ok := group.Field(j).Interface().(*float64); ok && counter != nil && *counter > 0 {
				into[outer.Type().Field(i).Name+group.Type().Field(j).Name] = uint64(*counter)
			}
		}
	}
}

// Below these, something that happens now and then anywhere is not worth a word.
const (
	fewPackets       = 3
	fewRetransmits   = 10
	retransmitsShare = 0.01
)

func judgeReversePath(e *Evidence) []Finding {
	n := e.grew("TcpExtIPReversePathFilter")
	dropped, example := e.dropped("IP_RPFILTER")
	if max(n, dropped) < fewPackets {
		return nil
	}
	title := "The reverse path filter drops packets"
	if example != nil {
		title += " from " + example.Source.String()
	}
	return []Finding{finding(reversePath, title,
		seen(e.counted("TcpExtIPReversePathFilter", "packets"), e.dropFigure("IP_RPFILTER"))...)}
}

// judgeMissingVIP looks for packets for addresses that this host does not have; where
// [Wire] has told of a backend, that comes from the balancer's side.
func judgeMissingVIP(e *Evidence) []Finding {
	n := e.grew("IpInAddrErrors") + e.grew("Ip6InAddrErrors")
	dropped, example := e.dropped("IP_INADDRERRORS")
	if max(n, dropped) < fewPackets {
		return nil
	}
	title := "Packets arrive for an address that this host does not have"
	if example != nil {
		title = fmt.Sprintf("Packets arrive for %s, and this host does not have that address", example.Destination)
	}
	f := finding(vipMissing, title,
		seen(e.counted("IpInAddrErrors", "packets"), e.counted("Ip6InAddrErrors", "packets"),
			e.dropFigure("IP_INADDRERRORS"))...)
	f.Means = "They are dropped. If the address is a VIP, every connection that the balancer gives to this host times out."
	return []Finding{f}
}

func judgeRoutes(e *Evidence) []Finding {
	n := e.grew("IpExtInNoRoutes") + e.grew("IpOutNoRoutes") + e.grew("Ip6InNoRoutes") + e.grew("Ip6OutNoRoutes")
	dropped, example := e.dropped("IP_OUTNOROUTES", "IP_INNOROUTES")
	if max(n, dropped) < fewPackets {
		return nil
	}
	title := "There is no route for some packets"
	if example != nil {
		title = fmt.Sprintf("There is no route to %s", example.Destination)
	}
	return []Finding{finding(noRoute, title, seen(
		e.counted("IpExtInNoRoutes", "packets"), e.counted("IpOutNoRoutes", "packets"),
		e.counted("Ip6InNoRoutes", "packets"), e.counted("Ip6OutNoRoutes", "packets"),
		e.dropFigure("IP_OUTNOROUTES"))...)}
}

func judgeMemory(e *Evidence) (findings []Finding) {
	figures := seen(e.counted("TcpExtTCPMemoryPressures", "times"), e.counted("TcpExtTCPAbortOnMemory", "connections"),
		e.counted("TcpExtTCPRcvQDrop", "packets"), e.dropFigure("PROTO_MEM"))
	if len(figures) > 0 {
		findings = append(findings, finding(tcpMemory, "TCP runs out of memory for its buffers", figures...))
	}
	figures = seen(e.counted("UdpRcvbufErrors", "datagrams"), e.counted("Udp6RcvbufErrors", "datagrams"),
		e.dropFigure("SOCKET_RCVBUFF"))
	if len(figures) > 0 {
		title := "A UDP socket's receive buffer is full"
		if _, example := e.dropped("SOCKET_RCVBUFF"); example != nil {
			title = fmt.Sprintf("The receive buffer of the socket on port %d is full", example.DestinationPort)
		}
		findings = append(findings, finding(socketBuffer, title, figures...))
	}
	return findings
}

func judgeChecksums(e *Evidence) []Finding {
	figures := seen(e.counted("TcpInCsumErrors", "packets"), e.counted("UdpInCsumErrors", "packets"),
		e.counted("IpExtInCsumErrors", "packets"), e.counted("IcmpInCsumErrors", "packets"),
		e.counted("Udp6InCsumErrors", "packets"),
		e.dropFigure("TCP_CSUM"), e.dropFigure("UDP_CSUM"), e.dropFigure("IP_CSUM"))
	var most float64
	for _, f := range figures {
		most = max(most, f.Value)
	}
	if most < fewPackets {
		return nil
	}
	return []Finding{finding(checksums, "Packets arrive with wrong checksums", figures...)}
}

func judgeTimeWait(e *Evidence) []Finding {
	if e.grew("TcpExtTCPTimeWaitOverflow") == 0 {
		return nil
	}
	return []Finding{finding(timeWaitFull, "More connections are in TIME-WAIT than the kernel keeps",
		e.counted("TcpExtTCPTimeWaitOverflow", "connections"))}
}

func judgeRetransmits(e *Evidence) []Finding {
	again, sent := e.grew("TcpRetransSegs"), e.grew("TcpOutSegs")
	if again < fewRetransmits || float64(again) < retransmitsShare*float64(sent) {
		return nil
	}
	f := e.counted("TcpRetransSegs", "segments")
	f.Of = float64(sent)
	return []Finding{finding(retransmits, fmt.Sprintf("TCP sends %.0f %% of its segments again",
		100*float64(again)/max(1, float64(sent))),
		append([]Figure{f}, seen(e.counted("TcpExtTCPSynRetrans", "segments that open connections"),
			e.counted("TcpExtTCPTimeouts", "timeouts"))...)...)}
}
