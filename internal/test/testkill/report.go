// SPDX-License-Identifier: Apache-2.0

package testkill

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// told is set in the environment of a victim, whose socket is the first file after the standard ones.
const (
	told       = "JEOUL_TEST_KILL"
	socketFile = 3
)

// Told says whether this process is a victim's.
func Told() bool { return os.Getenv(told) != "" }

// Report has the kernel halt this process at each step. Call it in a victim, before anything else.
func Report() error {
	program := filter()
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)}
	// Every thread is halted, and by nothing but the end once it is asked about.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC |
		unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("asking the kernel to halt the process at each step: %w", errno)
	}
	if err := unix.Sendmsg(socketFile, []byte{0}, unix.UnixRights(int(listener)), nil, 0); err != nil {
		return fmt.Errorf("sending what the steps are read from: %w", err)
	}
	return unix.Close(int(listener))
}

// Begin has the steps counted from here on, once the test says so.
func Begin() error {
	if _, err := unix.Write(socketFile, []byte{0}); err != nil {
		return err
	}
	_, err := unix.Read(socketFile, make([]byte, 1))
	return err
}

func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	file := os.NewFile(uintptr(pair[0]), "victim")
	defer file.Close()
	theirs = os.NewFile(uintptr(pair[1]), "test")
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, nil, fmt.Errorf("opening a socket: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}

// receive receives the listener.
func receive(from *net.UnixConn) (int, error) {
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
