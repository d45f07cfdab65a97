// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/flood"
)

// Flood is how a load of the kind synflood is set up.
type Flood struct {
	// Packets is the kind of the flood's packets.
	Packets flood.Packets `yaml:"packets"`
	// Rate is how many packets are sent a second; 0: as many as one core can.
	Rate int `yaml:"rate"`
	// Beyond is the fate of packets that the balancer sends: "drop" drops the flood behind it, so that only the
	// balancer is weighed; with "pass" the servers answer it.
	Beyond string `yaml:"beyond"`
	// Every is how often each of the open connections asks.
	Every time.Duration `yaml:"every"`
	// New is how many connections are opened each second besides.
	New int `yaml:"new"`
	// Timeout is how long an answer may take before its connection counts as lost; 0: 4 s.
	Timeout time.Duration `yaml:"patience"`
}

// settings are a load's keys besides those of all kinds.
type settings struct {
	Flood *Flood `yaml:"flood"`
}

// Settings reads a load's keys.
func (kind) Settings(read func(into any)) any { return bench.ReadSettings[settings](read) }

// own are a load's settings of its flood; nil if it has none.
func own(l bench.Load) *Flood { return bench.SettingsOf[settings](l).Flood }

// kind is the experiment of a flood: connections that are open, and some new
// ones, through a subject; first undisturbed, then while it is flooded. Flood and
// connections have a core each.
type kind struct{}
