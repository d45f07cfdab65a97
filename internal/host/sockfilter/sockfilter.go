// SPDX-License-Identifier: Apache-2.0

// Package sockfilter gives sockets a filter of classic BPF (socket(7), SO_ATTACH_FILTER): packets that it does not
// accept never wake the reader.
package sockfilter

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Attach gives the socket fd a program, which replaces one that it has. Errors: of a program that cannot be assembled,
// and the kernel's.
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
