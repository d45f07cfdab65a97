// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"net"
	"net/netip"
)

// Errors that callers may test for.
var (
	// ErrSpec: the ports or addresses of a tester cannot be.
	ErrSpec = errors.New("impossible tester")
	// ErrLoad: there is no such load, or that it does not fit the tester.
	ErrLoad = errors.New("impossible load")
	// ErrPort: an interface cannot be a port.
	ErrPort = errors.New("unusable port")
	// ErrKernel: this kernel cannot send frames from a program.
	ErrKernel = errors.New(
		"this kernel does not send live frames (BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18)")
	// ErrInterrupted: a load was ended early; the steps so far are good.
	ErrInterrupted = errors.New("interrupted")
)

// Port is an interface with an XDP program of ours.
type Port struct {
	// Name is the port's name in results.
	Name string
	// Interface is its name in the network namespace that Do runs functions in.
	Interface string
	// Do runs a function inside the port's network namespace, on a thread that is in
	// there, and returns the function's error; nil is for the namespace of the
	// process. It is as (*lab.Host).Do and (*namespace.Namespace).Do.
	Do func(func() error) error
	// Sources are the addresses of a client port: of this IPv4 prefix all but the
	// first and the last (of a /31 or /32: all). The port answers ARP for them.
	Sources netip.Prefix
	// Address is that of a server port, if it is to serve besides the VIP; with it as source it answers packets that
	// came for it (NAT).
	Address netip.Addr
}

// Reply says where a server port sends its answers to.
type Reply string

// The kinds of replies.
const (
	// ReplyDirect: to the MAC address of the client port that has the address that
	// the request came from (direct server return); of strangers, to the sender's.
	ReplyDirect Reply = "direct"
	// ReplyToSender: to the MAC address that the request came from.
	ReplyToSender Reply = "sender"
)

// Spec is the arrangement of a tester.
type Spec struct {
	// Clients and Servers are the ports, at most MaxPorts of each. Without servers
	// the host behind Next answers.
	Clients, Servers []Port
	// Target is the VIP, where clients send to.
	Target netip.AddrPort
	// ServerPort is the port of server ports' own addresses; 0: as the target's.
	ServerPort uint16
	// Next are the MAC addresses that client ports send to: that of the balancer, or
	// of several, in turn by the number of the connection.
	Next []net.HardwareAddr
	// Reply is how server ports answer (ReplyToSender).
	Reply Reply
	// DSCP maps a code point to the VIP that it stands for, where a balancer marks
	// (mode dscp). Tunnels (IPIP, GUE) are undone by server ports in any case.
	DSCP map[uint8]netip.Addr
	// SourcePorts are the first and the last port of the clients (1024 to 65535).
	SourcePorts [2]uint16
	// Connections is how many connections the tester can tell apart at a time, each
	// of which takes 32 bytes of memory that is never swapped (DefaultConnections).
	Connections int
	// CPU is the core that sends; -1: whichever.
	CPU int
	// Polite has the sender take its turn among the machine's threads; else it goes
	// before all others, and never leaves its core while a load runs.
	Polite bool
	// Batch is how many frames are made at a time (DefaultBatch). More than 64
	// overflow a veth's ring of 256 where they are answered.
	Batch int
	// Seed makes sequence numbers and sources of a flood the same as another's.
	Seed uint64
}

// Bounds and defaults of a Spec.
const (
	MaxPorts           = 16
	MaxConnections     = 1 << 24
	DefaultConnections = 1 << 20
	DefaultBatch       = 64
)
