// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// Where the connections of a packet-level load come from: client number i (from 0) has
// the prefix i+1 of the half of the range for benchmarking that no host is in, and a
// flood's sources are of its upper half, which no host is in.
const (
	wireSourceBits = 24
	wireAddresses  = 254
)

// Words in the place of a rate where there is none.
const (
	offeredSearch = "search"
	offeredMost   = "as much as possible"
)

// The parameters of a packet-level load's trials, for the report too.
const (
	paramWire    = "wire"
	paramOffered = "offered"
	paramSteps   = "steps"
)

// More connections, and packets, than a core makes a second.
const (
	wireMostSetups  = 1_500_000
	wireMostPackets = 5_000_000
)

var wireFloodSources = netip.MustParsePrefix("198.19.128.0/17")

func wireSources(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, byte(i + 1), 0}), wireSourceBits)
}

// udp reports whether the load is one of datagrams.
func (w Wire) udp() bool { return w.Load == wire.UDP || w.Load == wire.DNS }

// connections is how many a step offers, 0 where time decides.
func (w Wire) connections() int {
	if w.Ladder != nil {
		return w.Ladder.Connections
	}
	return w.Connections
}

// wireRate is the name of a trial's main metric.
func wireRate(t results.Trial) string {
	kind, _ := t.Params[paramWire].(string)
	return wire.Kind(kind).Metric()
}

// room is how many connections the tester must tell apart in a step of so long.
func (w Wire) room(long time.Duration) int {
	if n := w.connections(); n > 0 {
		return n
	}
	rate := wireMostSetups
	if !w.sets() {
		rate = wireMostPackets
	}
	switch {
	case w.Search != nil:
		rate = w.Search.To
	case w.Rate > 0:
		rate = w.Rate
	}
	return int(min(float64(rate)*(long+w.WarmUp).Seconds()+1, wire.MaxConnections))
}

// wireRoom is the number of flows of the load of a form that needs most: so a tester does for all.
func wireRoom(f bench.Form) (most int) {
	for _, l := range f.Loads {
		most = max(most, own(l).room(l.Duration))
	}
	return most
}

// sets reports whether the load sets connections up.
func (w Wire) sets() bool { return !w.udp() && w.Load != wire.SYNFlood }

// load is the tester's load, without warming up.
func (w Wire) load(long time.Duration) wire.Load {
	load := wire.Load{
		Kind: w.Load, Rate: float64(w.Rate), Connections: uint64(w.Connections), Duration: long,
		Outstanding: w.Outstanding,
		Settle:      w.Settle, Hold: w.Hold, Timeout: w.Timeout, Tries: w.Tries, Request: w.Request,
		Response: w.Response,
		Frame:    w.Frame, Question: w.Question,
	}
	if l := w.Ladder; l != nil {
		load.Ladder = &wire.Ladder{From: float64(l.From), To: float64(l.To), By: float64(l.Step),
			Connections: uint64(l.Connections)}
	}
	if s := w.Search; s != nil {
		load.Search = &wire.Search{From: float64(s.From), To: float64(s.To), Loss: s.Loss, Resolution: s.Resolution}
	}
	if f := w.SYNFlood; f != nil {
		load.Flood = &wire.Flood{Sources: wireFloodSources, Rate: float64(f.Rate)}
	}
	return load
}

// first is the rate that a load begins with; 0 is as much as can be.
func (w Wire) first() float64 {
	switch {
	case w.Ladder != nil:
		return float64(w.Ladder.From)
	case w.Search != nil:
		return float64(w.Search.From)
	}
	return float64(w.Rate)
}

// direct reports whether there is no balancer.
func direct(t bench.Trial) bool { return t.Subject.Name() == "direct" }
