// SPDX-License-Identifier: Apache-2.0

package testkill

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/unotify"
)

// call is a system call that is a step: always, or only if an argument has one of these values or one of these bits.
type call struct {
	name     string
	number   uint32
	argument int
	values   []uint32
	bits     uint32
	// path is the number of the argument that is a path, for messages; 0: none.
	path int
}

// calls are the system calls whose effect outlives a process, or may outlive it. Nothing that a filter sees
// distinguishes changes by netlink and ethtool from queries, so each request is a step.
var calls = []call{
	{name: "bpf", number: unix.SYS_BPF, values: []uint32{unix.BPF_MAP_UPDATE_ELEM, unix.BPF_MAP_DELETE_ELEM,
		unix.BPF_MAP_UPDATE_BATCH,
		unix.BPF_MAP_DELETE_BATCH, unix.BPF_OBJ_PIN, unix.BPF_PROG_ATTACH, unix.BPF_PROG_DETACH, unix.BPF_PROG_TEST_RUN,
		unix.BPF_LINK_CREATE, unix.BPF_LINK_UPDATE, unix.BPF_LINK_DETACH}},
	{name: "openat", number: unix.SYS_OPENAT, argument: 2, bits: unix.O_CREAT | unix.O_WRONLY | unix.O_RDWR, path: 1},
	{name: "renameat", number: unix.SYS_RENAMEAT, path: 3},
	{name: "renameat2", number: unix.SYS_RENAMEAT2, path: 3},
	{name: "unlinkat", number: unix.SYS_UNLINKAT, path: 1},
	{name: "mkdirat", number: unix.SYS_MKDIRAT, path: 1},
	{name: "linkat", number: unix.SYS_LINKAT, path: 3},
	{name: "symlinkat", number: unix.SYS_SYMLINKAT, path: 2},
	{name: "mount", number: unix.SYS_MOUNT, path: 1},
	{name: "umount", number: unix.SYS_UMOUNT2},
	{name: "sendto", number: unix.SYS_SENDTO},
	{name: "ethtool", number: unix.SYS_IOCTL, argument: 1, values: []uint32{unix.SIOCETHTOOL}},
}

// filter returns a classic BPF program that makes the kernel ask about the calls.
func filter() (program []unix.SockFilter) {
	statement := func(code uint16, k uint32) { program = append(program, unix.SockFilter{Code: code, K: k}) }
	jump := func(code uint16, k uint32, yes, no uint8) {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | code, Jt: yes, Jf: no, K: k})
	}
	const load, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_RET | unix.BPF_K
	statement(load, unotify.OffsetNumber)
	for _, c := range calls {
		var tests []unix.SockFilter
		for i, v := range c.values {
			tests = append(tests, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ, K: v,
				Jt: uint8(len(c.values) - i)})
		}
		if c.bits != 0 {
			tests = append(tests, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | unix.BPF_JSET, K: c.bits, Jt: 1})
		}
		if len(tests) == 0 {
			jump(unix.BPF_JEQ, c.number, 0, 1)
			statement(ret, unix.SECCOMP_RET_USER_NOTIF)
			continue
		}
		jump(unix.BPF_JEQ, c.number, 0, uint8(len(tests)+3))
		statement(load, uint32(unotify.OffsetArgument+8*c.argument)) // the lower half, on a little-endian machine
		program = append(program, tests...)
		statement(ret, unix.SECCOMP_RET_ALLOW)
		statement(ret, unix.SECCOMP_RET_USER_NOTIF)
	}
	statement(ret, unix.SECCOMP_RET_ALLOW)
	return program
}

// describe names a step.
func describe(n *unotify.Notice) string {
	for _, c := range calls {
		if int32(c.number) != n.Call.Number {
			continue
		}
		switch {
		case c.path != 0:
			return c.name + " " + unotify.StringAt(int(n.PID), n.Call.Argument[c.path])
		case len(c.values) > 0:
			return fmt.Sprintf("%s %d", c.name, n.Call.Argument[c.argument])
		}
		return c.name
	}
	return fmt.Sprintf("call %d", n.Call.Number)
}
