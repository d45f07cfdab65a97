// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTimeouts: the kernel has the bounds of a connection whose other end is silent.
func TestTimeouts(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := setTimeouts(conn); err != nil {
		t.Fatal(err)
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		for _, of := range []struct {
			name         string
			option, want int
		}{
			{"TCP_USER_TIMEOUT", unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds())},
			{"TCP_KEEPIDLE", unix.TCP_KEEPIDLE, int(keepaliveIdle.Seconds())},
			{"TCP_KEEPINTVL", unix.TCP_KEEPINTVL, int(keepaliveInterval.Seconds())},
		} {
			if got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, of.option); err != nil || got != of.want {
				t.Errorf("%s is %d (%v), want %d", of.name, got, err, of.want)
			}
		}
	})
}
