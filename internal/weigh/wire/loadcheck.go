// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Lengths in a frame, in bytes.
const (
	ethernetLength = 14
	ipv4Length     = 20
	tcpLength      = 20
	udpLength      = 8
	// segment is the longest payload, bpf/wire/types.h's WIRE_SEGMENT.
	segment = 1460
	// longest is the longest response: as many bytes as a server port's numbers can count.
	longest = 1<<26 - 2*segment
	// minDatagram is the shortest frame of load udp, with room for number and time.
	minDatagram = 66
)

// Bounds and defaults of loads.
const (
	// MaxRate is the highest rate that can be asked for, a second.
	MaxRate            = 100_000_000
	defaultTimeout     = time.Second
	defaultSettle      = 4 * time.Second
	defaultTries       = 3
	defaultOutstanding = 256
	defaultQuestion    = "www.example.com"
	defaultDuration    = time.Second
	defaultExchange    = 16
)

// withDefaults sets the fields that a load leaves out, and rejects an impossible load.
func (l Load) withDefaults() (Load, error) {
	if l.Timeout == 0 {
		l.Timeout = defaultTimeout
	}
	if l.Settle == 0 {
		l.Settle = defaultSettle
	}
	if l.Tries == 0 {
		l.Tries = defaultTries
		if l.Kind == DNS {
			l.Tries = 1
		}
	}
	if l.Question == "" {
		l.Question = defaultQuestion
	}
	if l.Frame == 0 {
		l.Frame = minDatagram
	}
	if l.Connections == 0 && l.Duration == 0 {
		l.Duration = defaultDuration
	}
	if l.unlimited() && l.Outstanding == 0 && l.answered() {
		l.Outstanding = defaultOutstanding
	}
	if l.Content != nil {
		l.Request = len(l.Content)
	}
	if l.Kind == Capacity {
		if l.Request == 0 {
			l.Request = defaultExchange
		}
		if l.Response == 0 {
			l.Response = defaultExchange
		}
	}
	if l.Kind == Mix && l.Request == 0 {
		l.Request = defaultExchange
	}
	return l, l.check()
}

// Validate rejects an impossible load, whichever tester runs it.
func (l Load) Validate() error {
	_, err := l.withDefaults()
	return err
}

// unlimited reports whether the load has no rate.
func (l Load) unlimited() bool { return l.Rate == 0 && l.Ladder == nil && l.Search == nil }

// answered reports whether the load's packets are answered.
func (l Load) answered() bool { return l.Kind != UDP && l.Kind != SYNFlood }

func (l Load) check() error {
	set := 0
	for _, isSet := range []bool{l.Rate != 0, l.Ladder != nil, l.Search != nil} {
		if isSet {
			set++
		}
	}
	switch {
	case !slices.Contains(Kinds(), l.Kind):
		return wrongLoad("%q; use one of %v", l.Kind, Kinds())
	case set > 1:
		return wrongLoad("a rate, a ladder and a search are three ways to say how much is offered: use one")
	case l.Connections > math.MaxInt64/4:
		return wrongLoad("%d connections", l.Connections)
	case l.Request < 0 || l.Request > segment:
		return wrongLoad("a request of %d bytes; it must fit one segment of at most %d", l.Request, segment)
	case l.Response < 0 || l.Response > longest:
		return wrongLoad("a response of %d bytes; use 0 to %d", l.Response, longest)
	case l.Response > 0 && l.Request == 0 && l.Kind == Session:
		return wrongLoad("a response of %d bytes without a request: say what is asked, --request 1 at least",
			l.Response)
	case l.Outstanding < 0 || l.WarmUp < 0 || l.Settle < 0 || l.Hold < 0 || l.Duration < 0:
		return wrongLoad("durations and bounds cannot be negative")
	case l.Timeout < 2*time.Millisecond || l.Timeout > time.Minute:
		return wrongLoad("a timeout of %v; use 2ms to 1m", l.Timeout)
	case l.Tries < 1 || l.Tries > 8:
		return wrongLoad("%d tries; use 1 to 8", l.Tries)
	case l.Frame < minDatagram || l.Frame > ethernetLength+ipv4Length+tcpLength+segment:
		return wrongLoad("frames of %d bytes; use %d to %d", l.Frame, minDatagram, ethernetLength+ipv4Length+
			tcpLength+segment)
	case l.Kind == Mix && len(l.Sizes) == 0:
		return wrongLoad("a mix needs the sizes of its responses")
	case l.Kind == Capacity && l.Search != nil:
		return wrongLoad("capacity is held at one rate: use a rate, or none")
	}
	if err := l.checkSizes(); err != nil {
		return err
	}
	if err := l.checkFlood(); err != nil {
		return err
	}
	if l.Kind == DNS {
		if _, _, err := query(l.Question); err != nil {
			return err
		}
	}
	return l.checkRates()
}

