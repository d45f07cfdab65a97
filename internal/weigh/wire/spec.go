// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"net"
	"net/netip"
)

// Errors that callers may test for.
var (
	// ErrSpec means that the ports or addresses of a tester are impossible.
	ErrSpec = errors.New("impossible tester")
	// ErrLoad means that there is no such load, or that it does not fit the tester.
	ErrLoad = errors.New("impossible load")
	// ErrPort means that an interface cannot be a port.
	ErrPort = errors.New("unusable port")
	// ErrKernel means that this kernel cannot send frames from a program.
	ErrKernel = errors.New(
		"this kernel does not send live frames (BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18)")
	// ErrInterrupted means that a load was ended early; the steps so far are valid.
	ErrInterrupted = errors.New("interrupted")
)

// Port is an interface with an XDP program of the tester.
type Port struct {
	// Name is the port's name in results.
	Name string
	// Interface is its name in the network namespace in which Do runs functions.
	Interface string
	// Do runs a function inside the port's network namespace, on a thread in that namespace, and returns the function's
	// error; nil stands for the namespace of the process. (*lab.Host).Do and (*namespace.Namespace).Do are such
	// functions.
	Do func(func() error) error
	// Sources are the addresses of a client port: all addresses of this IPv4 prefix but the first and the last (of a
	// /31 or /32: all). The port answers ARP for them.
	Sources netip.Prefix
	// Address is the address of a server port, if it serves one besides the VIP: it answers packets to this address
	// with this address as their source (NAT).
	Address netip.Addr
}

// Reply selects where a server port sends its answers.
type Reply string

// The kinds of replies.
const (
	// ReplyDirect sends them to the MAC address of the client port that has the source address of the request (direct
	// server return); for an unknown source, to the sender's MAC address.
	ReplyDirect Reply = "direct"
	// ReplyToSender sends them to the MAC address that the request came from.
	ReplyToSender Reply = "sender"
)

// Spec is the arrangement of a tester.
type Spec struct {
	// Clients and Servers are the ports, at most MaxPorts of each. Without servers
	// the host behind Next answers.
	Clients, Servers []Port
	// Target is the VIP that clients send to.
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
	// Connections is the number of connections that the tester can tell apart at a time. Each takes 32 bytes of memory
	// that is never swapped (DefaultConnections).
	Connections int
	// CPU is the core that sends; -1: any core.
	CPU int
	// Polite makes the sender take its turn among the machine's threads. Otherwise it has priority over all others, and
	// never leaves its core while a load runs.
	Polite bool
	// Batch is the number of frames that are made at a time (DefaultBatch). More than 64 overflow a veth's ring of 256
	// frames where they are answered.
	Batch int
	// Seed determines the sequence numbers and the sources of a flood: testers with the same seed have the same.
	Seed uint64
}

// Bounds and defaults of a Spec.
const (
	MaxPorts           = 16
	MaxConnections     = 1 << 24
	DefaultConnections = 1 << 20
	DefaultBatch       = 64
)
