// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// own marks an error that this host made by itself: no packet was sent.
type own struct{ error }

func (o own) Unwrap() error { return o.error }

// connect is net.Dialer.DialContext, but for three things: it tells the kernel's own refusals from answers of the
// network; when the deadline has passed it looks once more, without waiting, whether the connection is there, for our
// timer may have been late; and it needs no goroutine.
func connect(ctx context.Context, network string, from netip.Addr, to netip.AddrPort) (net.Conn, error) {
	fd, err := socket(network, from, to)
	if err != nil {
		return nil, err
	}
	peer := sockaddr(to)
	err = unix.Connect(fd, peer)
	file := os.NewFile(uintptr(fd), network)
	raw, rawErr := file.SyscallConn()
	deadline, _ := ctx.Deadline()
	if rawErr == nil {
		rawErr = file.SetDeadline(deadline)
	}
	if rawErr != nil {
		file.Close()
		return nil, own{os.NewSyscallError("poll", rawErr)}
	}
	c := &conn{File: file, raw: raw, network: network, to: to, peer: peer}
	// Where Run ends, so do all its checks.
	c.stop = context.AfterFunc(ctx, func() { file.SetDeadline(time.Unix(1, 0)) })
	switch {
	case err == nil:
	case errors.Is(err, unix.EINPROGRESS):
		err = c.connected()
	case !errors.Is(err, unix.ECONNREFUSED): // which is the endpoint's, on this host
		err = own{os.NewSyscallError("connect", err)}
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func socket(network string, from netip.Addr, to netip.AddrPort) (int, error) {
	family, kind, protocol := unix.AF_INET6, unix.SOCK_STREAM, 0
	if to.Addr().Unmap().Is4() {
		family = unix.AF_INET
	}
	switch network {
	case "udp":
		kind = unix.SOCK_DGRAM
	case "ping": // the kernel gives each socket the replies to its own requests
		kind, protocol = unix.SOCK_DGRAM, echoProtocol(to)
	case "raw":
		kind, protocol = unix.SOCK_RAW, echoProtocol(to)
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return 0, own{os.NewSyscallError("socket", err)}
	}
	if !from.IsValid() {
		return fd, nil
	}
	// The port is chosen when it is known to whom: else each check would have one of its own.
	err = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	if err == nil {
		err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(from, 0)))
	}
	if err != nil {
		unix.Close(fd)
		return 0, own{fmt.Errorf("sending from %s: %w", from, os.NewSyscallError("bind", err))}
	}
	return fd, nil
}

func echoProtocol(to netip.AddrPort) int {
	if to.Addr().Unmap().Is4() {
		return unix.IPPROTO_ICMP
	}
	return unix.IPPROTO_ICMPV6
}

func sockaddr(to netip.AddrPort) unix.Sockaddr {
	if to.Addr().Unmap().Is4() {
		return &unix.SockaddrInet4{Addr: to.Addr().Unmap().As4(), Port: int(to.Port())}
	}
	return &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
}

// conn is a connected socket, which is read like a file: a net.Conn would have its descriptor
// duplicated, and some system calls more.
type conn struct {
	*os.File
	raw     rawConn
	network string
	to      netip.AddrPort
	peer    unix.Sockaddr // the same, to the kernel
	stop    func() bool
}

// rawConn is the part of syscall.RawConn that is used here.
type rawConn interface {
	Control(func(fd uintptr)) error
	Read(func(fd uintptr) bool) error
	Write(func(fd uintptr) bool) error
}

// connected waits until the socket is, and returns why it is not.
func (c *conn) connected() error {
	done := false
	var result error
	look := func(fd uintptr) { done, result = connectAgain(int(fd), c.peer) }
	err := c.raw.Write(func(fd uintptr) bool {
		look(fd) // before the first wait, too: the event that is waited for may have been before
		return done
	})
	if err != nil {
		c.raw.Control(look)
		if !done {
			return err
		}
	}
	return result
}

// connectAgain reports whether a connection is established or has failed, and the error.
func connectAgain(fd int, to unix.Sockaddr) (over bool, err error) {
	switch err := unix.Connect(fd, to); err {
	case nil, unix.EISCONN:
		return true, nil
	case unix.EALREADY, unix.EINPROGRESS, unix.EINTR:
		return false, nil
	default:
		return true, os.NewSyscallError("connect", err)
	}
}

// Read reads, and when the deadline has passed it looks once more, without waiting.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.File.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		n, err = readNow(c.raw, b, err)
	}
	if err == io.EOF && c.network != "tcp" {
		return 0, nil // a datagram may be empty
	}
	return n, bare(err)
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.File.Write(b)
	return n, bare(err)
}

func (c *conn) Close() error {
	c.stop()
	return c.File.Close()
}

// CloseWrite ends the stream to the peer.
func (c *conn) CloseWrite() error {
	var err error
	if e := c.raw.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_WR) }); e != nil {
		return e
	}
	return err
}

func (c *conn) RemoteAddr() net.Addr {
	if c.network == "udp" {
		return net.UDPAddrFromAddrPort(c.to)
	}
	return net.TCPAddrFromAddrPort(c.to)
}

// LocalAddr returns no real address: none of the protocols uses it.
func (c *conn) LocalAddr() net.Addr { return &net.TCPAddr{} }

// bare takes the path off an error of a file's.
func bare(err error) error {
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		return os.NewSyscallError(path.Op, path.Err)
	}
	return err
}

// readNow reads without waiting; it returns the error otherwise where there is nothing to read.
func readNow(raw rawConn, b []byte, otherwise error) (n int, err error) {
	err = otherwise
	raw.Control(func(fd uintptr) {
		switch got, e := unix.Read(int(fd), b); {
		case e == unix.EAGAIN:
		case e != nil:
			err = os.NewSyscallError("read", e)
		case got == 0 && len(b) > 0:
			err = io.EOF
		default:
			n, err = got, nil
		}
	})
	return n, err
}
