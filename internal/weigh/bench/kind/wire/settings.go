// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// Wire has the settings of a load of the kind wire. One of Rate, Ladder and Search sets the offered rate; without them,
// the tester offers as much as it can.
type Wire struct {
	// Load is the kind of connections.
	Load wire.Kind `yaml:"load"`
	// Rate is a constant rate, in connections (queries, packets) per second.
	Rate   int         `yaml:"rate"`
	Ladder *WireLadder `yaml:"ladder"`
	Search *WireSearch `yaml:"search"`
	// Connections is the number of connections that a constant rate offers; a load without it has a duration.
	Connections int `yaml:"connections"`
	// Outstanding is how many connections may wait for an answer at a time.
	Outstanding int `yaml:"outstanding"`
	// Bursts is the number of bursts at full speed in a trial. The result is the fastest burst: other work on the
	// machine only slows bursts down. 0 means one burst.
	Bursts int `yaml:"bursts"`
	// Pause is the time between two bursts. A machine's slow phases last for seconds, so that bursts without pauses may
	// all fall into one phase.
	Pause time.Duration `yaml:"pause"`
	// WarmUp is how long the first rate is offered before counting begins. Settle is how long late answers are awaited
	// after each step, and Hold how long a capacity's connections are held. Timeout and Tries are when, and how often,
	// a packet is sent again.
	WarmUp  time.Duration `yaml:"warm_up"`
	Settle  time.Duration `yaml:"settle"`
	Hold    time.Duration `yaml:"hold"`
	Timeout time.Duration `yaml:"timeout"`
	Tries   int           `yaml:"tries"`
	// Request and Response are sizes in bytes.
	Request  int `yaml:"request"`
	Response int `yaml:"response"`
	// Frame is the size of a frame in bytes, for the load udp. Question is a name, for the load dns.
	Frame    int    `yaml:"frame"`
	Question string `yaml:"question"`
	// SYNFlood is a flood of SYNs beside the load. Its rate is in SYNs per second; 0 means as many as the tester can
	// send besides.
	SYNFlood *WireFlood `yaml:"syn_flood"`
}

// WireLadder is a step for each rate from From to To, with a fixed number of connections in each step.
type WireLadder struct {
	From        int `yaml:"from"`
	To          int `yaml:"to"`
	Step        int `yaml:"step"`
	Connections int `yaml:"connections"`
}

// WireSearch searches the highest rate at which the share of losses is at most Loss.
type WireSearch struct {
	From int     `yaml:"from"`
	To   int     `yaml:"to"`
	Loss float64 `yaml:"loss"`
	// Resolution ends the search; it is a share of the rate.
	Resolution float64 `yaml:"resolution"`
}

// WireFlood is a flood beside a load.
type WireFlood struct {
	Rate int `yaml:"rate"`
}

// settings are the keys that only loads of this kind have.
type settings struct {
	Wire *Wire `yaml:"wire"`
}

// Settings reads a load's keys.
func (kind) Settings(read func(into any)) any { return bench.ReadSettings[settings](read) }

// settingsOf returns a load's settings of its packets; nil if it has none.
func settingsOf(l bench.Load) *Wire { return bench.SettingsOf[settings](l).Wire }

// kind is the experiment of packets: client ports and server ports without sockets, and a subject between them.
type kind struct{}
