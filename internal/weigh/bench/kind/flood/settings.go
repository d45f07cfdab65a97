// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/flood"
)

// Flood has the settings of a load of the kind synflood.
type Flood struct {
	// Packets is the kind of the flood's packets.
	Packets flood.Packets `yaml:"packets"`
	// Rate is the number of packets per second; 0 means as many as one core can send.
	Rate int `yaml:"rate"`
	// Beyond is the fate of packets that the balancer sends. "drop" drops the flood behind the balancer, so that only
	// the balancer is measured; with "pass" the servers answer the flood.
	Beyond string `yaml:"beyond"`
	// Every is the interval of requests on each open connection.
	Every time.Duration `yaml:"every"`
	// New is the number of connections that are opened per second besides.
	New int `yaml:"new"`
	// Timeout is how long an answer may take before its connection counts as lost; 0 means 4 s.
	Timeout time.Duration `yaml:"patience"`
}

// settings are the keys that only loads of this kind have.
type settings struct {
	Flood *Flood `yaml:"flood"`
}

// Settings reads a load's keys.
func (kind) Settings(read func(into any)) any { return bench.ReadSettings[settings](read) }

// settingsOf returns a load's settings of its flood; nil if it has none.
func settingsOf(l bench.Load) *Flood { return bench.SettingsOf[settings](l).Flood }

// kind is the experiment of a flood. It runs open connections, and some new ones, through a subject, first undisturbed
// and then while the subject is flooded. Flood and connections have a core each.
type kind struct{}
