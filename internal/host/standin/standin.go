// SPDX-License-Identifier: Apache-2.0

// Package standin listens in the place of a unix socket whose file cannot be made, because the directory has no room or
// cannot be written to: on the abstract name of its path (unix(7)), which needs no file. Only root and the listener's
// own user are answered there. The name is that of one network namespace.
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

// Listen listens in the place of the socket at a path.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", abstractName(path))
	if err != nil {
		return nil, err
	}
	return trustedListener{l}, nil
}

// Dial connects to the socket at a path, or where no process answers there to its stand-in.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED) {
		return conn, err
	}
	other, failed := new(net.Dialer).DialContext(ctx, "unix", abstractName(path))
	if failed != nil {
		return nil, err // the file is what people know
	}
	// Anyone can take a name that nobody has.
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

// isTrusted reports whether the other end is root or this process's user.
func isTrusted(conn net.Conn) bool {
	of, is := conn.(syscall.Conn)
	if !is {
		return false
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return controlErr == nil && err == nil && (peer.Uid == 0 || int(peer.Uid) == os.Geteuid())
}
