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

// envName is set in the environment of a process whose files fail: the path of the injector's socket.
const envName = "JEOUL_TEST_DISK"

// Injector has the calls fail by which a process, and those that it starts, changes files. The calls are the real
// ones of the real program: the kernel halts it at each and asks.
type Injector struct {
	socket *net.UnixListener
	// decide returns the errno for each call, 0 to let it through; several goroutines call it.
	decide func(op Op, path string) unix.Errno
	serves sync.WaitGroup
}

// Inject listens for processes with the environment Env; a directory has the socket by which they come.
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

// Env is to be in the environment of such a process, which calls Report.
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

// asked returns the error of a call.
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

// change is a call that changes files.
type change struct {
	op Op
	// path, descriptor or address is the argument that says which file, from 1.
	path, descriptor, address int
}

// changes are the operations on files by the system calls that Go's os and net packages make.
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

// file is the path of the file that a call is about; empty: it is about none.
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

// Report has an injector decide on this process's operations on files, if the environment says so.
func Report() error {
	at := os.Getenv(envName)
	if at == "" {
		return nil
	}
	// A process that it starts is halted with it, and has no injector of its own.
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

// filter asks about changes, and of openat about those that write or create.
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
