// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// Port returns a port that is free for TCP and UDP over IPv4, and reserves it until the test ends. No other caller of
// Port gets it, in any process, nor does a socket whose port the kernel selects, because it is below
// net.ipv4.ip_local_port_range, unless that was changed. A server that sets SO_REUSEADDR before it binds can listen on
// it, as servers and Go's net do. Until then, connections to it are refused.
func Port(tb testing.TB) uint16 {
	tb.Helper()
	const first, last, attempts = 10_000, 30_000, 1000
	for range attempts {
		port := first + rand.IntN(last-first)
		err := reserve(tb, port)
		if err == nil {
			return uint16(port)
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			tb.Fatalf("reserve port %d: %v", port, err)
		}
	}
	tb.Fatalf("none of %d ports from %d to %d is free", attempts, first, last)
	return 0
}

// reserve binds a TCP socket that does not listen. While it binds, it does not permit other sockets on the port, so no
// two callers reserve the same one. Then it permits them, so that a server can bind.
func reserve(tb testing.TB, port int) error {
	tb.Helper()
	reserved, err := bound(unix.SOCK_STREAM, port)
	if err != nil {
		return err
	}
	packets, err := bound(unix.SOCK_DGRAM, port)
	if err == nil {
		unix.Close(packets)
		err = unix.SetsockoptInt(reserved, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err != nil {
		unix.Close(reserved)
		return err
	}
	tb.Cleanup(func() { unix.Close(reserved) })
	return nil
}

// bound returns a socket that is bound to a port on all IPv4 addresses.
func bound(kind, port int) (int, error) {
	socket, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a socket: %w", err)
	}
	if err := unix.Bind(socket, &unix.SockaddrInet4{Port: port}); err != nil {
		unix.Close(socket)
		return -1, err
	}
	return socket, nil
}
