// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ErrNoSocketDestroy means that this kernel cannot destroy sockets on request (it was built without
// CONFIG_INET_DIAG_DESTROY), so that a run waits for the end of TIME-WAIT.
var ErrNoSocketDestroy = errors.New("this kernel cannot destroy sockets")

// Scope selects connections; the zero Scope selects all.
type Scope struct {
	// Addresses, if any, must contain both addresses of a connection.
	Addresses []netip.Addr
	// OwnPorts are ports that neither end of a connection may have.
	OwnPorts []uint16
}

// has reports whether a connection is in the scope.
func (s Scope) has(from, to netip.AddrPort) bool {
	if len(s.Addresses) == 0 {
		return true
	}
	for _, end := range []netip.AddrPort{from, to} {
		if !slices.Contains(s.Addresses, end.Addr().Unmap()) || slices.Contains(s.OwnPorts, end.Port()) {
			return false
		}
	}
	return true
}

// SocketCount counts a host's TCP sockets, IPv4 and IPv6, by state.
type SocketCount struct {
	Total       int
	Established int
	SynSent     int
	SynReceived int
	TimeWait    int
	Listening   int
	// Closing counts FIN-WAIT-1 and -2, CLOSE-WAIT, LAST-ACK and CLOSING.
	Closing int
}

// Open returns the number of sockets that a trial left: all but the listening sockets.
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

// CountSockets counts the TCP sockets of the calling thread's namespace that are in a scope.
func CountSockets(of Scope) (count SocketCount, err error) {
	sockets, err := tcpSockets(of)
	for _, s := range sockets {
		count.add(s.State)
	}
	return count, err
}

// DestroySockets ends every TCP socket in a scope that is not listening, in the calling thread's namespace.
func DestroySockets(of Scope) error {
	sockets, err := tcpSockets(of)
	if err != nil {
		return err
	}
	return destroy(sockets)
}

// tcpSockets lists the TCP sockets of the calling thread's namespace that are in a scope. The list is not a snapshot:
// sockets change while the kernel makes it.
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

// destroyRequest is struct inet_diag_req_v2 (include/uapi/linux/inet_diag.h) for one socket; the netlink library's own
// request supports only IPv4.
type destroyRequest struct{ *netlink.Socket }

// Len is the size of the structure.
func (r destroyRequest) Len() int { return 56 }

// Serialize writes ports and addresses in network byte order, the rest in the machine's byte order.
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

// address16 returns an address in the 16 bytes that the structure has for it.
func address16(family uint8, ip []byte) []byte {
	b := make([]byte, 16)
	if family == unix.AF_INET {
		ip = ip[len(ip)-4:]
	}
	copy(b, ip)
	return b
}
