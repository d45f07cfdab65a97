// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

func countedTrial(subject string, repeat int, instructions float64) results.Trial {
	return results.Trial{
		Subject: subject, Load: "ab", Repeat: repeat, Valid: true, Saturated: results.SaturatedUnknown,
		Params: map[string]any{"concurrency": 32, "clients": 1, "backends": 4, "file_bytes": 1024, "requests": 8000},
		Metrics: map[string]float64{results.InstructionsPerRequest: instructions,
			results.RequestsPerSecond: 1e9 / instructions, results.Failed: 0},
	}
}

// TestInstructions checks the report of a run in a machine that counts instructions.
func TestInstructions(t *testing.T) {
	run := &results.Run{Schema: results.Schema, Suite: "instructions", Environment: results.Environment{Kernel: "6.12",
		Virtual: &results.Virtual{
			Emulator: "QEMU 7.2.22", Accelerator: "tcg-icount", Instructions: true, HostKernel: "6.18", HostCPU: "Xeon",
			HostCores: 2}}}
	for repeat := range 2 {
		for subject, instructions := range map[string]float64{
			"direct": 200_000, "bare-tc": 220_000, "ipvs-dr": 240_000, "ipvs-nat": 280_000, "jeoul-l2dsr-tc": 221_000,
			"jeoul-nat-tc": 256_000,
		} {
			run.Trials = append(run.Trials, countedTrial(subject, repeat+1, instructions+float64(repeat*200)))
		}
	}
	text := strings.Join(strings.Fields(render(t, Markdown, run)), " ")
	for _, want := range []string{
		"How many instructions does a request take",
		"jeoul-l2dsr-tc adds 21,000 instructions to a request.",
		"Targets that hold: jeoul-l2dsr-tc ≤ 0.62 × what ipvs-dr adds (0.53); jeoul-l2dsr-tc ≤ 1.10 × what bare-tc adds (1.05).",
		"Targets that are missed: jeoul-nat-tc ≤ 0.60 × what ipvs-nat adds (0.70).",
		"instructions, and not cache misses",
		"| 221,100 | 221,000–221,200 | 21,000 | 1.05 | 0.53 | 0.26 | 0 | 2 |",
		"QEMU 7.2.22, emulated (TCG), one processor whose clock counts instructions",
		"Xeon, 2 cores, Linux 6.18",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if strings.Contains(text, "requests/s of") {
		t.Error("it judges rates by a clock that counts instructions")
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestInstructionsWithoutBaseline: nothing is compared with a baseline that was not measured.
func TestInstructionsWithoutBaseline(t *testing.T) {
	run := &results.Run{Schema: results.Schema, Suite: "instructions", Trials: []results.Trial{
		countedTrial("ipvs-dr", 1, 240_000), countedTrial("jeoul-l2dsr-tc", 1, 221_000),
	}}
	text := render(t, Markdown, run)
	if !strings.Contains(text, "no valid trial under this load") || strings.Contains(text, "Targets") {
		t.Error(text)
	}
}
