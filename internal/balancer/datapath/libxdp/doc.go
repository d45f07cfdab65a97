// SPDX-License-Identifier: Apache-2.0

// Package libxdp joins the XDP programs that libxdp (xdp-tools) runs on an interface, by its protocol: a dispatcher has
// the interface, and calls a function for each program, which the program replaces (freplace). To add, exchange or
// remove a program, a process makes another dispatcher, attaches all programs to it, pins it where libxdp looks for it,
// and puts it in the place of the previous one in one step. So a packet meets the programs before the change or those
// after it, and each program the packets of every dispatcher it is in.
//
// The protocol is described in lib/libxdp/protocol.org of github.com/xdp-project/xdp-tools; versions 2 and 3 are
// supported. It needs Linux 5.10, where a program can replace functions of several others.
//
// The dispatcher is our own (bpf/libxdp), since libxdp's is missing in a container, and a program cannot know where a
// distribution keeps it; libxdp can work with ours. It is made in the version that the interface has already, because
// libxdp refuses dispatchers of a newer one, and does not replace older ones.
package libxdp
