// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

// callerKey is that of the credentials in a connection's context.
type callerKey struct{}

// withCaller notes whom the kernel says to be at the other end (unix(7),
// SO_PEERCRED): no client can claim to be another.
func withCaller(ctx context.Context, c net.Conn) context.Context {
	if held, ok := c.(*slot); ok {
		c = held.Conn
	}
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return ctx
	}
	var who *unix.Ucred
	if controlErr := raw.Control(func(fd uintptr) {
		who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); controlErr != nil || err != nil {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, who)
}

// callerOf names who asks, as in "root".
func callerOf(ctx context.Context) string {
	who, ok := ctx.Value(callerKey{}).(*unix.Ucred)
	if !ok {
		return "unknown"
	}
	if known, err := user.LookupId(strconv.Itoa(int(who.Uid))); err == nil {
		return known.Username
	}
	return fmt.Sprintf("uid %d", who.Uid)
}
