// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// dropFigure describes drops for a reason; a value of 0 says that there were none.
func dropFigure(e *evidence.Evidence, reason string) Figure {
	packets, example := e.Dropped(reason)
	f := Figure{Name: reason, Value: float64(packets), Unit: "packets dropped by the kernel"}
	if example != nil {
		f.Note = "such as " + example.String()
	}
	return f
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
func counted(e *evidence.Evidence, name, unit string) Figure {
	return Figure{Name: name, Value: float64(e.Grew(name)), Unit: unit}
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

// Below these, something that happens now and then anywhere is not worth a word.
const (
	fewPackets       = 3
	fewRetransmits   = 10
	retransmitsShare = 0.01
)
