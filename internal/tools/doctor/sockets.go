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
)

// Sockets are counts of TCP's sockets.
type Sockets struct {
	// Listeners are the listening sockets whose queue is not empty.
	Listeners []Listener `json:"listeners,omitempty"`
	Ports     PortRange  `json:"ports"`
	// Established counts established connections.
	Established int `json:"established"`
	// Destinations are the destinations with the most connections from this host.
	Destinations []Destination `json:"destinations,omitempty"`
	// Hanging are connections whose data is sent again and again.
	Hanging []Hanging `json:"hanging,omitempty"`
}

// Listener is a listening socket: how many connections wait to be accepted, of how
// many that may.
type Listener struct {
	Address netip.AddrPort `json:"address"`
	Queue   uint32         `json:"queue"`
	Limit   uint32         `json:"limit"`
}

// PortRange is the range of local ports that the kernel chooses from.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
	// Reserved is how many ports in it the kernel may not choose.
	Reserved int `json:"reserved,omitempty"`
	// Reuse says that ports in TIME-WAIT may be chosen.
	Reuse bool `json:"reuse,omitempty"`
}

// size is how many ports there are to choose from.
func (r PortRange) size() int { return int(r.Last) - int(r.First) + 1 - r.Reserved }

// Destination is where connections go, and the local ports that are taken for it.
type Destination struct {
	From     netip.Addr     `json:"from"`
	To       netip.AddrPort `json:"to"`
	Ports    int            `json:"ports"`
	TimeWait int            `json:"time_wait,omitempty"`
}

// Hanging is a connection whose peer does not acknowledge data.
type Hanging struct {
	Local netip.AddrPort `json:"local"`
	Peer  netip.AddrPort `json:"peer"`
	// Timeouts is the number of timeouts since data was acknowledged last.
	Timeouts uint8 `json:"timeouts"`
	// MSS and PathMTU are in bytes; Acknowledged and Received bytes of payload.
	MSS          uint32 `json:"mss"`
	PathMTU      uint32 `json:"path_mtu"`
	Acknowledged uint64 `json:"acknowledged"`
	Received     uint64 `json:"received"`
}

// How much of it is kept.
const mostDestinations, mostHanging = 16, 64

func readSockets() (*Sockets, error) {
	s := &Sockets{}
	var err error
	if s.Ports, err = readPortRange(); err != nil {
		return nil, err
	}
	used := map[Destination]*Destination{}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		all, err := netlink.SocketDiagTCPInfo(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, err
		}
		for _, socket := range all {
			s.add(socket, used)
		}
	}
	for _, d := range used {
		s.Destinations = append(s.Destinations, *d)
	}
	slices.SortFunc(s.Destinations, func(a, b Destination) int {
		return cmp.Or(cmp.Compare(b.Ports, a.Ports), a.To.Compare(b.To), a.From.Compare(b.From))
	})
	s.Destinations = s.Destinations[:min(len(s.Destinations), mostDestinations)]
	return s, nil
}

func (s *Sockets) add(response *netlink.InetDiagTCPInfoResp, used map[Destination]*Destination) {
	m := response.InetDiagMsg
	local, peer := endpoint(m.ID.Source, m.ID.SourcePort), endpoint(m.ID.Destination, m.ID.DestinationPort)
	if m.State == netlink.TCP_LISTEN {
		if m.RQueue > 0 {
			s.Listeners = append(s.Listeners, Listener{local, m.RQueue, m.WQueue})
		}
		return
	}
	if m.State == netlink.TCP_ESTABLISHED {
		s.Established++
	}
	if local.Port() >= s.Ports.First && local.Port() <= s.Ports.Last {
		key := Destination{From: local.Addr(), To: peer}
		if used[key] == nil {
			used[key] = &Destination{From: key.From, To: key.To}
		}
		used[key].Ports++
		if m.State == netlink.TCP_TIME_WAIT {
			used[key].TimeWait++
		}
	}
	if i := response.TCPInfo; i != nil && i.Retransmits > 0 && i.Unacked > 0 && m.State != netlink.TCP_SYN_SENT &&
		len(s.Hanging) < mostHanging {
		s.Hanging = append(s.Hanging, Hanging{local, peer, i.Retransmits, i.Snd_mss, i.Pmtu, i.Bytes_acked,
			i.Bytes_received})
	}
}

func endpoint(ip []byte, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}

func readPortRange() (r PortRange, err error) {
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

// countReserved counts how many of a list such as "8080,9148-9150" are within a range.
func countReserved(list string, within PortRange) (n int, err error) {
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

// judgeListeners looks for programs that do not accept their connections.
func judgeListeners(e *Evidence) (findings []Finding) {
	overflows, dropped := e.counted("TcpExtListenOverflows", "connections"), e.dropFigure("TCP_LISTEN_OVERFLOW")
	if overflows.Value > 0 || dropped.Value > 0 {
		figures := seen(overflows, e.counted("TcpExtListenDrops", "packets"), dropped)
		title := "The queue of a listening socket is full"
		if full := e.fullListeners(); len(full) > 0 {
			title = fmt.Sprintf("The listen queue of %s is full", full[0].Address)
			for _, l := range full {
				figures = append(figures, Figure{Name: "accept queue", On: l.Address.String(), Value: float64(l.Queue),
					Unit: "connections", Of: float64(l.Limit)})
			}
		}
		findings = append(findings, finding(listenQueueFull, title, figures...))
	}
	cookies := seen(e.counted("TcpExtSyncookiesSent", "cookies"), e.counted("TcpExtTCPReqQFullDoCookies", "times"),
		e.counted("TcpExtTCPReqQFullDrop", "connections"))
	if len(cookies) > 0 {
		findings = append(findings, finding(synCookies, "More connections are half open than a queue holds",
			cookies...))
	}
	return findings
}

// fullListeners are the listening sockets that were full in either reading.
func (e *Evidence) fullListeners() (full []Listener) {
	for _, reading := range []*Sockets{e.After.Sockets, e.Before.Sockets} {
		if reading == nil {
			continue
		}
		for _, l := range reading.Listeners {
			if l.Queue >= l.Limit && !slices.ContainsFunc(full, func(f Listener) bool {
				return f.Address == l.Address
			}) {
				full = append(full, l)
			}
		}
	}
	return full
}

// judgePorts looks for destinations to which no connection can be opened any more:
// the error that a program gets leaves no trace in any counter.
func judgePorts(e *Evidence) (findings []Finding) {
	s := e.After.Sockets
	if s == nil || s.Ports.size() <= 0 {
		return nil
	}
	for _, d := range s.Destinations {
		used := d.Ports
		if s.Ports.Reuse {
			used -= d.TimeWait
		}
		if float64(used) < fullShare*float64(s.Ports.size()) {
			continue
		}
		findings = append(findings, finding(portsExhausted,
			fmt.Sprintf("All local ports for connections from %s to %s are taken: %d of %d", d.From, d.To, used,
				s.Ports.size()),
			Figure{Name: "local ports", On: d.To.String(), Value: float64(used), Unit: "ports",
				Of:   float64(s.Ports.size()),
				Note: fmt.Sprintf("range %d to %d", s.Ports.First, s.Ports.Last)},
			Figure{Name: "TIME-WAIT", On: d.To.String(), Value: float64(d.TimeWait), Unit: "of these"}))
	}
	return findings
}
