// SPDX-License-Identifier: Apache-2.0

package paced

import "github.com/jeoul/jeoul/internal/weigh/bench"

// Search asks for the highest rate at which a latency is kept and nothing fails.
type Search struct {
	// From and To are requests a second, of all clients together: the lowest and the
	// highest that are tried.
	From int `yaml:"from"`
	To   int `yaml:"to"`
	// P99Ms bounds the latency of 99 % of the requests, in milliseconds.
	P99Ms float64 `yaml:"p99_ms"`
	// Within is how near, in per cent, the rate found is to one that does not hold.
	Within float64 `yaml:"within"`
}

// settings are a load's keys besides those of all kinds.
type settings struct {
	// Rate are the rates, in requests a second of all clients, or Search how the highest is to be found; Keep reports
	// whether connections are kept.
	Rate   []int   `yaml:"rate"`
	Search *Search `yaml:"search"`
	Keep   bool    `yaml:"keep"`
}

// Settings reads a load's keys.
func (arrivals) Settings(read func(into any)) any { return bench.ReadSettings[settings](read) }

// own are a load's settings of its requests.
func own(l bench.Load) settings { return bench.SettingsOf[settings](l) }
