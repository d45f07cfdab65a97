// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// drainConn is a connection that, when the deadline has passed, looks once more without waiting.
type drainConn struct {
	net.Conn
	raw rawConn
}

func patient(c net.Conn) net.Conn {
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			return drainConn{Conn: c, raw: raw}
		}
	}
	return c
}

func (p drainConn) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		n, err = readNow(p.raw, b, err)
		if _, datagram := p.Conn.(net.PacketConn); datagram && err == io.EOF {
			return 0, nil
		}
	}
	return n, err
}

// CloseWrite ends the stream to the peer.
func (p drainConn) CloseWrite() error { return closeWrite(p.Conn) }

// closeWrite ends the stream to the peer where the connection can.
func closeWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}
