// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Names of a run whose figures are counts of instructions, and of its load.
const (
	countedSuite = "packets-instructions"
	countedTitle = "How many instructions a packet takes in the data plane"
	countedLoad  = "packet-instructions"
)

// counted maps names of metrics and samples to those for a clock that counts instructions, one per nanosecond.
var counted = map[string]string{
	results.NsPerPacket:  results.InstructionsPerPacket,
	results.NsNetOfEmpty: results.InstructionsNetOfEmpty,
	results.NsEmpty:      results.InstructionsEmpty,
}

// CountInstructions renames the figures of a run in a machine whose clock advances by a nanosecond with each
// instruction.
func CountInstructions(run *results.Run) {
	run.Suite, run.Title = countedSuite, countedTitle
	run.Environment.Notes = slices.Concat(countingNotes, Notes)
	for i := range run.Trials {
		t := &run.Trials[i]
		t.Load = countedLoad
		t.Metrics, t.Samples = renamed(t.Metrics), renamed(t.Samples)
	}
}

// renamed returns the values of a map under the names of counts.
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
