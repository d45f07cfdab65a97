// SPDX-License-Identifier: Apache-2.0

// Package standin listens in place of a unix socket whose file cannot be created, because the directory is full or
// cannot be written to: on an abstract socket (unix(7)) named by the path, which needs no file. It accepts connections
// of root and of the listener's own user only. An abstract name is valid in one network namespace.
package standin

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// abstractName is the abstract socket name of a path.
func abstractName(path string) string { return "@" + path }

// Listen listens in place of the socket at a path.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", abstractName(path))
	if err != nil {
		return nil, err
	}
	return trustedListener{l}, nil
}

// Dial connects to the socket at a path, or to its stand-in if no process listens there.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED) {
		return conn, err
	}
	other, failed := new(net.Dialer).DialContext(ctx, "unix", abstractName(path))
	if failed != nil {
		return nil, err // users know the file, not the stand-in
	}
	// Any user can listen on an abstract name that is free.
	if !isTrusted(other) {
		other.Close()
		return nil, err
	}
	return other, nil
}

// trustedListener accepts connections of root and of its own user, as the mode of a file would.
type trustedListener struct{ net.Listener }

func (t trustedListener) Accept() (net.Conn, error) {
	for {
		conn, err := t.Listener.Accept()
		if err != nil || isTrusted(conn) {
			return conn, err
		}
		conn.Close()
	}
}

// isTrusted reports whether the peer is root or the user of this process.
func isTrusted(conn net.Conn) bool {
	syscallConn, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := syscallConn.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return controlErr == nil && err == nil && (peer.Uid == 0 || int(peer.Uid) == os.Geteuid())
}
