// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A peer may be out of reach of this member alone: others see it, so that it stays a peer, and nothing but the
// connection shows it. TCP by itself sends again for a quarter of an hour, more and more seldom, and goes on up to two
// minutes after the network does.
const (
	// userTimeout is how long a peer's kernel may acknowledge nothing, or have no room for the bytes that wait,
	// until the connection ends.
	userTimeout = 5 * time.Second
	// keepaliveIdle is the time of silence after which a peer's kernel is sent keepalive probes, and
	// keepaliveInterval the interval of those.
	keepaliveIdle, keepaliveInterval = 2 * time.Second, time.Second
	// dialTimeout bounds an attempt to connect: meanwhile a SYN is sent two or three times.
	dialTimeout = 3 * time.Second
)

// setTimeouts has the kernel end a connection whose other end is silent, by TCP's user timeout (RFC 5482, section
// 1), which also bounds for how long keepalive probes may go unanswered. A connection that is not TCP is left as it
// is.
func setTimeouts(conn net.Conn) error {
	tcp, is := conn.(*net.TCPConn)
	if !is {
		return nil
	}
	if err := tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepaliveIdle,
		Interval: keepaliveInterval}); err != nil {
		return err
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = os.NewSyscallError("setsockopt TCP_USER_TIMEOUT", unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP,
			unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds())))
	})
	return errors.Join(err, set)
}
