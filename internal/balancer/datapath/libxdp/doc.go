// SPDX-License-Identifier: Apache-2.0

// Package libxdp adds a program to those that libxdp (xdp-tools) runs on an interface, by its protocol: a dispatcher is
// attached to the interface, and calls a function for each program, which the program replaces (freplace). To add,
// replace or remove a program, a process loads another dispatcher, attaches all programs to it, pins it where libxdp
// looks for it, and atomically replaces the previous dispatcher by it. So each packet is processed by the programs
// before the change or by those after it.
//
// The protocol is described in lib/libxdp/protocol.org of github.com/xdp-project/xdp-tools; versions 2 and 3 are
// supported. It needs Linux 5.10, where a program can replace functions of several others.
//
// The dispatcher is our own (bpf/libxdp), since libxdp's is missing in containers, and distributions install it in
// different places; libxdp can work with ours. It has the version that is in use on the host already, because libxdp
// rejects dispatchers of a newer one, and does not replace older ones.
package libxdp
