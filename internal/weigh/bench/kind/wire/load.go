// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// The sources of a packet-level load's connections. Client number i (from 0) has the prefix i+1 of the half of the
// range for benchmarking that has no host. A flood's sources are in the upper half of that half.
const (
	wireSourceBits = 24
	wireAddresses  = 254
)

// Words that replace a rate if there is none.
const (
	offeredSearch = "search"
	offeredMost   = "as much as possible"
)

// Parameters of a packet-level load's trials, also for the report.
const (
	paramWire    = "wire"
	paramOffered = "offered"
	paramSteps   = "steps"
)

// Upper bounds of the connections and of the packets that a core makes per second.
const (
	wireMostSetups  = 1_500_000
	wireMostPackets = 5_000_000
)

var wireFloodSources = netip.MustParsePrefix("198.19.128.0/17")

func wireSources(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, byte(i + 1), 0}), wireSourceBits)
}

// udp reports whether the load sends datagrams.
func (w Wire) udp() bool { return w.Load == wire.UDP || w.Load == wire.DNS }

// connections returns the number of connections that a step offers; 0 if its duration decides.
func (w Wire) connections() int {
	if w.Ladder != nil {
		return w.Ladder.Connections
	}
	return w.Connections
}

// wireRate returns the name of a trial's main metric.
func wireRate(t results.Trial) string {
	kind, _ := t.Params[paramWire].(string)
	return wire.Kind(kind).Metric()
}

// flowsOfStep returns the number of connections that the tester must distinguish in a step of the given duration.
func (w Wire) flowsOfStep(long time.Duration) int {
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

// maxFlows returns the maximum number of flows of a form's loads, so that one tester serves all of them.
func maxFlows(f bench.Form) (most int) {
	for _, l := range f.Loads {
		most = max(most, settingsOf(l).flowsOfStep(l.Duration))
	}
	return most
}

// sets reports whether the load sets up connections.
func (w Wire) sets() bool { return !w.udp() && w.Load != wire.SYNFlood }

// load returns the tester's load, without the warm-up.
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

// first returns the first rate of a load; 0 means as much as possible.
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
func direct(t bench.Trial) bool { return t.Subject.Name() == subjectDirect }

// subjectDirect is the name of the subject without a balancer.
const subjectDirect = "direct"
