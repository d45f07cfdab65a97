// SPDX-License-Identifier: Apache-2.0

package testdisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/unotify"
)

// envName is the environment variable with the path of the injector's socket. It is set for a process whose files fail.
const envName = "JEOUL_TEST_DISK"

// Injector makes the system calls fail by which a process and its children change files. They are the calls of the real
// program: the kernel halts the process at each call and asks the injector.
type Injector struct {
	socket *net.UnixListener
	// decide returns the errno of each call, 0 to let it through. Several goroutines call it.
	decide func(op Op, path string) unix.Errno
	serves sync.WaitGroup
}

// Inject listens for processes with the environment Env. dir is for the socket that they connect to.
func Inject(dir string, decide func(op Op, path string) unix.Errno) (*Injector, error) {
	at := &net.UnixAddr{Net: "unixpacket", Name: filepath.Join(dir, "injector")}
	socket, err := net.ListenUnix("unixpacket", at)
	if err != nil {
		return nil, err
	}
	i := &Injector{socket: socket, decide: decide}
	i.serves.Go(i.accept)
	return i, nil
}

// Env returns the environment variable for such a process, which must call Report.
func (i *Injector) Env() string { return envName + "=" + i.socket.Addr().String() }

// Close returns when all processes have ended.
func (i *Injector) Close() error {
	err := i.socket.Close()
	i.serves.Wait()
	return err
}

func (i *Injector) accept() {
	for {
		conn, err := i.socket.AcceptUnix()
		if err != nil {
			return
		}
		listener, err := unotify.Receive(conn)
		conn.Close()
		if err == nil {
			i.serves.Go(func() { i.serve(listener) })
		}
	}
}

func (i *Injector) serve(listener int) {
	defer unix.Close(listener)
	for {
		n, err := unotify.Next(listener)
		if err != nil {
			return
		}
		if errno := i.asked(n); errno != 0 {
			unotify.Fail(listener, n, errno)
			continue
		}
		unotify.Continue(listener, n)
	}
}

// asked returns the errno of a call.
func (i *Injector) asked(n *unotify.Notice) unix.Errno {
	c, is := changes[uint32(n.Call.Number)]
	if !is {
		return 0
	}
	path := c.file(n)
	if path == "" {
		return 0
	}
	op := c.op
	if op == Open {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/root%s", n.PID, path)); err != nil {
			op = Create
		}
	}
	return i.decide(op, path)
}

// change is a system call that changes files.
type change struct {
	op Op
	// path, descriptor or address is the number of the argument that identifies the file, from 1.
	path, descriptor, address int
}

// changes are the system calls by which Go's os and net packages change files.
var changes = map[uint32]change{
	unix.SYS_OPENAT:    {op: Open, path: 2},
	unix.SYS_RENAMEAT:  {op: Rename, path: 4},
	unix.SYS_RENAMEAT2: {op: Rename, path: 4},
	unix.SYS_UNLINKAT:  {op: Remove, path: 2},
	unix.SYS_MKDIRAT:   {op: MkdirAll, path: 2},
	unix.SYS_FCHMODAT:  {op: Chmod, path: 2},
	unix.SYS_FCHMOD:    {op: Chmod, descriptor: 1},
	unix.SYS_WRITE:     {op: Write, descriptor: 1},
	unix.SYS_FTRUNCATE: {op: Truncate, descriptor: 1},
	unix.SYS_FALLOCATE: {op: Allocate, descriptor: 1},
	unix.SYS_FSYNC:     {op: Sync, descriptor: 1},
	unix.SYS_BIND:      {op: Bind, address: 2},
}

// file returns the path of the file of a call; "": it has none.
func (c change) file(n *unotify.Notice) string {
	argument := func(at int) uint64 { return n.Call.Argument[at-1] }
	var path string
	switch {
	case c.path != 0:
		path = unotify.StringAt(int(n.PID), argument(c.path))
	case c.descriptor != 0:
		path, _ = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.PID, int32(argument(c.descriptor))))
	default:
		size := min(argument(c.address+1), unix.SizeofSockaddrUnix)
		address := unotify.BytesAt(int(n.PID), argument(c.address), int(size))
		if len(address) > 2 && binary.NativeEndian.Uint16(address) == unix.AF_UNIX {
			path = unix.ByteSliceToString(address[2:])
		}
	}
	if !filepath.IsAbs(path) {
		return ""
	}
	return path
}

// Report makes an injector decide on this process's operations on files, if the environment names one.
func Report() error {
	at := os.Getenv(envName)
	if at == "" {
		return nil
	}
	// The filter applies to child processes as well, so they need no injector of their own.
	if err := os.Unsetenv(envName); err != nil {
		return err
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: at})
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = unotify.Install(filter(), int(fd)) })
	if err = errors.Join(controlErr, err); errors.Is(err, io.EOF) {
		return fmt.Errorf("no test is there: %w", err)
	}
	return err
}

// filter asks about changes. Of openat it asks only about calls that write or create.
func filter() (program []unix.SockFilter) {
	statement := func(code uint16, k uint32) { program = append(program, unix.SockFilter{Code: code, K: k}) }
	jump := func(code uint16, k uint32, yes, no uint8) {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | code, Jt: yes, Jf: no, K: k})
	}
	const load, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_RET | unix.BPF_K
	statement(load, unotify.OffsetNumber)
	for number := range changes {
		if number == unix.SYS_OPENAT {
			continue
		}
		jump(unix.BPF_JEQ, number, 0, 1)
		statement(ret, unix.SECCOMP_RET_USER_NOTIF)
	}
	jump(unix.BPF_JEQ, unix.SYS_OPENAT, 0, 3)
	statement(load, unotify.OffsetArgument+8*2) // the lower half, on a little-endian machine
	jump(unix.BPF_JSET, unix.O_CREAT|unix.O_WRONLY|unix.O_RDWR, 0, 1)
	statement(ret, unix.SECCOMP_RET_USER_NOTIF)
	statement(ret, unix.SECCOMP_RET_ALLOW)
	return program
}
