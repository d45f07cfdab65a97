// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"slices"

	"github.com/jeoul/jeoul/internal/host/drops"
)

// Grew returns the growth of a counter of /proc/net.
func (e *Evidence) Grew(name string) uint64 {
	return Growth(e.After.Protocols[name], e.Before.Protocols[name])
}

// Growth returns a counter's growth, 0 if the counter was reset.
func Growth(after, before uint64) uint64 {
	if after < before {
		return 0
	}
	return after - before
}

// Dropped returns the number of drops for the reasons, and the example of one of them.
func (e *Evidence) Dropped(reasons ...string) (packets uint64, example *drops.Flow) {
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

// DroppedOn returns the number of drops for a reason among packets that arrived on an interface.
func (e *Evidence) DroppedOn(index int, reason string) (packets uint64) {
	for _, d := range e.Drops {
		if d.Source == drops.Stack && d.Reason == reason && d.Interface == index {
			packets += d.Packets
		}
	}
	return packets
}

// CoreWork returns the cores' work between the two readings. It omits cores that came or went in between.
func (e *Evidence) CoreWork() (cpus []CPU) {
	for _, after := range e.After.CPUs {
		i := slices.IndexFunc(e.Before.CPUs, func(c CPU) bool { return c.Index == after.Index })
		if i < 0 {
			continue
		}
		before := e.Before.CPUs[i]
		cpus = append(cpus, CPU{Index: after.Index, Processed: after.Processed - before.Processed,
			Dropped: after.Dropped - before.Dropped, Squeezed: after.Squeezed - before.Squeezed,
			Softirq: after.Softirq - before.Softirq, Total: after.Total - before.Total})
	}
	return cpus
}

// WatchedLinks returns the watched interfaces, each before and after.
func (e *Evidence) WatchedLinks() (pairs [][2]Link) {
	for _, after := range e.After.Links {
		for _, before := range e.Before.Links {
			if after.Watched && before.Watched && after.Index == before.Index {
				pairs = append(pairs, [2]Link{before, after})
			}
		}
	}
	return pairs
}

// Median sorts the values and returns the median, the upper one of two middle values, or 0 without values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}
