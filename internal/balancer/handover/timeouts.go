// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A peer may be unreachable from this member alone: it stays a peer, because others reach it, and only the connection
// shows the fault. By default, TCP retransmits for a quarter of an hour, and with its backoff resumes up to two minutes
// after the network does.
const (
	// userTimeout is how long a peer's kernel may acknowledge nothing, or have a zero window, until the connection
	// ends.
	userTimeout = 5 * time.Second
	// keepaliveIdle is the idle time after which keepalive probes are sent, and keepaliveInterval their interval.
	keepaliveIdle, keepaliveInterval = 2 * time.Second, time.Second
	// dialTimeout bounds an attempt to connect: meanwhile a SYN is sent two or three times.
	dialTimeout = 3 * time.Second
)

// setTimeouts sets TCP's user timeout (RFC 5482, section 1), which also bounds the time of unanswered keepalive probes,
// so that the kernel ends a dead connection. A connection that is not TCP is left as it is.
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
