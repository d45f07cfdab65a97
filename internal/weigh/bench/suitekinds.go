// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"time"

	"github.com/jeoul/jeoul/internal/weigh/flood"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// Changes is what a suite says of a load of kind change, besides what all have.
type Changes struct {
	// Events are the names of those that happen, in the order of docs/weigh/change.md; empty: all.
	Events []string `yaml:"events"`
	// Flaps is how often the flapping backend goes and comes, Reloads how often the
	// configuration is read again without change.
	Flaps   int `yaml:"flaps"`
	Reloads int `yaml:"reloads"`
	// Pace is how often each connection is asked over; 0: every second. Patience is how long an
	// answer may take before a connection counts as broken; 0: 5 s.
	Pace     time.Duration `yaml:"pace"`
	Patience time.Duration `yaml:"patience"`
	// NewPerSecond are connections that are opened, asked over once and closed all
	// the while, QueriesPerSecond UDP queries, of all clients together.
	NewPerSecond     int `yaml:"new_per_second"`
	QueriesPerSecond int `yaml:"queries_per_second"`
	// Ports is from how many local ports of each client a connection is opened
	// before and after a backend leaves, to see which flows move.
	Ports int `yaml:"ports"`
	// Reused is how many local ports each client uses again and again, and Lap the time
	// between the connections of one of them.
	Reused int           `yaml:"reused"`
	Lap    time.Duration `yaml:"lap"`
	// Silence is how long a backend's host is silent behind a subject that does not notice.
	Silence time.Duration `yaml:"silence"`
	// Check is how subjects with health checks ask, and Fault how long a backend's service is
	// gone, or hangs.
	Check ChangeCheck   `yaml:"check"`
	Fault time.Duration `yaml:"fault"`
	// Restarts and Kills are how often the subject's process is restarted, and killed, and
	// Dead how long there is none after a kill.
	Restarts int `yaml:"restarts"`
	// Upgrades is how often one of two builds takes over from the other, by turns.
	Upgrades int           `yaml:"upgrades"`
	Kills    int           `yaml:"kills"`
	Dead     time.Duration `yaml:"dead"`
	// Quiet is how long nothing is changed, and NumberedPerSecond how many numbered datagrams
	// are sent besides; 0: none.
	Quiet time.Duration `yaml:"quiet"`
	// Proxies are how many of the servers, the first ones, are proxies before the others: they are
	// the subject's backends then. 0: none is.
	Proxies           int `yaml:"proxies"`
	NumberedPerSecond int `yaml:"numbered_per_second"`
}

// ChangeCheck is what a suite says of the health checks of subjects that have them.
type ChangeCheck struct {
	Interval time.Duration `yaml:"interval"`
	Timeout  time.Duration `yaml:"timeout"`
	Fall     int           `yaml:"fall"`
	Rise     int           `yaml:"rise"`
}

// Flood is how a load of the kind synflood is set up.
type Flood struct {
	// Packets says what the flood is made of.
	Packets flood.Packets `yaml:"packets"`
	// Rate is how many packets are sent a second; 0: as many as one core can.
	Rate int `yaml:"rate"`
	// Beyond says what becomes of what the balancer sends: "drop" drops the flood
	// behind it, so that only the balancer is weighed; with "pass" the servers
	// answer it.
	Beyond string `yaml:"beyond"`
	// Every is how often each of the open connections asks.
	Every time.Duration `yaml:"every"`
	// New is how many connections are opened each second besides.
	New int `yaml:"new"`
	// Patience is how long an answer may take before its connection counts as lost; 0: 4 s.
	Patience time.Duration `yaml:"patience"`
}

// DNSPerf is how a load of the kind dnsperf is set up. Every combination of its
// lists is measured.
type DNSPerf struct {
	// Clients are from how many sockets each generator asks (dnsperf -c).
	Clients []int `yaml:"clients"`
	// Threads are each generator's (-T; 0 is its default) and Rate the most queries a
	// second that it sends (-Q; 0 is as many as are answered).
	Threads int `yaml:"threads"`
	Rate    int `yaml:"rate"`
	// Timeout is after how long a query counts as lost (-t; 0 is its default).
	Timeout time.Duration `yaml:"timeout"`
	// Generators are how many dnsperf run at once, a client of the laboratory each.
	Generators []int `yaml:"generators"`
	// Backends are how many of the laboratory's servers are asked.
	Backends []int `yaml:"backends"`
}

// Search asks for the highest rate at which a latency is kept and nothing fails.
type Search struct {
	// From and To are requests a second, of all clients together: the lowest and the
	// highest that are tried.
	From int `yaml:"from"`
	To   int `yaml:"to"`
	// P99Ms is what 99 % of the requests may take, in milliseconds.
	P99Ms float64 `yaml:"p99_ms"`
	// Within is how near, in per cent, the rate found is to one that does not hold.
	Within float64 `yaml:"within"`
}

// Wire is how a load of the kind wire is set up. One of Rate, Ladder and Search says what
// is offered; none of them: as much as the tester can.
type Wire struct {
	// Load says what connections do.
	Load wire.Kind `yaml:"load"`
	// Rate is a constant rate, of connections (queries, packets) a second.
	Rate   int         `yaml:"rate"`
	Ladder *WireLadder `yaml:"ladder"`
	Search *WireSearch `yaml:"search"`
	// Connections are those that a constant rate offers; a load without has a duration.
	Connections int `yaml:"connections"`
	// Outstanding is how many may wait for an answer at a time.
	Outstanding int `yaml:"outstanding"`
	// Bursts is how often as much as possible is offered in a trial, whose result is the
	// fastest burst: what else a machine does can only slow one down. 0 is once.
	Bursts int `yaml:"bursts"`
	// Pause is how long nothing is sent between two bursts. A machine's slow phases last for
	// seconds: bursts that lie in one of them all say nothing of the fast ones.
	Pause time.Duration `yaml:"pause"`
	// WarmUp is how long the first rate is offered before, uncounted; Settle how long late
	// answers are waited for after each step; Hold how long a capacity's connections are
	// held; Timeout and Tries are when, and how often, a packet is sent again.
	WarmUp  time.Duration `yaml:"warm_up"`
	Settle  time.Duration `yaml:"settle"`
	Hold    time.Duration `yaml:"hold"`
	Timeout time.Duration `yaml:"timeout"`
	Tries   int           `yaml:"tries"`
	// Request and Response are bytes.
	Request  int `yaml:"request"`
	Response int `yaml:"response"`
	// Frame is bytes, of the load udp; Question a name, of dns.
	Frame    int    `yaml:"frame"`
	Question string `yaml:"question"`
	// SYNFlood, beside the load, is a flood of SYNs; its rate is SYNs a second, 0: as many
	// as the tester can besides.
	SYNFlood *WireFlood `yaml:"syn_flood"`
}

// WireLadder is a step for each rate from From up to To, and so many connections in each.
type WireLadder struct {
	From        int `yaml:"from"`
	To          int `yaml:"to"`
	Step        int `yaml:"step"`
	Connections int `yaml:"connections"`
}

// WireSearch looks for the highest rate at which no more than Loss, a share, is lost.
type WireSearch struct {
	From int     `yaml:"from"`
	To   int     `yaml:"to"`
	Loss float64 `yaml:"loss"`
	// Resolution ends the search, as a share of the rate.
	Resolution float64 `yaml:"resolution"`
}

// WireFlood is a flood beside a load.
type WireFlood struct {
	Rate int `yaml:"rate"`
}
