// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// Wire is how a load of the kind wire is set up. One of Rate, Ladder and Search sets the offered rate; none of them: as
// much as the tester can.
type Wire struct {
	// Load is the kind of connections.
	Load wire.Kind `yaml:"load"`
	// Rate is a constant rate, of connections (queries, packets) a second.
	Rate   int         `yaml:"rate"`
	Ladder *WireLadder `yaml:"ladder"`
	Search *WireSearch `yaml:"search"`
	// Connections is how many connections a constant rate offers; a load without has a duration.
	Connections int `yaml:"connections"`
	// Outstanding is how many may wait for an answer at a time.
	Outstanding int `yaml:"outstanding"`
	// Bursts is the number of bursts at full speed in a trial, whose result is the fastest one: other work on the
	// machine only slows them down. 0 is one.
	Bursts int `yaml:"bursts"`
	// Pause is the time between two bursts. A machine's slow phases last for seconds, so bursts without pauses may all
	// fall into one.
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

// settings are a load's keys besides those of all kinds.
type settings struct {
	Wire *Wire `yaml:"wire"`
}

// Settings reads a load's keys.
func (kind) Settings(read func(into any)) any { return bench.ReadSettings[settings](read) }

// own are a load's settings of its packets; nil if it has none.
func own(l bench.Load) *Wire { return bench.SettingsOf[settings](l).Wire }

// kind is the experiment of packets: client ports and server ports without sockets,
// and a subject between them.
type kind struct{}
