// SPDX-License-Identifier: Apache-2.0

// Package unotify halts a process of a test at system calls, and asks the test for the result of each call
// (seccomp_unotify(2)).
package unotify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Notice is struct seccomp_notif of the kernel's include/uapi/linux/seccomp.h: a thread is halted at a call.
type Notice struct {
	ID         uint64
	PID, Flags uint32
	Call       Data
}

// Data is struct seccomp_data.
type Data struct {
	Number   int32
	Arch     uint32
	Pointer  uint64
	Argument [6]uint64
}

// answer is struct seccomp_notif_resp.
type answer struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

// Offsets in struct seccomp_data, for filters.
const (
	OffsetNumber   = 0
	OffsetArgument = 16
)

// Install makes the kernel halt this process, and its children, at the system calls that a filter asks about. It sends
// the descriptor for reading notices over a unix socket.
func Install(program []unix.SockFilter, socket int) error {
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)}
	// Every thread is halted. Once a call is asked about, only the end of the process interrupts it.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC |
		unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("asking the kernel to halt the process at each step: %w", errno)
	}
	if err := unix.Sendmsg(socket, []byte{0}, unix.UnixRights(int(listener)), nil, 0); err != nil {
		return fmt.Errorf("sending what the steps are read from: %w", err)
	}
	return unix.Close(int(listener))
}

// Receive receives the descriptor that Install sends.
func Receive(from *net.UnixConn) (int, error) {
	data, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := from.ReadMsgUnix(data, rights)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) == 0 {
		return -1, fmt.Errorf("no listener came: %v", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return -1, err
	}
	return fds[0], nil
}

// Next waits for a notice. io.EOF means that all processes have ended.
func Next(listener int) (*Notice, error) {
	for {
		poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("waiting for a step: %w", err)
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			if poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
				return nil, io.EOF
			}
			continue
		}
		var n Notice
		if err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err != nil {
			continue // the thread has left the call, by a signal or its end
		}
		return &n, nil
	}
}

// Continue lets the process make the call.
func Continue(listener int, n *Notice) {
	send(listener, &answer{id: n.ID, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE})
}

// Fail makes a call fail. The kernel does not execute it.
func Fail(listener int, n *Notice, err unix.Errno) {
	send(listener, &answer{id: n.ID, err: -int32(err)})
}

func send(listener int, a *answer) {
	_ = ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(a)) // fails if the thread has ended
}

func ioctl(fd int, request uintptr, argument unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
		if errno == 0 {
			return nil
		}
		if errno != unix.EINTR {
			return errno
		}
	}
}

// StringAt reads a string from the memory of a halted process.
func StringAt(pid int, at uint64) string {
	var text []byte
	// The string may end just before a page that is not mapped.
	for len(text) < unix.PathMax {
		part := make([]byte, 64-at%64)
		remote := []unix.RemoteIovec{{Base: uintptr(at), Len: len(part)}}
		local := []unix.Iovec{{Base: unsafe.SliceData(part), Len: uint64(len(part))}}
		n, err := unix.ProcessVMReadv(pid, local, remote, 0)
		if err != nil {
			break
		}
		if end := bytes.IndexByte(part[:n], 0); end >= 0 {
			return string(append(text, part[:end]...))
		}
		text, at = append(text, part[:n]...), at+uint64(n)
	}
	return string(text)
}

// BytesAt reads bytes from the memory of a halted process, or as many of them as are mapped.
func BytesAt(pid int, at uint64, size int) []byte {
	data := make([]byte, size)
	remote := []unix.RemoteIovec{{Base: uintptr(at), Len: size}}
	local := []unix.Iovec{{Base: unsafe.SliceData(data), Len: uint64(size)}}
	n, err := unix.ProcessVMReadv(pid, local, remote, 0)
	if err != nil {
		return nil
	}
	return data[:n]
}
