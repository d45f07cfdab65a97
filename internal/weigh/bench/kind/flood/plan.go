// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/kind/web"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// A trial takes these times besides its two phases. Requests made in these times are not counted: the laboratory is
// read, and the flood begins.
const (
	floodBefore = 400 * time.Millisecond
	// floodBegins is the time for which the flood runs before its phase begins.
	floodBegins = 300 * time.Millisecond
	floodEnds   = 100 * time.Millisecond
	// floodStarts is how long the flood may take to begin.
	floodStarts = 10 * time.Second
)

// The names of the counted phases.
const (
	phaseQuiet = "quiet"
	phaseFlood = "flood"
)

// The values of Beyond.
const (
	beyondDrop = "drop"
	beyondPass = "pass"
)

// Bounds of a flood's experiment.
const (
	floodMinPhase = 200 * time.Millisecond
	floodMaxPhase = 10 * time.Minute
	floodMaxNew   = 10_000
)

// floodSources are the source addresses of a flood: the half of the range for benchmarking that has no host of a
// laboratory.
var floodSources = netip.MustParsePrefix("198.19.0.0/16")

func (f Flood) beyond() string {
	if f.Beyond == "" {
		return beyondDrop
	}
	return f.Beyond
}

func floodPhases(each time.Duration) []load.Phase {
	return []load.Phase{{Time: floodBefore}, {Name: phaseQuiet, Time: each}, {Time: floodBegins},
		{Name: phaseFlood, Time: each}, {Time: floodEnds}}
}

// floodTime returns how long a flood lasts at most.
func floodTime(each time.Duration) time.Duration { return floodStarts + floodBegins + 2*each }

// floodTarget returns the address of the service.
func floodTarget(l *lab.Lab) netip.AddrPort { return netip.AddrPortFrom(l.VIP4, web.Port) }
