// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// WithParent returns a context that ends with the process that has started this one, however that ends: otherwise a
// sandbox whose terminal or script is gone would stay forever.
func WithParent(ctx context.Context) (bound context.Context, stop func()) {
	bound, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	fd, err := unix.PidfdOpen(parent, unix.PIDFD_NONBLOCK)
	if err != nil || os.Getppid() != parent {
		if err == nil {
			unix.Close(fd)
			cancel()
		}
		return bound, cancel // of another PID namespace: there is no process to wait for
	}
	file := os.NewFile(uintptr(fd), "parent")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return bound, cancel
	}
	go func() {
		err := raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 || err != nil && err != unix.EINTR
		})
		if err == nil { // and not closed
			cancel()
		}
	}()
	return bound, func() {
		cancel()
		file.Close()
	}
}
