// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/sockfilter"
)

const (
	// port is the destination port of control packets over one hop, and firstSource to lastSource are the source ports
	// (RFC 5881 section 4).
	port                    = 3784
	firstSource, lastSource = 49152, 65535
	// maxTTL is the TTL of a packet that no router has forwarded (RFC 5881 section 5).
	maxTTL = 255
	// trafficClass is CS6, as routers mark their own packets, in the TOS byte.
	trafficClass = 0xc0
	// maxSourcePorts bounds the attempts to find a free source port.
	maxSourcePorts = 64
	// maxDatagram is how many bytes are read of a packet: those with authentication are not taken, but recognized.
	maxDatagram = 256
)

// receiver is the socket that packets of all neighbours of a family come to; fd is -1 while there is none.
type receiver struct {
	six bool
	fd  int
	// emptied is when the socket was last found to be empty: packets read later were received later.
	emptied time.Time
	payload [maxDatagram]byte
	control [256]byte
}

// listen accepts packets of these neighbours only; without neighbours, it closes the socket.
func (r *receiver) listen(peers []netip.Addr) error {
	if len(peers) == 0 {
		r.close()
		return nil
	}
	if r.fd < 0 {
		if err := r.open(); err != nil {
			return fmt.Errorf("listen on the UDP port of BFD, %d: %w; does a routing daemon of this host speak BFD?",
				port, err)
		}
	}
	if err := sockfilter.Attach(r.fd, peerFilter(peers)); err != nil {
		return fmt.Errorf("have the kernel drop packets that are of no BFD peer: %w", err)
	}
	return nil
}

func (r *receiver) open() error {
	family, any := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: port})
	options := [][3]int{{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1}, {unix.IPPROTO_IP, unix.IP_RECVTTL, 1}}
	if r.six {
		family, any = unix.AF_INET6, &unix.SockaddrInet6{Port: port}
		options = [][3]int{{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1}, {unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1}}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	for _, o := range options {
		err = errors.Join(err, unix.SetsockoptInt(fd, o[0], o[1], o[2]))
	}
	if err = errors.Join(err, unix.Bind(fd, any)); err != nil {
		unix.Close(fd)
		return err
	}
	r.fd, r.emptied = fd, time.Now()
	return nil
}

func (r *receiver) close() {
	if r.fd >= 0 {
		unix.Close(r.fd)
		r.fd = -1
	}
}

// read returns the next datagram, whose payload is valid until the next read; false if there is none.
func (r *receiver) read() (datagram, bool) {
	for r.fd >= 0 {
		n, controls, _, from, err := unix.Recvmsg(r.fd, r.payload[:], r.control[:], unix.MSG_DONTWAIT)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return datagram{}, false
		}
		got := datagram{payload: r.payload[:n], at: time.Now()}
		switch a := from.(type) {
		case *unix.SockaddrInet4:
			got.from = netip.AddrFrom4(a.Addr)
		case *unix.SockaddrInet6:
			got.from = netip.AddrFrom16(a.Addr)
			if link, err := net.InterfaceByIndex(int(a.ZoneId)); a.ZoneId != 0 && err == nil {
				got.from = got.from.WithZone(link.Name)
			}
		}
		r.readControls(&got, r.control[:controls])
		return got, true
	}
	return datagram{}, false
}

func (r *receiver) markEmpty(at time.Time) { r.emptied = at }

// readControls reads the TTL and the time at which the kernel received the datagram. The kernel stamps by the wall
// clock: if that was set meanwhile, the time is bounded by now and by the last time the socket was empty.
func (r *receiver) readControls(got *datagram, controls []byte) {
	messages, _ := unix.ParseSocketControlMessage(controls)
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16:
			stamp := time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
			at := got.at.Add(-max(got.at.Round(0).Sub(stamp), 0))
			if at.Before(r.emptied) {
				at = r.emptied
			}
			got.at = at
		case len(m.Data) >= 4 && (m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TTL ||
			m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_HOPLIMIT):
			got.ttl = int(binary.NativeEndian.Uint32(m.Data))
		}
	}
}

// drops counts the packets to the socket that the kernel has dropped.
func (r *receiver) drops() uint32 {
	if r.fd < 0 {
		return 0
	}
	var memory [9]uint32 // SK_MEMINFO_DROPS is the last one, <linux/sock_diag.h>
	size := uint32(unsafe.Sizeof(memory))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(r.fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&memory)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return memory[8]
}

