// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
)

// DNSPerf has the settings of a load of the kind dnsperf. Every combination of its lists is measured.
type DNSPerf struct {
	// Clients are the numbers of sockets from which each generator sends queries (dnsperf -c).
	Clients []int `yaml:"clients"`
	// Threads is the number of threads of each generator (-T; 0 is its default). Rate is the maximum number of queries
	// that it sends per second (-Q; 0 means as many as are answered).
	Threads int `yaml:"threads"`
	Rate    int `yaml:"rate"`
	// Timeout is how long a query may take before it counts as lost (-t; 0 is its default).
	Timeout time.Duration `yaml:"timeout"`
	// Generators are the numbers of dnsperf processes that run at once, each on a client of the laboratory.
	Generators []int `yaml:"generators"`
	// Backends are the numbers of the laboratory's servers that serve.
	Backends []int `yaml:"backends"`
}

// settings are the keys that only loads of this kind have.
type settings struct {
	DNSPerf *DNSPerf `yaml:"dnsperf"`
}

// Settings reads a load's keys.
func (kind) Settings(read func(into any)) any { return bench.ReadSettings[settings](read) }

// settingsOf returns a load's settings of its queries; nil if it has none.
func settingsOf(l bench.Load) *DNSPerf { return bench.SettingsOf[settings](l).DNSPerf }
