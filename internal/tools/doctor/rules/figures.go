// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// dropFigure returns the number of drops for a reason as a figure; 0 means none.
func dropFigure(e *evidence.Evidence, reason string) Figure {
	packets, example := e.Dropped(reason)
	f := Figure{Name: reason, Value: float64(packets), Unit: "packets dropped by the kernel"}
	if example != nil {
		f.Note = "such as " + example.String()
	}
	return f
}

// nonZero returns the figures that are not 0.
func nonZero(figures ...Figure) (some []Figure) {
	for _, f := range figures {
		if f.Value != 0 {
			some = append(some, f)
		}
	}
	return some
}

// counted returns the growth of a counter of /proc/net as a figure.
func counted(e *evidence.Evidence, name, unit string) Figure {
	return Figure{Name: name, Value: float64(e.Grew(name)), Unit: unit}
}

// maxFigures limits the figures of the same kind in a finding.
const maxFigures = 5

// bounded keeps the first figures, and adds the number of omitted ones.
func bounded(figures []Figure) []Figure {
	if len(figures) <= maxFigures {
		return figures
	}
	kept := slices.Clone(figures[:maxFigures])
	return append(kept, Figure{Name: "more of these", Value: float64(len(figures) - maxFigures), Unit: "not shown"})
}

// Below these values, an event is normal on any host and not reported.
const (
	fewPackets       = 3
	fewRetransmits   = 10
	retransmitsShare = 0.01
)