// peerFilter returns a filter that accepts these neighbours' datagrams which no router has forwarded, so that a flood
// of others fills no buffer.
func peerFilter(peers []netip.Addr) []bpf.Instruction {
	// Of the network header, which this offset stands for (SKF_NET_OFF, <linux/filter.h>).
	const network = 0xfff00000
	ttl, source, words := uint32(network+8), uint32(network+12), 1
	if peers[0].Is6() {
		ttl, source, words = network+7, network+8, 4
	}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: ttl, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: maxTTL, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
	}
	for _, peer := range peers {
		bytes := peer.AsSlice()
		for w := range words {
			// A word that differs skips the rest of this neighbour's.
			left := uint8(2*(words-1-w) + 1)
			program = append(program, bpf.LoadAbsolute{Off: source + uint32(4*w), Size: 4},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(bytes[4*w:]), SkipFalse: left})
		}
		program = append(program, bpf.RetConstant{Val: maxDatagram + 8})
	}
	return append(program, bpf.RetConstant{Val: 0})
}

// sender is the socket that sends packets to a neighbour; fd is -1 while there is none.
type sender struct {
	fd int
	// source is the port, which a session keeps; 0: none was chosen.
	source int
	// problem is the reason why packets do not leave.
	problem string
	buffer  []byte
}

// send sends a packet. After an error, the next packet is another attempt.
func (s *sender) send(to Peer, p Packet) {
	if s.fd < 0 {
		if err := s.open(to); err != nil {
			s.problem = fmt.Sprintf("send to it: %v", err)
			return
		}
	}
	s.buffer = p.Append(s.buffer[:0])
	_, err := unix.Write(s.fd, s.buffer)
	switch {
	case err == nil:
	case errors.Is(err, unix.ECONNREFUSED):
		s.problem = fmt.Sprintf("it has nothing that listens on the UDP port of BFD, %d", port)
		_, _ = unix.Write(s.fd, s.buffer) // it was an answer to one before
	default:
		s.problem = fmt.Sprintf("send to it: %v", err)
		s.close() // the routes may say something else now
	}
}

func (s *sender) open(to Peer) error {
	family, level, hops, class := unix.AF_INET, unix.IPPROTO_IP, unix.IP_TTL, unix.IP_TOS
	if to.Address.Is6() {
		family, level, hops, class = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_TCLASS
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	err = errors.Join(unix.SetsockoptInt(fd, level, hops, maxTTL), unix.SetsockoptInt(fd, level, class, trafficClass))
	if err == nil && to.Interface != "" {
		err = unix.BindToDevice(fd, to.Interface)
	}
	if err == nil {
		err = s.bind(fd, to)
	}
	if err == nil {
		err = connect(fd, to)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	s.fd = fd
	return nil
}

// bind gives the socket the session's source port.
func (s *sender) bind(fd int, to Peer) (err error) {
	local := to.Local
	if !local.IsValid() {
		local = netip.IPv4Unspecified()
		if to.Address.Is6() {
			local = netip.IPv6Unspecified()
		}
	}
	for range maxSourcePorts {
		source := s.source
		if source == 0 {
			source = firstSource + rand.IntN(lastSource-firstSource+1)
		}
		address, zoneErr := sockaddr(local, source, to.Interface)
		if zoneErr != nil {
			return zoneErr
		}
		if err = unix.Bind(fd, address); err == nil {
			s.source = source
			return nil
		}
		if err != unix.EADDRINUSE {
			return fmt.Errorf("from %s: %w", local, err)
		}
		s.source = 0
	}
	return fmt.Errorf("from %s: no source port is free: %w", local, err)
}

func connect(fd int, to Peer) error {
	address, err := sockaddr(to.Address, port, to.Address.Zone())
	if err != nil {
		return err
	}
	return unix.Connect(fd, address)
}

// sockaddr is an address for the kernel; a link-local one is on a link.
func sockaddr(a netip.Addr, port int, zone string) (unix.Sockaddr, error) {
	if a.Is4() {
		return &unix.SockaddrInet4{Port: port, Addr: a.As4()}, nil
	}
	made := &unix.SockaddrInet6{Port: port, Addr: a.As16()}
	if a.IsLinkLocalUnicast() && zone != "" {
		link, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, fmt.Errorf("on %s: %w", zone, err)
		}
		made.ZoneId = uint32(link.Index)
	}
	return made, nil
}

func (s *sender) close() {
	if s.fd >= 0 {
		unix.Close(s.fd)
		s.fd = -1
	}
}
