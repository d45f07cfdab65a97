// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// countedPacket returns a trial of a packet that takes net instructions, net of the empty program.
func countedPacket(subject string, flows, repeat int, net float64) results.Trial {
	params := map[string]any{"hook": "tc", "flows": flows}
	if subject != model.EmptySubject {
		params["scheduler"], params["packets"] = "maglev", "known"
	}
	return results.Trial{Subject: subject, Load: "packet-instructions", Repeat: repeat, Valid: true,
		Saturated: results.SaturatedNone, Params: params,
		Metrics: map[string]float64{results.InstructionsPerPacket: 238 + net, results.InstructionsNetOfEmpty: net,
			results.RatioToEmpty: (238 + net) / 238}}
}

func countedPackets(net float64) *results.Run {
	run := &results.Run{Schema: results.Schema, Suite: "packets-instructions"}
	for repeat := 1; repeat <= 2; repeat++ {
		run.Trials = append(run.Trials, countedPacket(model.EmptySubject, 1, repeat, 0),
			countedPacket(model.EmptySubject, 16384, repeat, 0),
			countedPacket("jeoul-l2dsr-tc", 1, repeat, net+float64(repeat)),
			countedPacket("jeoul-l2dsr-tc", 16384, repeat, net+5))
	}
	return run
}

// TestPacketInstructions: counts are called instructions everywhere, and are not compared with targets in nanoseconds.
func TestPacketInstructions(t *testing.T) {
	text := strings.Join(strings.Fields(render(t, Markdown, countedPackets(300))), " ")
	for _, want := range []string{
		"How many instructions does a packet take in the data plane?",
		"A packet in TC takes, in instructions net of an empty program: jeoul-l2dsr-tc 302–305.",
		"Instructions of a packet in TC",
		"| 540 | 302 | 305 | 301–302 | 2 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if strings.Contains(text, "Targets") || strings.Contains(text, " ns ") {
		t.Error("it takes instructions for time")
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestPacketInstructionsCompared compares two commits.
func TestPacketInstructionsCompared(t *testing.T) {
	var page bytes.Buffer
	if err := Compare(&page, FormatMarkdown, English, countedPackets(300), countedPackets(200)); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(page.String()), " ")
	for _, want := range []string{"instructions a packet, net",
		"| jeoul-l2dsr-tc · maglev · known flow | 302 | 202 | −33.2 % | apart |"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}
