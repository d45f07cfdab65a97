// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

// Step has the results of one offered rate.
type Step struct {
	Kind Kind
	// Offered is the rate that was asked for, a second; 0: as much as possible.
	Offered float64
	// Asked is the number of connections (queries, packets) that were to be begun, and Begun the number that were
	// begun: SYNs without retransmissions.
	Asked, Begun uint64
	// Duration is the time from when the first connection was due until the last was begun; where as much as possible
	// was offered, until the time for that was over.
	Duration time.Duration
	// Established is the number of connections whose handshake was completed in time (of queries: answered), Completed
	// the number whose session both sides closed, or that answered in the end (Capacity).
	Established, Completed uint64
	// InTime is the number of connections that server ports had accepted when Duration was over, of a Setup that offers
	// as many as possible. A proxy first accepts for itself, and may bring many to servers later.
	InTime uint64
	// Failed counts the connections that were begun and failed, by cause.
	Failed Failed
	// Unexpected counts packets that belong to no result, by their fault.
	Unexpected Unexpected
	// Retransmitted is the number of packets that were sent again.
	Retransmitted uint64
	// Setup is the time from the first SYN to its SYN-ACK, Response the time from the request (the query) to the first
	// byte of its answer.
	Setup, Response Latency
	// PerServer are the numbers of connections that each server port accepted (handshakes completed; datagrams,
	// queries), in the order of Spec.Servers.
	PerServer []uint64
	// Clients and Servers are the packets that all ports of each side have sent and received; LostToServers and
	// LostToClients are the packets lost between the sides. Packets that a balancer adds or removes show there, too.
	Clients, Servers             Packets
	LostToServers, LostToClients int64
	// FloodSent is the number of SYNs of the flood beside the load, FloodArrived the number of those that reached
	// server ports.
	FloodSent, FloodArrived uint64
	// KeptUp reports whether the tester itself offered the rate that was asked for; Behind is the delay with which the
	// latest connection was begun.
	KeptUp bool
	Behind time.Duration
	// LeftOpen is the number of connections that could not be reset in half a minute or more after the step: a balancer
	// in between still has them.
	LeftOpen uint64
	// Interrupted: the step was ended early.
	Interrupted bool
}

// Failed counts connections (queries) that failed, by cause.
type Failed struct {
	// NoAnswer: no answer came after all tries.
	NoAnswer uint64
	// Reset by the other side.
	Reset uint64
	// WrongBackend: a packet of the connection came to another server port than the
	// one that accepted it.
	WrongBackend uint64
	// Checksum: the last packet that was received for it had a wrong checksum.
	Checksum uint64
	// Unsent: never begun, because there was no room among the connections.
	Unsent uint64
}

// Total is the sum of all causes.
func (f Failed) Total() uint64 {
	return f.NoAnswer + f.Reset + f.WrongBackend + f.Checksum + f.Unsent
}

// Unexpected counts packets that belong to no result.
type Unexpected struct {
	// Late: for a connection that has ended, or of an earlier one of the same number.
	Late uint64
	// Duplicate: the request had been answered before.
	Duplicate uint64
	// UnknownPeer: not for any connection of the tester.
	UnknownPeer uint64
	// Checksum: with a wrong checksum.
	Checksum uint64
	// Malformed: unreadable.
	Malformed uint64
	// WrongBackend: packets that server ports received for connections of another server port.
	WrongBackend uint64
	// Unacknowledgeable: packets at server ports whose numbers no server has given out.
	Unacknowledgeable uint64
}

// Packets are the packets of the ports of one side.
type Packets struct{ Sent, Received uint64 }

// Latency sums a distribution up. All are 0 where there was nothing to measure.
type Latency struct {
	Count                         uint64
	Min, Mean, P50, P90, P99, Max time.Duration
}

// Rate returns the number of established connections a second.
func (s Step) Rate() float64 {
	if s.Duration <= 0 {
		return 0
	}
	return float64(s.Established) / s.Duration.Seconds()
}
