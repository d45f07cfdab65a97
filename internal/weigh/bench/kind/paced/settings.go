// SPDX-License-Identifier: Apache-2.0

package paced

import "github.com/jeoul/jeoul/internal/weigh/bench"

// Search has the settings of a search for the highest rate that keeps a latency without failures.
type Search struct {
	// From and To are the lowest and the highest rate to try, in requests per second of all clients together.
	From int `yaml:"from"`
	To   int `yaml:"to"`
	// P99Ms bounds the latency of 99 % of the requests, in milliseconds.
	P99Ms float64 `yaml:"p99_ms"`
	// Within ends the search: the distance between the rate found and one that failed, in per cent.
	Within float64 `yaml:"within"`
}

// settings are the keys that only loads of this kind have.
type settings struct {
	// Rate lists the rates, in requests per second of all clients. Search, instead, searches the highest rate. Keep
	// means that clients keep their connections.
	Rate   []int   `yaml:"rate"`
	Search *Search `yaml:"search"`
	Keep   bool    `yaml:"keep"`
}

// Settings reads a load's keys.
func (arrivals) Settings(read func(into any)) any { return bench.ReadSettings[settings](read) }

// settingsOf returns a load's settings of its requests.
func settingsOf(l bench.Load) settings { return bench.SettingsOf[settings](l) }
