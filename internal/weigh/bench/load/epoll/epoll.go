// SPDX-License-Identifier: Apache-2.0

// Package epoll has the event loop of a load generator with one thread. The loop waits for sockets and for a time. Go's
// own poller wakes another thread for each socket, and its timers add up to a millisecond in an idle process. Either
// would be most of the time that a generator has to measure.
package epoll

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Loop is an event loop. All methods but Wake must be called by the one thread that uses it.
type Loop struct {
	epoll, timer, wake int
	events             [256]unix.EpollEvent
	scratch            [8]byte
}

// New returns a new loop, which the caller must close.
func New() (*Loop, error) {
	l := &Loop{epoll: -1, timer: -1, wake: -1}
	var errs [3]error
	l.epoll, errs[0] = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	l.timer, errs[1] = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	l.wake, errs[2] = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	err := errors.Join(errs[:]...)
	for _, fd := range []int{l.timer, l.wake} {
		if err == nil {
			err = l.Add(fd, unix.EPOLLIN)
		}
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("making what waits for sockets: %w", err)
	}
	return l, nil
}

// Close closes the descriptors that New opened. Sockets stay open.
func (l *Loop) Close() {
	for _, fd := range []int{l.epoll, l.timer, l.wake} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Add makes Wait report a descriptor's events (EPOLLIN, EPOLLET, …), until the descriptor is closed.
func (l *Loop) Add(fd int, events uint32) error {
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// Change makes Wait report other events of a descriptor.
func (l *Loop) Change(fd int, events uint32) error {
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// Wait blocks until events have occurred, and calls handle for every descriptor that has some. The timer and Wake only
// end the wait.
func (l *Loop) Wait(handle func(fd int, events uint32)) error { return l.wait(handle, -1) }

// Look is Wait for events that have occurred already; it does not block.
func (l *Loop) Look(handle func(fd int, events uint32)) error { return l.wait(handle, 0) }

func (l *Loop) wait(handle func(fd int, events uint32), ms int) error {
	n, err := unix.EpollWait(l.epoll, l.events[:], ms)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("waiting for sockets: %w", err)
	}
	for _, event := range l.events[:max(n, 0)] {
		switch fd := int(event.Fd); fd {
		case l.timer, l.wake:
			unix.Read(fd, l.scratch[:]) // EAGAIN means that it was set again
		default:
			handle(fd, event.Events)
		}
	}
	return nil
}

// After makes Wait return after a time, once. It replaces the time set before.
func (l *Loop) After(wait time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(wait, 1).Nanoseconds())}
	if err := unix.TimerfdSettime(l.timer, 0, &spec, nil); err != nil {
		return fmt.Errorf("setting a timer: %w", err)
	}
	return nil
}

// Wake makes Wait return. Any thread may call it.
func (l *Loop) Wake() {
	unix.Write(l.wake, binary.NativeEndian.AppendUint64(nil, 1)) // full only if the loop waits no longer
}

// WakeAtEnd calls Wake when ctx ends. The caller must call stop before Close.
func (l *Loop) WakeAtEnd(ctx context.Context) (stop func()) {
	ended := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(ended)
		l.Wake()
	})
	return func() {
		if !cancel() {
			<-ended
		}
	}
}

// Address returns a socket's address in the kernel's form, and its family.
func Address(of netip.AddrPort) (unix.Sockaddr, int) {
	if addr := of.Addr().Unmap(); addr.Is4() {
		return &unix.SockaddrInet4{Port: int(of.Port()), Addr: addr.As4()}, unix.AF_INET
	}
	return &unix.SockaddrInet6{Port: int(of.Port()), Addr: of.Addr().As16()}, unix.AF_INET6
}

// Socket opens a TCP socket with TCP_NODELAY; flags may have SOCK_NONBLOCK.
func Socket(family, flags int) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Listen opens a socket that listens for connections.
func Listen(at netip.AddrPort) (int, error) {
	address, family := Address(at)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, address)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// backlog is more than the number of connections that a laboratory's clients open at once; the kernel bounds it by
// somaxconn.
const backlog = 1 << 16

// Accept accepts a connection whose calls block. It returns -1 and EAGAIN if there is none; a blocking listener returns
// EAGAIN after its SO_RCVTIMEO. As with Receive, the runtime is not told of the call. (Accept4 of package unix
// allocates an address for each connection, which is not needed here.)
func Accept(listener int) (int, error) {
	fd, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// Receive reads the data that has arrived; flags may have MSG_DONTWAIT.
//
// The runtime is not told of this call and of Send, which saves a tenth of a microsecond each. So while a call blocks,
// its thread keeps its P, and a garbage collection would wait for it. The caller needs a second P for its other
// threads, no garbage collection, and a bound (SO_RCVTIMEO). EINTR is normal.
func Receive(fd int, into []byte, flags int) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&into[0])),
		uintptr(len(into)), uintptr(flags), 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// Send writes data that fits into the socket's buffer; see Receive.
func Send(fd int, data []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)),
		unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// Close closes a socket, which also removes it from a loop. It does not block, and the runtime is not told of it.
func Close(fd int) { unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// Error returns the result of connecting a socket.
func Error(fd int) error {
	failed, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && failed != 0 {
		err = unix.Errno(failed)
	}
	return err
}

// ErrEarly means that the other side closed the connection before it answered.
var ErrEarly = errors.New("the connection was closed before the answer")

// Opened returns whether a connecting socket is connected, given its events, or why it cannot connect.
func Opened(fd int, events uint32) (bool, error) {
	if events&(unix.EPOLLERR|unix.EPOLLHUP) == 0 {
		return events&unix.EPOLLOUT != 0, nil
	}
	if err := Error(fd); err != nil {
		return false, err
	}
	return false, ErrEarly
}
