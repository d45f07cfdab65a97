// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
)

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

// settings are a load's keys besides those of all kinds.
type settings struct {
	DNSPerf *DNSPerf `yaml:"dnsperf"`
}

// Settings reads a load's keys.
func (kind) Settings(read func(into any)) any { return bench.ReadSettings[settings](read) }

// own are a load's settings of its queries; nil if it has none.
func own(l bench.Load) *DNSPerf { return bench.SettingsOf[settings](l).DNSPerf }
