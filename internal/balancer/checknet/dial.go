// SPDX-License-Identifier: Apache-2.0

package checknet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/health"
)

// Target is the destination of a check.
type Target struct {
	// Remote is the VIP and the port that sockets connect to, and Mark the mark of their packets.
	Remote netip.AddrPort
	Mark   uint32
	// ReplySource is where packets come from that answer: Remote, or the backend itself.
	ReplySource netip.AddrPort
}

// attempts are how many ports a connection tries: one may be in TIME-WAIT.
const attempts = 32

// errNoPort: as many checks ask one address and port as there are source ports.
var errNoPort = fmt.Errorf("%w: no source port for a check is free", health.ErrNoPath)

// localError is an error of this host's, which is no evidence against a backend.
func localError(err error) error { return fmt.Errorf("%w: %w", health.ErrNoPath, err) }

// Dial connects to a target: network is "tcp" or "udp". Errors are those of net.Dialer, and
// health.ErrNoPath where no packet could be sent. Call it on a thread of the namespace that Open was called in.
func (n *Net) Dial(ctx context.Context, network string, t Target) (net.Conn, error) {
	protocol, known := map[string]int{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}[network]
	if !known {
		return nil, dialError(network, t, net.UnknownNetworkError(network))
	}
	for range attempts {
		key, ok := n.ports.allocate(t, protocol)
		if !ok {
			break
		}
		c, err := n.dialFrom(ctx, key, t)
		if err == nil {
			return c, nil
		}
		n.ports.release(key)
		if !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.EADDRINUSE) {
			return nil, dialError(network, t, err)
		}
	}
	return nil, dialError(network, t, errNoPort)
}

func dialError(network string, t Target, err error) error {
	return &net.OpError{Op: "dial", Net: network, Addr: address(network == "udp", t.Remote), Err: err}
}

func address(datagram bool, a netip.AddrPort) net.Addr {
	if datagram {
		return net.UDPAddrFromAddrPort(a)
	}
	return net.TCPAddrFromAddrPort(a)
}

// dialFrom connects from a port.
func (n *Net) dialFrom(ctx context.Context, key portKey, t Target) (net.Conn, error) {
	fd, err := n.openSocket(key, t)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "")
	defer file.Close()
	c, err := net.FileConn(file) // has a descriptor of its own
	if err != nil {
		return nil, localError(err)
	}
	release := sync.OnceFunc(func() { n.ports.release(key) })
	if udp, is := c.(*net.UDPConn); is {
		return &datagrams{udp, release}, nil
	}
	tcp := c.(*net.TCPConn)
	if err := awaitConnected(ctx, tcp); err != nil {
		tcp.Close()
		return nil, err
	}
	return &stream{tcp, net.TCPAddrFromAddrPort(t.Remote), release}, nil
}

// openSocket opens a socket that is connected, or about to be.
func (n *Net) openSocket(key portKey, t Target) (fd int, err error) {
	kind := unix.SOCK_STREAM
	if key.protocol == unix.IPPROTO_UDP {
		kind = unix.SOCK_DGRAM
	}
	if fd, err = n.socket(t, kind, 0); err != nil {
		return 0, localError(err)
	}
	if err := connect(fd, key.port, t); err != nil {
		unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

func connect(fd int, port uint16, t Target) error {
	// The port may have been another backend's.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	var local, remote unix.Sockaddr
	if a := t.Remote.Addr(); a.Is4() {
		local, remote = &unix.SockaddrInet4{Port: int(port)}, &unix.SockaddrInet4{Port: int(t.Remote.Port()),
			Addr: a.As4()}
	} else {
		local, remote = &unix.SockaddrInet6{Port: int(port)}, &unix.SockaddrInet6{Port: int(t.Remote.Port()),
			Addr: a.As16()}
	}
	if err := unix.Bind(fd, local); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if err := unix.Connect(fd, remote); err != nil && err != unix.EINPROGRESS {
		return os.NewSyscallError("connect", err)
	}
	return nil
}

// awaitConnected waits until a connection is established.
func awaitConnected(ctx context.Context, c *net.TCPConn) error {
	if deadline, is := ctx.Deadline(); is {
		if err := c.SetWriteDeadline(deadline); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetWriteDeadline(time.Unix(1, 0)) })
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = syscall.Errno(code)
		}
		if err != nil {
			refused = os.NewSyscallError("connect", err)
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	if !stop() {
		// The deadline may be set at any time from now on.
		return contextError(ctx)
	}
	switch {
	case refused != nil:
		return refused
	case errors.Is(err, os.ErrDeadlineExceeded):
		return os.ErrDeadlineExceeded
	case err != nil:
		return fmt.Errorf("waiting for the connection: %w", err)
	}
	return c.SetWriteDeadline(time.Time{})
}

// contextError says why a context has ended, as net.Dialer does.
func contextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return ctx.Err()
}

// stream is a TCP connection of a check. Its source port is free for others once it is closed.
type stream struct {
	*net.TCPConn
	remote  net.Addr
	release func()
}

// RemoteAddr returns the VIP and the port.
func (s *stream) RemoteAddr() net.Addr { return s.remote }

// Close ends the connection as a client does, by a FIN.
func (s *stream) Close() error {
	defer s.release()
	return s.TCPConn.Close()
}

// datagrams is the same of UDP.
type datagrams struct {
	*net.UDPConn
	release func()
}

// Close closes the socket.
func (d *datagrams) Close() error {
	defer d.release()
	return d.UDPConn.Close()
}