func (l Load) checkSizes() error {
	for _, size := range l.Sizes {
		if !(size.Share > 0) || math.IsInf(size.Share, 0) || size.Bytes < 1 || size.Bytes > longest {
			return wrongLoad("share %v of %d bytes in a mix; shares are above 0, and sizes 1 to %d", size.Share,
				size.Bytes, longest)
		}
	}
	return nil
}

func (l Load) checkFlood() error {
	f := l.Flood
	switch {
	case l.Kind == SYNFlood && f == nil:
		return wrongLoad("a flood needs the prefix of its sources")
	case f == nil:
		return nil
	case !f.Sources.IsValid() || !f.Sources.Addr().Is4() || f.Sources.Bits() == 0 ||
		f.Sources.Masked().Addr().IsUnspecified():
		return wrongLoad("the flood's sources %v are no IPv4 prefix", f.Sources)
	}
	return checkRate("the flood's rate", f.Rate, 0)
}

func checkRate(what string, rate, least float64) error {
	if !(rate >= least) || rate > MaxRate {
		return wrongLoad("%s is %v a second; use %v to %d", what, rate, least, MaxRate)
	}
	return nil
}

// minRate is one thing in a thousand seconds.
const minRate = 0.001

func (l Load) checkRates() error {
	switch {
	case l.Ladder != nil:
		a := *l.Ladder
		for _, err := range []error{checkRate("the ladder's first rate", a.From, minRate),
			checkRate("its last", a.To, minRate)} {
			if err != nil {
				return err
			}
		}
		if !(a.By > 0) || (a.To-a.From)/a.By > 10000 {
			return wrongLoad("the ladder from %v to %v by %v has no steps, or too many; a step is above 0", a.From,
				a.To, a.By)
		}
	case l.Search != nil:
		s := *l.Search
		if err := checkRate("the highest rate of the search", s.To, minRate); err != nil {
			return err
		}
		if !(s.From >= 0) || s.From >= s.To || !(s.Loss >= 0) || s.Loss >= 1 || !(s.Resolution >= 0) ||
			s.Resolution >= 1 {
			return wrongLoad(
				"a search from %v to %v a second, loss %v, resolution %v: the first rate must be below the second, loss and resolution from 0 to less than 1",
				s.From, s.To, s.Loss, s.Resolution)
		}
		if l.Duration == 0 && l.Connections == 0 {
			return wrongLoad("a search needs a duration or connections for each trial")
		}
	case l.Rate != 0:
		return checkRate("the rate", l.Rate, minRate)
	}
	return nil
}

// fits returns an error if the tester cannot run the load.
func (t *Tester) fits(l Load) error {
	if len(t.clients) == 0 {
		return wrongLoad("%s needs client ports", l.Kind)
	}
	held := l.Connections
	if l.Ladder != nil && l.Ladder.Connections > 0 {
		held = l.Ladder.Connections
	}
	if l.Kind == Capacity && held == 0 {
		return wrongLoad("capacity needs to know how many connections are to be held")
	}
	if l.Kind == Capacity && held > uint64(t.spec.Connections) {
		return wrongLoad(
			"%d connections are to be held, but the tester has room for %d: of its %d addresses and ports (Spec.Connections, --sessions)",
			held, t.spec.Connections, t.spec.tuples())
	}
	if l.Flood != nil {
		if l.Flood.From < 0 || l.Flood.From >= len(t.clients) {
			return wrongLoad("the flood leaves by client port %d; there are %d", l.Flood.From, len(t.clients))
		}
		for _, d := range t.clients {
			if d.port.Sources.Overlaps(l.Flood.Sources) {
				return wrongLoad("the flood's sources %v overlap those of client port %s, %v", l.Flood.Sources, d.port,
					d.port.Sources)
			}
		}
	}
	needs := l.Request + ipv4Length + tcpLength
	if l.Kind == UDP {
		needs = l.Frame - ethernetLength
	}
	for _, d := range t.clients {
		if d.mtu < needs {
			return fmt.Errorf("%w %s: its MTU is %d, too small for packets of %d bytes that the load sends", ErrPort,
				d.port, d.mtu, needs)
		}
	}
	for _, d := range t.servers {
		if answer := min(l.Response, segment) + ipv4Length + tcpLength; d.mtu < answer {
			return fmt.Errorf("%w %s: its MTU is %d, too small for packets of %d bytes that it has to answer with",
				ErrPort, d.port, d.mtu, answer)
		}
	}
	return nil
}
