// SPDX-License-Identifier: Apache-2.0

package change

import (
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
)

// Changes has a suite's settings of a load of kind change, besides those that all have.
type Changes struct {
	// Events are the names of those that happen, in the order of docs/weigh/change.md; empty: all.
	Events []string `yaml:"events"`
	// Flaps is how often the flapping backend goes and comes, Reloads how often the
	// configuration is read again without change.
	Flaps   int `yaml:"flaps"`
	Reloads int `yaml:"reloads"`
	// Pace is how often each connection is asked over; 0: every second. Timeout is how long an
	// answer may take before a connection counts as broken; 0: 5 s.
	Pace    time.Duration `yaml:"pace"`
	Timeout time.Duration `yaml:"patience"`
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

// ChangeCheck has a suite's settings of the health checks of subjects that have them.
type ChangeCheck struct {
	Interval time.Duration `yaml:"interval"`
	Timeout  time.Duration `yaml:"timeout"`
	Fall     int           `yaml:"fall"`
	Rise     int           `yaml:"rise"`
}

// settings are a load's keys besides those of all kinds.
type settings struct {
	Changes Changes `yaml:"changes"`
}

// Settings reads a load's keys.
func (kind) Settings(read func(into any)) any { return bench.ReadSettings[settings](read) }

// own are a load's settings of its changes.
func own(l bench.Load) Changes { return bench.SettingsOf[settings](l).Changes }
