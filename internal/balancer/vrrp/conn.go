// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// trafficClass is the class of network control (CS6, RFC 2474), which is dropped last.
const trafficClass = 0xc0

// received is a packet that came, with fields of its IP header.
type received struct {
	packet   []byte
	src, dst netip.Addr
	hops     int
}

// conn is the raw socket of a family on one interface.
type conn struct {
	file *os.File
	raw  syscall.RawConn
	four bool
	// src is the source address of packets, one of the interface.
	src netip.Addr
}

func (c *conn) group() netip.Addr {
	if c.four {
		return group4
	}
	return group6
}

// open opens a socket in the calling thread's network namespace that receives the group's packets on the interface
// only, and sends from src.
func open(link string, index int, src netip.Addr) (*conn, error) {
	c := &conn{four: src.Is4(), src: src.WithZone("")}
	domain, name := unix.AF_INET6, "IPv6"
	if c.four {
		domain, name = unix.AF_INET, "IPv4"
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("open a raw socket for VRRP of %s: %w", name, err)
	}
	set := c.set6
	if c.four {
		set = c.set4
	}
	if err := errors.Join(unix.BindToDevice(fd, link), set(fd, index)); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("prepare a raw socket for VRRP of %s on %s: %w", name, link, err)
	}
	c.file = os.NewFile(uintptr(fd), "vrrp")
	if c.raw, err = c.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, c.file.Close())
	}
	return c, nil
}

func (c *conn) set4(fd, index int) error {
	member := &unix.IPMreqn{Multiaddr: group4.As4(), Address: c.src.As4(), Ifindex: int32(index)}
	return errors.Join(
		unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, member),
		unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, member),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, requiredTTL),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, trafficClass))
}

func (c *conn) set6(fd, index int) error {
	return errors.Join(
		unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP,
			&unix.IPv6Mreq{Multiaddr: group6.As16(), Interface: uint32(index)}),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, requiredTTL),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, trafficClass),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1),
		unix.Bind(fd, &unix.SockaddrInet6{}))
}

// send sends an ADVERTISEMENT to the group. It does not wait: if the queue is full, the next one counts.
func (c *conn) send(a Advert) error {
	packet := a.Marshal(c.src, c.group())
	var failed error
	err := c.raw.Control(func(fd uintptr) {
		if c.four {
			failed = unix.Sendto(int(fd), packet, unix.MSG_DONTWAIT, &unix.SockaddrInet4{Addr: group4.As4()})
			return
		}
		info := unix.PktInfo6(&unix.Inet6Pktinfo{Addr: c.src.As16()})
		failed = unix.Sendmsg(int(fd), packet, info, &unix.SockaddrInet6{Addr: group6.As16()}, unix.MSG_DONTWAIT)
	})
	return errors.Join(err, failed)
}

// receive waits for a packet.
func (c *conn) receive() (r received, err error) {
	var failed error
	err = c.raw.Read(func(fd uintptr) bool {
		r, failed = c.read(int(fd))
		return !errors.Is(failed, unix.EAGAIN)
	})
	return r, errors.Join(err, failed)
}

// receivePending returns a pending packet, without waiting for receive.
func (c *conn) receivePending() (r received, ok bool) {
	err := c.raw.Control(func(fd uintptr) {
		var failed error
		r, failed = c.read(int(fd))
		ok = failed == nil
	})
	return r, ok && err == nil
}

// read reads one packet without waiting.
func (c *conn) read(fd int) (received, error) {
	packet, control := make([]byte, mtu), make([]byte, 128)
	n, size, _, from, err := unix.Recvmsg(fd, packet, control, unix.MSG_DONTWAIT)
	if err != nil {
		return received{}, err
	}
	if c.four {
		return parseIPv4(packet[:n]), nil
	}
	r := received{packet: packet[:n]}
	if six, is := from.(*unix.SockaddrInet6); is {
		r.src = netip.AddrFrom16(six.Addr)
	}
	messages, err := unix.ParseSocketControlMessage(control[:size])
	for _, m := range messages {
		switch {
		case m.Header.Level != unix.IPPROTO_IPV6:
		case m.Header.Type == unix.IPV6_HOPLIMIT && len(m.Data) >= 4:
			r.hops = int(binary.NativeEndian.Uint32(m.Data))
		case m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 16:
			r.dst, _ = netip.AddrFromSlice(m.Data[:16])
		}
	}
	return r, err
}

// parseIPv4 splits an IPv4 packet from its header; it returns the zero value for an invalid one.
func parseIPv4(packet []byte) received {
	if len(packet) < 20 {
		return received{}
	}
	size := int(packet[0]&0xf) * 4
	total := int(binary.BigEndian.Uint16(packet[2:]))
	if size < 20 || total < size || total > len(packet) {
		return received{}
	}
	return received{packet: packet[size:total], hops: int(packet[8]), src: netip.AddrFrom4([4]byte(packet[12:16])),
		dst: netip.AddrFrom4([4]byte(packet[16:20]))}
}

func (c *conn) close() error { return c.file.Close() }
