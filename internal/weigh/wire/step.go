// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

// Step has the results of one offered rate.
type Step struct {
	Kind Kind
	// Offered is the rate that was asked for, a second; 0: as much as can be.
	Offered float64
	// Asked is how many connections (queries, packets) were to be begun, and Begun how
	// many were: SYNs without those sent again.
	Asked, Begun uint64
	// Duration is from when the first was due until the last was begun; where as much as
	// can be was offered, until the time for that was over.
	Duration time.Duration
	// Established are those whose handshake was completed in time (answered, of
	// queries), Completed those whose session was closed by both sides, or that
	// answered in the end (Capacity).
	Established, Completed uint64
	// InTime are connections of a Setup of as much as can be that server ports had accepted
	// when Duration was over. A proxy accepts for itself first, and may bring many to servers
	// later.
	InTime uint64
	// Failed has those that were begun and came to nothing, by cause.
	Failed Failed
	// Strange has packets that belong to no result, by their fault.
	Strange Strange
	// Retransmitted are packets that were sent again.
	Retransmitted uint64
	// Setup is the time from the first SYN to its SYN-ACK, Response that from the
	// request (the query) to the first byte of its answer.
	Setup, Response Latency
	// PerServer are connections that each server port accepted (handshakes completed;
	// datagrams, queries), in the order of Spec.Servers.
	PerServer []uint64
	// Clients and Servers are the packets that the ports of each side have sent and received, all together;
	// LostToServers and LostToClients are those lost between them. Packets that a balancer adds or takes away show
	// there, too.
	Clients, Servers             Packets
	LostToServers, LostToClients int64
	// FloodSent are SYNs of the flood beside the load, FloodArrived those that came to
	// server ports.
	FloodSent, FloodArrived uint64
	// KeptUp is whether the tester itself offered the rate that was asked for; Behind is how late the latest connection
	// was begun.
	KeptUp bool
	Behind time.Duration
	// LeftOpen are connections that could not be reset after the step in half a minute and
	// more: a balancer in between still knows them.
	LeftOpen uint64
	// Interrupted: the step was ended early.
	Interrupted bool
}

// Failed are connections (queries) that came to nothing, by cause.
type Failed struct {
	// NoAnswer: not after all tries.
	NoAnswer uint64
	// Reset by the other side.
	Reset uint64
	// WrongBackend: a packet of the connection came to another server port than the
	// one that accepted it.
	WrongBackend uint64
	// Checksum: the last that was heard of it was a packet with a wrong checksum.
	Checksum uint64
	// Unsent: never begun, because there was no room among the connections.
	Unsent uint64
}

// Total is the sum of all causes.
func (f Failed) Total() uint64 {
	return f.NoAnswer + f.Reset + f.WrongBackend + f.Checksum + f.Unsent
}

// Strange are packets that belong to no result.
type Strange struct {
	// Late: for a connection that has ended, or of an earlier one of the same number.
	Late uint64
	// Duplicate: the request had been answered before.
	Duplicate uint64
	// Stranger: not for any connection of the tester.
	Stranger uint64
	// Checksum: with a wrong checksum.
	Checksum uint64
	// Malformed: unreadable.
	Malformed uint64
	// WrongBackend: packets that server ports got of connections of another.
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

// Rate is how many were established a second.
func (s Step) Rate() float64 {
	if s.Duration <= 0 {
		return 0
	}
	return float64(s.Established) / s.Duration.Seconds()
}
