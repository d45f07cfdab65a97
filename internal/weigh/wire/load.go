// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"time"
)

// Kind is a kind of load.
type Kind string

// The kinds of loads.
const (
	// Setup: SYN, SYN-ACK, ACK. Between steps, connections are closed by RST.
	Setup Kind = "setup"
	// Session: setup, a request and its response if Request is not 0, FIN both ways.
	Session Kind = "session"
	// Capacity: connections are set up and held; in the end each one must answer a
	// request.
	Capacity Kind = "capacity"
	// UDP: datagrams, which server ports count.
	UDP Kind = "udp"
	// DNS: queries of one A record, with their answers.
	DNS Kind = "dns"
	// SYNFlood: SYNs from random sources, which are never acknowledged.
	SYNFlood Kind = "flood"
	// Mix: sessions whose responses have sizes of a distribution.
	Mix Kind = "mix"
)

// Kinds lists the kinds of loads.
func Kinds() []Kind { return []Kind{Setup, Session, Capacity, UDP, DNS, SYNFlood, Mix} }

// Load is a tester's load. At most one of Rate, Ladder and Search sets the rate that is offered; without any of them,
// the tester offers as much as possible.
type Load struct {
	Kind Kind
	// Rate is a constant rate, of connections, sessions, queries or packets a second.
	Rate float64
	// Ladder is a step for each rate.
	Ladder *Ladder
	// Search looks for the highest rate.
	Search *Search
	// Connections is the number of connections (queries, packets) that a step offers; a Ladder's number has precedence.
	// 0: as many as fit into Duration.
	Connections uint64
	// Duration is how long a step without Connections offers its rate.
	Duration time.Duration
	// Outstanding is the greatest number of connections that wait for an answer at a time: no more are begun until some
	// have their answer, or have failed. 0: no bound, but 256 where there is no rate either.
	Outstanding int
	// WarmUp is how long the first step's rate is offered before that step, without being counted.
	WarmUp time.Duration
	// Settle is how long the tester waits for late answers after a step (4 s).
	Settle time.Duration
	// Request and Response are bytes of the two sides of a Session. A request must fit
	// one segment. Response 0 with a request: until the server closes.
	Request, Response int
	// Content is the text of a request in place of filler; its length is the Request.
	Content []byte
	// Hold is how long a Capacity's connections are held before each is sent a request.
	Hold time.Duration
	// Frame is the length of a UDP load's frames in bytes, without the frame check
	// sequence (60).
	Frame int
	// Question is the name that DNS asks for ("www.example.com").
	Question string
	// Sizes are the response sizes of a Mix.
	Sizes []Size
	// Flood, beside another load, fills the rest of the sender's time with SYNs; nil: none.
	Flood *Flood
	// Timeout is how long the tester waits for an answer before it sends the packet again (1 s, RFC 6298), and Tries
	// how often it sends a packet at most (3).
	Timeout time.Duration
	Tries   int
}

// Ladder is an ascending or descending series of rates.
type Ladder struct {
	// From, To and By are rates a second.
	From, To, By float64
	// Connections is the number that a step offers.
	Connections uint64
}

// Search is the binary search of RFC 2544 (section 26.1) and RFC 9411 (section 7).
type Search struct {
	// From and To are the lowest and the highest rate a second.
	From, To float64
	// Loss is the share that may be lost, from 0 to less than 1.
	Loss float64
	// Resolution ends the search, as a share of the rate (0.01).
	Resolution float64
}

// Flood is a flood of SYNs beside a load.
type Flood struct {
	// Sources is the IPv4 prefix from which source addresses are chosen at random.
	Sources netip.Prefix
	// Rate is the number of SYNs a second; 0: as many as possible.
	Rate float64
	// From is the index of the client port that sends the flood.
	From int
}

// Size is a part of a Mix.
type Size struct {
	// Share is the share of this size in all sessions, relative to the shares of the other sizes.
	Share float64
	// Bytes is the length of its responses.
	Bytes int
}
