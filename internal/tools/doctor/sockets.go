// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// Maximum numbers of entries that are kept.
const maxDestinations, maxHanging = 16, 64

func readSockets() (*evidence.Sockets, error) {
	s := &evidence.Sockets{}
	var err error
	if s.Ports, err = readPortRange(); err != nil {
		return nil, err
	}
	used := map[evidence.Destination]*evidence.Destination{}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		all, err := netlink.SocketDiagTCPInfo(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, err
		}
		for _, socket := range all {
			addSocket(s, socket, used)
		}
	}
	for _, d := range used {
		s.Destinations = append(s.Destinations, *d)
	}
	slices.SortFunc(s.Destinations, func(a, b evidence.Destination) int {
		return cmp.Or(cmp.Compare(b.Ports, a.Ports), a.To.Compare(b.To), a.From.Compare(b.From))
	})
	s.Destinations = s.Destinations[:min(len(s.Destinations), maxDestinations)]
	return s, nil
}

func addSocket(s *evidence.Sockets, response *netlink.InetDiagTCPInfoResp,
	used map[evidence.Destination]*evidence.Destination) {
	m := response.InetDiagMsg
	local, peer := endpoint(m.ID.Source, m.ID.SourcePort), endpoint(m.ID.Destination, m.ID.DestinationPort)
	if m.State == netlink.TCP_LISTEN {
		if m.RQueue > 0 {
			s.Listeners = append(s.Listeners, evidence.Listener{Address: local, Queue: m.RQueue, Limit: m.WQueue})
		}
		return
	}
	if m.State == netlink.TCP_ESTABLISHED {
		s.Established++
	}
	if local.Port() >= s.Ports.First && local.Port() <= s.Ports.Last {
		key := evidence.Destination{From: local.Addr(), To: peer}
		if used[key] == nil {
			used[key] = &evidence.Destination{From: key.From, To: key.To}
		}
		used[key].Ports++
		if m.State == netlink.TCP_TIME_WAIT {
			used[key].TimeWait++
		}
	}
	if i := response.TCPInfo; i != nil && i.Retransmits > 0 && i.Unacked > 0 && m.State != netlink.TCP_SYN_SENT &&
		len(s.Hanging) < maxHanging {
		s.Hanging = append(s.Hanging, evidence.Hanging{Local: local, Peer: peer, Timeouts: i.Retransmits,
			MSS:     i.Snd_mss,
			PathMTU: i.Pmtu, Acknowledged: i.Bytes_acked, Received: i.Bytes_received})
	}
}

func endpoint(ip []byte, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}

func readPortRange() (r evidence.PortRange, err error) {
	text, err := sysctl.Read("net.ipv4.ip_local_port_range")
	if err != nil {
		return r, err
	}
	if _, err := fmt.Sscan(text, &r.First, &r.Last); err != nil {
		return r, fmt.Errorf("read net.ipv4.ip_local_port_range: %q is not two ports", text)
	}
	reserved, err := sysctl.Read("net.ipv4.ip_local_reserved_ports")
	if err != nil {
		return r, err
	}
	if r.Reserved, err = countReserved(reserved, r); err != nil {
		return r, err
	}
	reuse, err := sysctl.Read("net.ipv4.tcp_tw_reuse")
	r.Reuse = reuse == "1"
	return r, err
}

// countReserved counts the ports of a list such as "8080,9148-9150" within a range.
func countReserved(list string, within evidence.PortRange) (n int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		if part == "" {
			continue
		}
		low, high, ranged := strings.Cut(part, "-")
		if !ranged {
			high = low
		}
		first, err1 := strconv.ParseUint(low, 10, 16)
		last, err2 := strconv.ParseUint(high, 10, 16)
		if err1 != nil || err2 != nil {
			return 0, fmt.Errorf("read net.ipv4.ip_local_reserved_ports: %q is not a list of ports", list)
		}
		n += max(0, min(int(last), int(within.Last))-max(int(first), int(within.First))+1)
	}
	return n, nil
}
