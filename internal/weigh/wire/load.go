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

// Load is a tester's load. Exactly one of Rate, Ladder and Search says how much a second is offered; all of them empty:
// as much as can be.
type Load struct {
	Kind Kind
	// Rate is a constant rate, of connections, sessions, queries or packets a second.
	Rate float64
	// Ladder is a step for each rate.
	Ladder *Ladder
	// Search looks for the highest rate.
	Search *Search
	// Connections is how many connections (queries, packets) a step offers; a Ladder's
	// goes before. 0: as many as Duration holds.
	Connections uint64
	// Duration is how long a step without Connections offers its rate.
	Duration time.Duration
	// Outstanding is how many connections may wait for an answer at a time: more are
	// not begun until some have it, or have failed. 0: no bound; where no rate is given
	// either, 256.
	Outstanding int
	// WarmUp is how long the first step's rate is offered before, and not counted.
	WarmUp time.Duration
	// Settle is how long late answers are waited for after a step (1 s).
	Settle time.Duration
	// Request and Response are bytes of the two sides of a Session. A request must fit
	// one segment. Response 0 with a request: until the server closes.
	Request, Response int
	// Content is the text of a request in place of filler; its length is the Request.
	Content []byte
	// Hold is how long a Capacity's connections are held before each is asked.
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
	// Timeout is how long an answer is waited for before the packet is sent again (1 s,
	// RFC 6298), and Tries how often a packet is sent at most (3).
	Timeout time.Duration
	Tries   int
}

// Ladder is an ascending or descending series of rates.
type Ladder struct {
	// From, To and By are rates a second.
	From, To, By float64
	// Connections is how many a step offers.
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
	// Sources is the IPv4 prefix that source addresses are taken from by chance.
	Sources netip.Prefix
	// Rate is SYNs a second; 0: as many as can be.
	Rate float64
	// From is the index of the client port that it leaves by.
	From int
}

// Size is a part of a Mix.
type Size struct {
	// Share is how much of all sessions it is, relative to the others.
	Share float64
	// Bytes is the length of its responses.
	Bytes int
}
