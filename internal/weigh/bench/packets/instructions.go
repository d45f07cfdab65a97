// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// The names of a run whose figures are counts of instructions, and of its load.
const (
	countedSuite = "packets-instructions"
	countedTitle = "How many instructions a packet takes in the data plane"
	countedLoad  = "packet-instructions"
)

// counted are the names that metrics and samples have where the clock counted
// instructions, a nanosecond each.
var counted = map[string]string{
	results.NsPerPacket:  results.InstructionsPerPacket,
	results.NsNetOfEmpty: results.InstructionsNetOfEmpty,
	results.NsEmpty:      results.InstructionsEmpty,
}

// CountInstructions renames the figures of a run that was measured in a machine whose clock advances by a nanosecond
// with each instruction.
func CountInstructions(run *results.Run) {
	run.Suite, run.Title = countedSuite, countedTitle
	run.Environment.Notes = slices.Concat(countingNotes, Notes)
	for i := range run.Trials {
		t := &run.Trials[i]
		t.Load = countedLoad
		t.Metrics, t.Samples = renamed(t.Metrics), renamed(t.Samples)
	}
}

// renamed gives the values of a map the names of counts.
func renamed[V any](values map[string]V) map[string]V {
	if values == nil {
		return nil
	}
	of := make(map[string]V, len(values))
	for name, value := range values {
		if as, ok := counted[name]; ok {
			name = as
		}
		of[name] = value
	}
	return of
}
