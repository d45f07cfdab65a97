// SPDX-License-Identifier: Apache-2.0

package change

import (
	"cmp"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Changes has a suite's settings of a load of kind change, without the settings of all kinds.
type Changes struct {
	// Events are the names of the events that happen, in the order of docs/weigh/change.md; empty means all.
	Events []string `yaml:"events"`
	// Flaps is the number of removals and additions of the flapping backend, Reloads the number of reloads without a
	// change.
	Flaps   int `yaml:"flaps"`
	Reloads int `yaml:"reloads"`
	// Pace is the interval of requests on each connection; 0 means 1 s. Timeout bounds the wait for an answer, after
	// which a connection counts as broken; 0 means 5 s.
	Pace    time.Duration `yaml:"pace"`
	Timeout time.Duration `yaml:"patience"`
	// NewPerSecond is the rate of connections that are opened, used for one request and closed. QueriesPerSecond is the
	// rate of UDP queries. Both are rates of all clients together, during the whole trial.
	NewPerSecond     int `yaml:"new_per_second"`
	QueriesPerSecond int `yaml:"queries_per_second"`
	// Ports is the number of local ports from which each client opens a connection before and after a backend leaves,
	// which shows the flows that move.
	Ports int `yaml:"ports"`
	// Reused is the number of local ports that each client uses repeatedly, and Lap the time between two connections
	// from the same port.
	Reused int           `yaml:"reused"`
	Lap    time.Duration `yaml:"lap"`
	// Silence is how long a backend's host is silent behind a subject that does not notice.
	Silence time.Duration `yaml:"silence"`
	// Check has the settings of the subjects' health checks. Fault is how long a backend's service is gone, or hangs.
	Check ChangeCheck   `yaml:"check"`
	Fault time.Duration `yaml:"fault"`
	// Restarts and Kills are how often the subject's process is restarted and killed. Dead is the time without a
	// process after a kill.
	Restarts int `yaml:"restarts"`
	// Upgrades is the number of takeovers between two builds, which alternate.
	Upgrades int           `yaml:"upgrades"`
	Kills    int           `yaml:"kills"`
	Dead     time.Duration `yaml:"dead"`
	// Quiet is how long nothing is changed. NumberedPerSecond is the rate of numbered datagrams that are sent besides;
	// 0 means none.
	Quiet time.Duration `yaml:"quiet"`
	// Proxies is the number of servers, from the first, that are proxies in front of the others and the subject's
	// backends. 0 means none.
	Proxies           int `yaml:"proxies"`
	NumberedPerSecond int `yaml:"numbered_per_second"`
}

// ChangeCheck has a suite's settings of the subjects' health checks.
type ChangeCheck struct {
	Interval time.Duration `yaml:"interval"`
	Timeout  time.Duration `yaml:"timeout"`
	Fall     int           `yaml:"fall"`
	Rise     int           `yaml:"rise"`
}

// settings are the keys that only loads of this kind have.
type settings struct {
	Changes Changes `yaml:"changes"`
}

// Settings reads a load's keys.
func (kind) Settings(read func(into any)) any { return bench.ReadSettings[settings](read) }

// settingsOf returns a load's settings of its changes.
func settingsOf(l bench.Load) Changes { return bench.SettingsOf[settings](l).Changes }

// kind holds connections through a balancer while its backends change, and counts losses event by event.
type kind struct{}

// kept has the values that are kept for a laboratory.
type kept struct{ live *live.Servers }

// Live returns the servers of a run's laboratory.
func Live(r *bench.Runner) *live.Servers { return bench.LabState[kept](r, "live servers").live }

// The load's other settings.
const (
	changePort = 7000
	// checkPort is where the same servers answer health checks.
	checkPort = 7001
	// usualPace is the default of Pace, and UsualTimeout that of Timeout: several retransmissions of TCP.
	usualPace    = time.Second
	UsualTimeout = 5 * time.Second
	// udpFlowsEach is the number of UDP sockets that each client keeps. Each socket sends a query every udpPace, and
	// its answer may take udpTimeout.
	udpFlowsEach = 20
	udpPace      = 500 * time.Millisecond
	udpTimeout   = time.Second
	// firstPort is the first of the ports of [Changes.Ports].
	firstPort = 20_000
	// maxPorts is the number of ports from firstPort on.
	maxPorts = 40_000
	// firstReused is the first of the ports of [Changes.Reused]. maxReused is the number of ports up to those that the
	// kernel assigns (see package lab): no other socket uses them.
	firstReused = 300
	maxReused   = 700
	// One in reusedUDP of these ports also sends UDP queries.
	reusedUDP = 10
	// minTime and maxTime bound the times of a suite's changes.
	minTime = 100 * time.Millisecond
	maxTime = time.Minute
	// changeServers is the least number of servers for the events: one each that is added, removed, drained,
	// reweighted, flaps and falls silent.
	changeServers = 6
	// newShare is the divisor of the spare capacity for new connections: a subject must carry the held connections and
	// a 1/newShare more.
	newShare = 20
)

// pace returns the interval of requests on each connection.
func (c Changes) pace() time.Duration { return cmp.Or(c.Pace, usualPace) }

// timeout returns how long an answer may take.
func (c Changes) timeout() time.Duration { return cmp.Or(c.Timeout, UsualTimeout) }

// backends returns the subject's backends: the proxies, or all servers if there are no proxies.
func (c Changes) backends(servers []*lab.Host) []*lab.Host {
	if c.Proxies > 0 {
		return servers[:c.Proxies]
	}
	return servers
}

// carriesUDP reports whether clients also send UDP queries. Proxies carry none.
func carriesUDP(p bench.Point) bool {
	return p.Subject.Can().UDP && settingsOf(p.By).Proxies == 0
}

// maxSamples is the maximum number of broken connections that a note names.
const maxSamples = 5
