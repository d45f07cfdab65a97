// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// TestCountInstructions: with a clock that counts instructions, no name and no note calls a figure a time.
func TestCountInstructions(t *testing.T) {
	run := &results.Run{Suite: "packets", Title: "What a packet costs", Trials: []results.Trial{
		{Subject: "empty", Load: load, Metrics: metricsOf(238, 238)},
		{Subject: "macswap", Load: load, Metrics: metricsOf(319, 238),
			Samples: map[string][]float64{results.NsPerPacket: {319, 322}, results.NsEmpty: {238, 238}}},
	}}
	run.Environment.Notes = TimingNotes
	CountInstructions(run)
	if run.Suite != countedSuite || run.Title != countedTitle {
		t.Errorf("the run is %q, %q", run.Suite, run.Title)
	}
	if diff := cmp.Diff(append(append([]string{}, countingNotes...), Notes...), run.Environment.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	want := []results.Trial{
		{Subject: "empty", Load: countedLoad, Metrics: map[string]float64{
			results.InstructionsPerPacket: 238, results.InstructionsNetOfEmpty: 0, results.RatioToEmpty: 1}},
		{Subject: "macswap", Load: countedLoad, Metrics: map[string]float64{
			results.InstructionsPerPacket: 319, results.InstructionsNetOfEmpty: 81, results.RatioToEmpty: 319. / 238},
			Samples: map[string][]float64{results.InstructionsPerPacket: {319, 322},
				results.InstructionsEmpty: {238, 238}}},
	}
	if diff := cmp.Diff(want, run.Trials); diff != "" {
		t.Errorf("trials (-want +got):\n%s", diff)
	}
}
