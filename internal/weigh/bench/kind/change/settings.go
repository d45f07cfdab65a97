// SPDX-License-Identifier: Apache-2.0

package change

import (
	"cmp"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Changes has a suite's settings of a load of kind change, besides those that all have.
type Changes struct {
	// Events are the names of those that happen, in the order of docs/weigh/change.md; empty: all.
	Events []string `yaml:"events"`
	// Flaps is the number of removals and additions of the flapping backend, Reloads the number of reloads without a
	// change.
	Flaps   int `yaml:"flaps"`
	Reloads int `yaml:"reloads"`
	// Pace is the interval of requests on each connection; 0: a second. Timeout bounds the wait for an answer, after
	// which a connection counts as broken; 0: 5 s.
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
	// Upgrades is the number of takeovers between two builds, in turns.
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

// kind holds connections through a balancer while its backends change, and counts losses event by event.
type kind struct{}

// kept has the values kept of a laboratory.
type kept struct{ live *live.Servers }

// Live are the servers of a run's laboratory.
func Live(r *bench.Runner) *live.Servers { return bench.KeptOf[kept](r, "live servers").live }

// The load's other settings.
const (
	changePort = 7000
	// checkPort is where the same servers answer health checks.
	checkPort = 7001
	// usualPace is the default of Pace, and UsualTimeout that of Timeout: several retransmissions of TCP.
	usualPace    = time.Second
	UsualTimeout = 5 * time.Second
	// udpFlowsEach are a client's UDP sockets that are kept; each asks every
	// udpPace, and an answer may take as long as udpTimeout.
	udpFlowsEach = 20
	udpPace      = 500 * time.Millisecond
	udpTimeout   = time.Second
	// firstPort is the first of the ports of [Changes.Ports].
	firstPort = 20_000
	// maxPorts are those behind it.
	maxPorts = 40_000
	// firstReused is the first of the ports of [Changes.Reused], and maxReused how many
	// there are up to those that the kernel gives (see package lab): no other socket
	// takes them.
	firstReused = 300
	maxReused   = 700
	// reusedUDP is one in how many of them makes queries by UDP, too.
	reusedUDP = 10
	// leastTime and mostTime bound the times of a suite's changes.
	leastTime = 100 * time.Millisecond
	mostTime  = time.Minute
	// changeServers is the least number of servers for the events: one each that is added, removed, drained,
	// reweighted, flaps and falls silent.
	changeServers = 6
	// newShare is the part that a subject must be able to carry beyond the connections that are held, for new ones, one
	// in so many.
	newShare = 20
)

// pace is how often each connection is asked over.
func (c Changes) pace() time.Duration { return cmp.Or(c.Pace, usualPace) }

// timeout is how long an answer may take.
func (c Changes) timeout() time.Duration { return cmp.Or(c.Timeout, UsualTimeout) }

// backends are the subject's backends: the proxies, or all servers where there is none.
func (c Changes) backends(servers []*lab.Host) []*lab.Host {
	if c.Proxies > 0 {
		return servers[:c.Proxies]
	}
	return servers
}

// carriesUDP reports whether UDP is asked by: proxies carry none.
func carriesUDP(p bench.Point) bool {
	return p.Subject.Can().UDP && own(p.By).Proxies == 0
}

// maxSamples bounds the broken connections that are named in a note.
const maxSamples = 5
