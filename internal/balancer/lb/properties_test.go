// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"slices"
	"testing"
)

// TestModeProperties has the modes with each property.
func TestModeProperties(t *testing.T) {
	for name, property := range map[string]struct {
		has  func(Mode) bool
		want []Mode
	}{
		"proxied":             {Mode.Proxied, []Mode{ModeProxy}},
		"tunnels":             {Mode.Tunnels, []Mode{IPIP, GUE}},
		"marks":               {Mode.Marks, []Mode{DSCP}},
		"needs neighbours":    {Mode.NeedsNeighbours, []Mode{L2DSR}},
		"translates":          {Mode.Translates, []Mode{NAT, FullNAT}},
		"replies by endpoint": {Mode.RepliesByEndpoint, []Mode{NAT}},
		"uses the pool":       {Mode.UsesPool, []Mode{FullNAT}},
		"sees replies":        {Mode.SeesReplies, []Mode{NAT, FullNAT, ModeProxy}},
		"remembers":           {Mode.Remembers, []Mode{FullNAT, ModeProxy}},
		"keeps the port":      {Mode.KeepsPort, []Mode{L2DSR, IPIP, GUE, DSCP}},
		"crosses families":    {Mode.CrossesFamilies, []Mode{IPIP, GUE, ModeProxy}},
	} {
		got := slices.DeleteFunc(slices.Clone(Modes), func(m Mode) bool { return !property.has(m) })
		if !slices.Equal(got, property.want) {
			t.Errorf("%s: %v, want %v", name, got, property.want)
		}
	}
	for _, m := range Modes {
		if m.properties() == (modeProperties{}) {
			t.Errorf("%s has no line in the table", m)
		}
	}
}

// TestSchedulerProperties has the schedulers with each property.
func TestSchedulerProperties(t *testing.T) {
	for name, property := range map[string]struct {
		has  func(Scheduler) bool
		want []Scheduler
	}{
		"weighted": {Scheduler.Weighted, []Scheduler{WeightedRoundRobin, WeightedLeastConnections, SourceHash, Maglev,
			TwoChoices}},
		"remembers": {Scheduler.Remembers, []Scheduler{RoundRobin, WeightedRoundRobin, LeastConnections,
			WeightedLeastConnections, TwoChoices}},
		"by load":  {Scheduler.ByLoad, []Scheduler{LeastConnections, WeightedLeastConnections, TwoChoices}},
		"hashes":   {Scheduler.Hashes, []Scheduler{SourceHash, Maglev}},
		"in order": {Scheduler.InOrder, []Scheduler{Failover}},
	} {
		got := slices.DeleteFunc(slices.Clone(Schedulers), func(s Scheduler) bool { return !property.has(s) })
		if !slices.Equal(got, property.want) {
			t.Errorf("%s: %v, want %v", name, got, property.want)
		}
	}
	for _, s := range Schedulers {
		if s.properties() == (schedulerProperties{}) {
			t.Errorf("%s has no line in the table", s)
		}
	}
}
