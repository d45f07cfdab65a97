// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"time"
)

// fill sums up a step.
func (t *Tester) fill(s *Step, before totals) error {
	n, err := t.counts()
	if err != nil {
		return err
	}
	d := n.since(before)
	s.Begun = d.progress.Opened
	if s.Asked == 0 {
		s.Asked = s.Begun
	}
	if s.Begun > 0 && s.Offered > 0 {
		s.Duration = time.Duration(d.progress.Ended - t.control.Start)
	}
	s.Established = d.client(bpfWireCountWIRE_COUNT_ESTABLISHED)
	s.Completed = d.client(bpfWireCountWIRE_COUNT_COMPLETED)
	switch s.Kind {
	case Setup:
		// A connection that was reset right after its handshake has failed.
		s.Established -= d.client(bpfWireCountWIRE_COUNT_BROKEN)
	case UDP:
		s.Established = d.server(bpfWireCountWIRE_COUNT_ESTABLISHED)
	}
	s.Failed = Failed{
		NoAnswer: d.progress.NoAnswer, Checksum: d.progress.Checksum,
		Reset:        d.client(bpfWireCountWIRE_COUNT_FAILED_RESET),
		WrongBackend: d.client(bpfWireCountWIRE_COUNT_FAILED_WRONG_BACKEND),
	}
	if !s.Interrupted {
		s.Failed.Unsent = s.Asked - s.Begun
	}
	if s.Kind == UDP && s.Begun > s.Established {
		s.Failed.NoAnswer = s.Begun - s.Established
	}
	s.Retransmitted = d.progress.Retransmitted
	s.Behind = time.Duration(d.progress.Behind)
	s.KeptUp = s.Begun == s.Asked && s.Behind <= max(20*time.Millisecond, s.Duration/100)
	d.fillPackets(s)
	var setupErr, responseErr error
	s.Setup, setupErr = t.latency(bpfWireLatencyWIRE_LATENCY_SETUP)
	s.Response, responseErr = t.latency(bpfWireLatencyWIRE_LATENCY_RESPONSE)
	return errors.Join(setupErr, responseErr)
}

// fillPackets sets the step's counts of packets.
func (n totals) fillPackets(s *Step) {
	both := func(what bpfWireCount) uint64 { return n.client(what) + n.server(what) }
	s.Unexpected = Unexpected{
		Late:              n.client(bpfWireCountWIRE_COUNT_LATE),
		Duplicate:         both(bpfWireCountWIRE_COUNT_DUPLICATE),
		UnknownPeer:       both(bpfWireCountWIRE_COUNT_UNKNOWN_PEER),
		Checksum:          both(bpfWireCountWIRE_COUNT_CHECKSUM),
		Malformed:         both(bpfWireCountWIRE_COUNT_MALFORMED),
		WrongBackend:      n.server(bpfWireCountWIRE_COUNT_WRONG_BACKEND),
		Unacknowledgeable: n.server(bpfWireCountWIRE_COUNT_INVALID_ACK),
	}
	s.FloodSent = n.progress.Flooded
	s.FloodArrived = n.server(bpfWireCountWIRE_COUNT_FLOOD)
	accepted := bpfWireCount(bpfWireCountWIRE_COUNT_ESTABLISHED)
	if s.Kind == SYNFlood {
		accepted = bpfWireCountWIRE_COUNT_FLOOD
	}
	s.PerServer = nil
	for _, c := range n.servers {
		s.PerServer = append(s.PerServer, c.Count[accepted])
	}
	s.Clients = Packets{
		Sent:     n.progress.Sent + n.client(bpfWireCountWIRE_COUNT_SENT),
		Received: n.client(bpfWireCountWIRE_COUNT_RECEIVED) + n.client(bpfWireCountWIRE_COUNT_FLOOD),
	}
	s.Servers = Packets{
		Sent:     n.server(bpfWireCountWIRE_COUNT_SENT),
		Received: n.server(bpfWireCountWIRE_COUNT_RECEIVED) + s.FloodArrived,
	}
	s.LostToServers = int64(s.Clients.Sent) - int64(s.Servers.Received)
	s.LostToClients = int64(s.Servers.Sent) - int64(s.Clients.Received)
}

// Succeeded returns the number of connections (queries, packets) that reached the goal of the load. The goal of a
// connection that is only set up is to reach a server, where the servers are ports of the tester. Where as many as
// possible were offered, it must reach the server in time: a proxy's kernel has accepted many connections before that.
func (s Step) Succeeded() uint64 {
	switch s.Kind {
	case Session, Mix, DNS, Capacity:
		return s.Completed
	case Setup:
		return s.setUp()
	}
	return s.Established
}

func (s Step) setUp() uint64 {
	if len(s.PerServer) == 0 {
		return s.Established
	}
	arrived := uint64(0)
	for _, n := range s.PerServer {
		arrived += n
	}
	if s.Offered == 0 {
		arrived = min(arrived, s.InTime)
	}
	return min(s.Established, arrived)
}

// Loss is the share of Asked that failed or needed a retransmission: otherwise the timeout would hide any loss.
func (s Step) Loss() float64 {
	if s.Asked == 0 {
		return 0
	}
	lost := float64(s.Asked) - float64(s.Succeeded()) + float64(s.Retransmitted)
	return min(max(lost/float64(s.Asked), 0), 1)
}

// Passes reports whether a step lost at most a share and the tester kept up.
func (s Step) Passes(loss float64) bool {
	return s.KeptUp && !s.Interrupted && s.Succeeded() > 0 && s.Loss() <= loss
}
