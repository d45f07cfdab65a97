// SPDX-License-Identifier: Apache-2.0

// Package sockfilter attaches classic BPF filters to sockets (socket(7), SO_ATTACH_FILTER): packets that a filter
// rejects do not wake the reader.
package sockfilter

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Attach attaches a program to the socket fd, in place of a previous one. Errors: those of assembling the program, and
// the kernel's.
func Attach(fd int, program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}
