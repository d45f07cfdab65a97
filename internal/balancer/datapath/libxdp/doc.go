// SPDX-License-Identifier: Apache-2.0

// Package libxdp joins the XDP programs that libxdp (xdp-tools) runs on an interface, by its protocol: a
// dispatcher has the interface, and calls a function for each program, which the program replaces
// (freplace). Who adds, exchanges or removes a program makes another dispatcher, attaches all programs to
// it, pins it where libxdp looks for it, and puts it in the place of the one before in one step. So a packet meets the
// programs of before or those of after, and each program the packets of every dispatcher it is in.
//
// The protocol is described in lib/libxdp/protocol.org of github.com/xdp-project/xdp-tools; versions 2 and
// 3 are spoken. It takes Linux 5.10, where a program can replace functions of several others.
//
// The dispatcher is our own (bpf/libxdp), since libxdp's is not to be had in a container, or by a program that
// does not know where a distribution keeps it; libxdp goes on with ours. It is made in the version that the
// interface has already, because libxdp refuses dispatchers of a newer one, and does not replace older ones.
package libxdp
