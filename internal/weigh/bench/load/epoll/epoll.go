// SPDX-License-Identifier: Apache-2.0

// Package epoll has the event loop of a load generator of one thread: it waits for sockets, and for a moment. Go's own
// poller wakes another thread for each socket, and its timers add up to a millisecond where a process is idle; either
// would be most of the time that a generator is to measure.
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

// Loop waits. All but Wake are for the one thread that uses it.
type Loop struct {
	epoll, timer, wake int
	events             [256]unix.EpollEvent
	scratch            [8]byte
}

// New makes a loop, which is to be closed.
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

// Close gives back the descriptors that New took. Sockets stay open.
func (l *Loop) Close() {
	for _, fd := range []int{l.epoll, l.timer, l.wake} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Add has Wait tell of a descriptor's events (EPOLLIN, EPOLLET, …), until it is
// closed.
func (l *Loop) Add(fd int, events uint32) error {
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// Change has Wait tell of other events of a descriptor.
func (l *Loop) Change(fd int, events uint32) error {
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// Wait blocks until something has happened, and calls handle for every descriptor to
// which it has. That of the timer, or a call of Wake, only ends the waiting.
func (l *Loop) Wait(handle func(fd int, events uint32)) error { return l.wait(handle, -1) }

// Look is Wait for events that have happened already.
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

// After has the waiting end after a time, once; it takes the place of the time set before.
func (l *Loop) After(wait time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(wait, 1).Nanoseconds())}
	if err := unix.TimerfdSettime(l.timer, 0, &spec, nil); err != nil {
		return fmt.Errorf("setting a timer: %w", err)
	}
	return nil
}

// Wake ends the waiting, from whatever thread.
func (l *Loop) Wake() {
	unix.Write(l.wake, binary.NativeEndian.AppendUint64(nil, 1)) // it is full only if the loop waits no more
}

// WakeAtEnd calls Wake when ctx ends; stop is to be called before Close.
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

// Address is a socket's address in the kernel's form, and its family.
func Address(of netip.AddrPort) (unix.Sockaddr, int) {
	if addr := of.Addr().Unmap(); addr.Is4() {
		return &unix.SockaddrInet4{Port: int(of.Port()), Addr: addr.As4()}, unix.AF_INET
	}
	return &unix.SockaddrInet6{Port: int(of.Port()), Addr: of.Addr().As16()}, unix.AF_INET6
}

// Socket makes a TCP socket that sends data at once; flags may have SOCK_NONBLOCK.
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

// Listen makes a socket that waits for connections.
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

// backlog is more than a laboratory's clients open at once; the kernel bounds it by
// somaxconn.
const backlog = 1 << 16

// Accept takes a connection, whose calls block; -1 and EAGAIN if there is none, which
// a listener that blocks says after its SO_RCVTIMEO. The runtime is not told, as with
// Receive. (Accept4 of package unix makes an address for each, which is not needed here.)
func Accept(listener int) (int, error) {
	fd, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// Receive reads the data that has come; flags may have MSG_DONTWAIT.
//
// The runtime is not told of this call and of Send, which saves a tenth of a
// microsecond each. So while one blocks, its thread keeps its processor, and a
// collection of garbage would wait for it: the caller needs a second processor for its other threads, no collection,
// and a bound (SO_RCVTIMEO). EINTR is usual.
func Receive(fd int, into []byte, flags int) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&into[0])),
		uintptr(len(into)), uintptr(flags), 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// Send writes data that is small enough to fit; see Receive.
func Send(fd int, data []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)),
		unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// Close closes a socket, which takes it off a loop as well. It does not block, and the
// runtime is not told.
func Close(fd int) { unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// Error is the result of connecting a socket.
func Error(fd int) error {
	failed, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && failed != 0 {
		err = unix.Errno(failed)
	}
	return err
}

// ErrEarly means that the other side closed the connection before it answered.
var ErrEarly = errors.New("the connection was closed before the answer")

// Opened says of events of a socket that connects whether it is connected now, or why it will
// not be.
func Opened(fd int, events uint32) (bool, error) {
	if events&(unix.EPOLLERR|unix.EPOLLHUP) == 0 {
		return events&unix.EPOLLOUT != 0, nil
	}
	if err := Error(fd); err != nil {
		return false, err
	}
	return false, ErrEarly
}
