// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/bpfhost"
	"github.com/jeoul/jeoul/internal/host/drops"
)

// Evidence is all that was seen: two readings of counters, and the drops, announcements and answers in between.
// Findings follow from it alone.
type Evidence struct {
	Seconds float64 `json:"seconds"`
	Before  Reading `json:"before"`
	After   Reading `json:"after"`
	// Drops are the drops in this host's network namespace; Traced says that the kernel's tracepoints were read.
	Drops  []drops.Drop `json:"drops,omitempty"`
	Traced bool         `json:"traced"`
	// Machine says that this is the machine's own namespace, so that counters which
	// the kernel keeps for the whole machine are this host's.
	Machine bool   `json:"machine"`
	Wire    Wire   `json:"wire"`
	Flows   Flows  `json:"flows"`
	Paths   []Path `json:"paths,omitempty"`
	// Lacks are the features of the kernel that programs of a balancer, or of an agent, need, and that it lacks.
	Lacks []bpfhost.Lack `json:"lacks,omitempty"`
}

// Reading is everything that is counted, at one moment. A part that could not be read is nil.
type Reading struct {
	// Protocols are the counters of /proc/net/snmp, netstat and snmp6, by the names
	// that nstat(8) gives them: "TcpExtListenDrops".
	Protocols  map[string]uint64 `json:"protocols,omitempty"`
	CPUs       []CPU             `json:"cpus,omitempty"`
	Links      []Link            `json:"links,omitempty"`
	Neighbours []Neighbour       `json:"neighbours,omitempty"`
	// TableFulls counts neighbours for which there was no room, on the whole machine.
	TableFulls uint64      `json:"neighbour_table_fulls,omitempty"`
	Conntrack  *Conntrack  `json:"conntrack,omitempty"`
	Sockets    *Sockets    `json:"sockets,omitempty"`
	Balancer   *ops.Status `json:"balancer,omitempty"`
}

// grew returns by how much a counter of /proc/net grew.
func (e *Evidence) grew(name string) uint64 {
	return less(e.After.Protocols[name], e.Before.Protocols[name])
}

// less is a counter's growth; 0 if it began anew.
func less(after, before uint64) uint64 {
	if after < before {
		return 0
	}
	return after - before
}

// dropped sums the drops for some reasons, and returns one that has an example.
func (e *Evidence) dropped(reasons ...string) (packets uint64, example *drops.Flow) {
	for _, d := range e.Drops {
		if d.Source != drops.Stack {
			continue
		}
		for _, reason := range reasons {
			if d.Reason != reason {
				continue
			}
			packets += d.Packets
			if example == nil {
				example = d.Example
			}
		}
	}
	return packets, example
}

// droppedOn sums the drops for a reason of packets that came in on an interface.
func (e *Evidence) droppedOn(index int, reason string) (packets uint64) {
	for _, d := range e.Drops {
		if d.Source == drops.Stack && d.Reason == reason && d.Interface == index {
			packets += d.Packets
		}
	}
	return packets
}

// dropFigure describes drops for a reason; a value of 0 says that there were none.
func (e *Evidence) dropFigure(reason string) Figure {
	packets, example := e.dropped(reason)
	f := Figure{Name: reason, Value: float64(packets), Unit: "packets dropped by the kernel"}
	if example != nil {
		f.Note = "such as " + example.String()
	}
	return f
}

// own says whether an address is this host's.
func (r *Reading) own(a netip.Addr) bool {
	for _, l := range r.Links {
		for _, p := range l.Addresses {
			if p.Addr() == a {
				return true
			}
		}
	}
	return false
}

// seen keeps the figures that are not 0.
func seen(figures ...Figure) (some []Figure) {
	for _, f := range figures {
		if f.Value != 0 {
			some = append(some, f)
		}
	}
	return some
}

// counted is a figure of a counter of /proc/net.
func (e *Evidence) counted(name, unit string) Figure {
	return Figure{Name: name, Value: float64(e.grew(name)), Unit: unit}
}

// mostFigures bounds how many figures of the same kind a finding shows.
const mostFigures = 5

// bounded keeps the first of many figures, and says how many more there are.
func bounded(figures []Figure) []Figure {
	if len(figures) <= mostFigures {
		return figures
	}
	kept := slices.Clone(figures[:mostFigures])
	return append(kept, Figure{Name: "more of these", Value: float64(len(figures) - mostFigures), Unit: "not shown"})
}

// rules conclude from the evidence.
var rules = []func(*Evidence) []Finding{
	judgePorts, judgeConntrack, judgeNeighbours, judgeWire, judgeMissingVIP, judgeReversePath, judgeFilter,
	judgePaths, judgeListeners, judgeRoutes, judgeBalancer, judgeFlows, judgeMemory, judgeSoftnet, judgeLinks,
	judgeQdiscs, judgeXDP, judgeChecksums, judgeCores, judgeTimeWait, judgeRetransmits, judgeOtherDrops, judgeKernel,
}

// Findings concludes from the evidence, the worst first.
func (e *Evidence) Findings() []Finding {
	findings := []Finding{}
	for _, rule := range rules {
		findings = append(findings, rule(e)...)
	}
	sortFindings(findings)
	return findings
}
