// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/sysctl"
)

// SocketCount counts a host's TCP sockets, IPv4 and IPv6, by state.
type SocketCount struct {
	Total       int
	Established int
	SynSent     int
	SynReceived int
	TimeWait    int
	Listening   int
	// Closing are those in FIN-WAIT-1 and -2, CLOSE-WAIT, LAST-ACK and CLOSING.
	Closing int
}

// Open returns the number of sockets that a trial left: all but the listening.
func (c SocketCount) Open() int { return c.Total - c.Listening }

func (c *SocketCount) add(state uint8) {
	c.Total++
	switch state {
	case netlink.TCP_ESTABLISHED:
		c.Established++
	case netlink.TCP_SYN_SENT:
		c.SynSent++
	case netlink.TCP_SYN_RECV, netlink.TCP_NEW_SYN_REC:
		c.SynReceived++
	case netlink.TCP_TIME_WAIT:
		c.TimeWait++
	case netlink.TCP_LISTEN:
		c.Listening++
	case netlink.TCP_FIN_WAIT1, netlink.TCP_FIN_WAIT2, netlink.TCP_CLOSE_WAIT,
		netlink.TCP_LAST_ACK, netlink.TCP_CLOSING:
		c.Closing++
	}
}

// Sockets counts the host's TCP sockets; of a machine, those that are the lab's.
func (h *Host) Sockets() (SocketCount, error) {
	if h.machine != nil {
		return briefly(socketsTask, h, h.scope())
	}
	return h.sockets(Scope{})
}

func (h *Host) sockets(of Scope) (SocketCount, error) {
	var count SocketCount
	err := h.Do(func() error {
		sockets, err := tcpSockets(of)
		for _, s := range sockets {
			count.add(s.State)
		}
		return err
	})
	if err != nil {
		return SocketCount{}, fmt.Errorf("count the sockets of %s: %w", h.Name, err)
	}
	return count, nil
}

// tcpSockets lists the TCP sockets of the calling thread's namespace that are in a
// scope. The list is of a moment only: the kernel goes on while it makes it.
func tcpSockets(of Scope) ([]*netlink.Socket, error) {
	var all []*netlink.Socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := netlink.SocketDiagTCP(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(sockets, func(s *netlink.Socket) bool {
			return !of.has(endpoint(s.ID.Source, s.ID.SourcePort), endpoint(s.ID.Destination, s.ID.DestinationPort))
		})...)
	}
	return all, nil
}

func endpoint(ip net.IP, port uint16) netip.AddrPort {
	address, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(address.Unmap(), port)
}

// DestroySockets ends every TCP socket of the host that is not listening, at
// once and in whatever state: what the last trial left, TIME-WAIT above all,
// need not be waited for. Peers of open connections see a reset. It returns
// ErrNoSocketDestroy on a kernel that cannot.
//
// Of a machine it ends those that are the lab's.
func (h *Host) DestroySockets() error {
	if h.machine == nil {
		return h.destroySockets(Scope{})
	}
	can, err := briefly(destroySocketsTask, h, h.scope())
	if err == nil && !can {
		err = fmt.Errorf("destroy the sockets of %s: %w", h.Name, ErrNoSocketDestroy)
	}
	return err
}

func (h *Host) destroySockets(of Scope) error {
	err := h.Do(func() error {
		sockets, err := tcpSockets(of)
		if err != nil {
			return err
		}
		return destroy(sockets)
	})
	if err != nil {
		return fmt.Errorf("destroy the sockets of %s: %w", h.Name, err)
	}
	return nil
}

func destroy(sockets []*netlink.Socket) error {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_INET_DIAG)
	if err != nil {
		return err
	}
	defer s.Close()
	handle := &nl.SocketHandle{Socket: s}
	for _, socket := range sockets {
		if socket.State == netlink.TCP_LISTEN {
			continue
		}
		req := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
		req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_INET_DIAG: handle}
		req.AddData(destroyRequest{socket})
		_, err := req.Execute(unix.NETLINK_INET_DIAG, 0)
		switch {
		case errors.Is(err, unix.EOPNOTSUPP):
			return fmt.Errorf("%w: it lacks CONFIG_INET_DIAG_DESTROY", ErrNoSocketDestroy)
		case err != nil && !errors.Is(err, unix.ENOENT):
			return err
		}
	}
	return nil
}

// destroyRequest is struct inet_diag_req_v2 (include/uapi/linux/inet_diag.h) for
// one socket; the netlink library's own request knows IPv4 only.
type destroyRequest struct{ *netlink.Socket }

// Len is the size of the structure.
func (r destroyRequest) Len() int { return 56 }

// Serialize writes ports and addresses in network byte order, the rest in the
// machine's.
func (r destroyRequest) Serialize() []byte {
	b := make([]byte, 8, r.Len())
	b[0], b[1] = r.Family, unix.IPPROTO_TCP
	b = binary.BigEndian.AppendUint16(b, r.ID.SourcePort)
	b = binary.BigEndian.AppendUint16(b, r.ID.DestinationPort)
	b = append(b, address16(r.Family, r.ID.Source)...)
	b = append(b, address16(r.Family, r.ID.Destination)...)
	b = binary.NativeEndian.AppendUint32(b, r.ID.Interface)
	b = binary.NativeEndian.AppendUint32(b, r.ID.Cookie[0])
	return binary.NativeEndian.AppendUint32(b, r.ID.Cookie[1])
}

// address16 puts an address into the 16 bytes that the structure has for it.
func address16(family uint8, ip []byte) []byte {
	b := make([]byte, 16)
	if family == unix.AF_INET {
		ip = ip[len(ip)-4:]
	}
	copy(b, ip)
	return b
}

// Conntrack returns the number of connections that the host tracks; 0 where the
// kernel has no connection tracking.
//
// Of a machine it counts those that were made to the VIP.
func (h *Host) Conntrack() (int, error) {
	if h.machine != nil {
		return briefly(conntrackTask, h, trackedBy{h.lab.VIP4})
	}
	var n int
	err := h.Do(func() error {
		value, err := sysctl.Read("net.netfilter.nf_conntrack_count")
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		n, err = strconv.Atoi(value)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count the tracked connections of %s: %w", h.Name, err)
	}
	return n, nil
}

// ForgetTracked forgets the connections that the host tracks; of a machine, those
// that were made to the VIP.
func (h *Host) ForgetTracked() error {
	if h.machine != nil {
		_, err := briefly(forgetTask, h, trackedBy{h.lab.VIP4})
		return err
	}
	return h.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
}
