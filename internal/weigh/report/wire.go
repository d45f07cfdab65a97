// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Parameters of packet-level loads.
const (
	// paramWire says what connections do.
	paramWire = "wire"
	// paramOffered is the rate that was offered, or how it was found.
	paramOffered = "offered"
)

// The subjects that packet-level loads are held against.
const (
	bareSubject     = "bare"
	iptablesSubject = "iptables-nth"
	proxyTCPSubject = "haproxy-tcp"
)

// Words of a packet-level load.
const (
	wireCapacity = "capacity"
	wireSession  = "session"
)

// isWire says whether the load is a packet-level one.
func (s *section) isWire() bool {
	return slices.ContainsFunc(s.trials, func(t results.Trial) bool { return t.Params[paramWire] != nil })
}

// isLadder says whether the load is a series of rates.
func (s *section) isLadder() bool { return slices.Contains(s.Varying, paramOffered) }

// wireRates are the main metrics of packet-level loads, with what they count.
var wireRates = []struct{ metric, title, noun string }{
	{results.SessionsPerSecond, "Sessions/s", "session"},
	{results.ConnectionsPerSecond, "Connections/s", "connection"},
	{results.QueriesPerSecond, "Queries/s", "query"},
	{results.PacketsPerSecond, "Packets/s", "packet"},
}

// wireRate is the section's main metric.
func (s *section) wireRate() (metric, title, noun string) {
	for _, r := range wireRates {
		if s.has(r.metric) {
			return r.metric, r.title, r.noun
		}
	}
	return wireRates[1].metric, wireRates[1].title, wireRates[1].noun
}

// nouns is the plural.
func nouns(noun string) string {
	if noun == "query" {
		return "queries"
	}
	return noun + "s"
}

func wireText(v string) string {
	switch v {
	case "setup":
		return "connection setups"
	case wireSession:
		return "sessions"
	case wireCapacity:
		return "connections that are held"
	case "udp":
		return "UDP datagrams"
	case "dns":
		return "DNS queries"
	case "flood":
		return "SYNs"
	}
	return v
}

func offeredText(v string) string {
	if _, err := strconv.ParseFloat(v, 64); err == nil {
		return v + "/s offered"
	}
	if v == "search" {
		return "the highest rate without loss, searched for"
	}
	return v + " offered"
}

func init() {
	register(rankWire, func(s *section) *loadKind {
		if s.isWire() {
			return wireKind(s)
		}
		return nil
	})
}

// wireKind is how a packet-level load is reported.
func wireKind(s *section) *loadKind {
	kind := &loadKind{sheets: wirePeakSheets, verdict: wirePeakVerdict, figures: wirePeakFigures, reading: wireReading}
	_, _, noun := s.wireRate()
	kind.question = fmt.Sprintf("how many %s a second does each carry, and how evenly does it spread them", nouns(noun))
	switch {
	case s.isLadder():
		kind.sheets, kind.verdict, kind.figures = ladderSheets, ladderVerdict, ladderFigures
	case s.Constant[paramWire].word == wireCapacity:
		kind.question = "how many connections can each hold at a time"
		kind.sheets, kind.verdict, kind.figures = capacitySheets, capacityVerdict, capacityFigures
	case s.hasParam("beside"):
		kind.question = "what does it lose while it is flooded"
		kind.sheets, kind.verdict = wirePeakSheets, besideVerdict
	}
	if s.hasParam("bursts") {
		kind.reading = slices.Concat(wireReading, burstReading)
	}
	return kind
}

// hasParam says whether trials of the section have a parameter.
func (s *section) hasParam(name string) bool {
	return slices.ContainsFunc(s.trials, func(t results.Trial) bool { return t.Params[name] != nil })
}

var wireReading = []paragraph{
	{"Clients and servers without sockets",
		"Both are eBPF programs on the hosts' devices, which speak TCP packet by packet. So neither is the limit, and what is seen is the balancer, " +
			"up to what the tester itself reaches on this machine: that is direct."},
	{"bare", "An XDP program in the balancer's place that rewrites MAC addresses and does nothing else. Its packets take as many hops as those of a balancer whose servers answer directly, " +
		"so it is the most that such a balancer can reach here. A balancer that answers come back through sends every packet over two hops more."},
	{"Offered and established",
		"Offered is the rate that was asked for. Established are handshakes that were completed (sessions: closed by both sides), by the time in which the step's were begun. " +
			"A SYN that was lost is sent again after a second."},
	{"Evenness", "The greatest difference of a server's connections from an equal share. A hash (maglev) draws lots, so its servers differ by chance; round robin need not."},
}

// burstReading is for loads that were put on in bursts.
var burstReading = []paragraph{
	{"Bursts", "A peak is looked for in several bursts, and the fastest counts, of every subject alike: what else a machine does, neighbours on the same processor included, only slows them down. " +
		"samples in the results has all of them."},
}

// evenBound is by how much a server of round robin may differ from its share, in per cent.
const evenBound = 1

// roundRobin says whether a point's balancer takes the servers in turn.
func roundRobin(p *point) bool { return p.Params[paramScheduler].word == "rr" }

// labelled returns the point with the label, nil if there is none.
func (g *group) labelled(label string) *point {
	i := slices.IndexFunc(g.Points, func(p *point) bool { return p.Label == label })
	if i < 0 {
		return nil
	}
	return g.Points[i]
}

// labels lists the labels of all points, in the order of the subjects.
func (s *section) labels() []string {
	var all []string
	for _, subject := range s.Subjects {
		for _, p := range s.points() {
			if p.Subject == subject && !slices.Contains(all, p.Label) {
				all = append(all, p.Label)
			}
		}
	}
	return all
}

// along returns the points with a label, one a group, in the groups' order.
func (s *section) along(label string) []*point {
	var all []*point
	for _, g := range s.Groups {
		if p := g.labelled(label); p != nil {
			all = append(all, p)
		}
	}
	return all
}
