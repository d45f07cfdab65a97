// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Counted registers packets whose instructions were counted.
var Counted = model.Registration{
	Titles: map[string]string{
		"packets": "Packets through the data plane",
	},
	Name: "Packets",
	Of: func(s *model.Section) *model.Kind {
		if !s.Has(results.InstructionsPerPacket) {
			return nil
		}
		return &model.Kind{Question: "how many instructions does a packet take in the data plane",
			Sheets: packetInstructionSheets, Verdict: packetInstructionVerdict, Reading: packetInstructionReading,
			Compared: &model.RateMetric{Name: results.InstructionsNetOfEmpty, Title: "instructions a packet, net", Noun: "instructions"}}
	},
}

// packetInstructionSheets returns a table for each hook, with a row for every kind of packet.
func packetInstructionSheets(s *model.Section) []model.Sheet {
	var sheets []model.Sheet
	for _, g := range bySubject(s).Groups {
		sheets = append(sheets, model.Sheet{
			Title: "Instructions of a packet" + inHook(g),
			Lead:  "Net of an empty program, by the number of flows; medians over the valid repeats. Beside them, of the fewest flows: the whole count, and the lowest and the highest repeat.",
			Notes: []string{"Rows say what varies within their subject."},
		}.Of(packetKinds(s, g), packetFields(s, "instructions", 0, results.InstructionsPerPacket,
			results.InstructionsNetOfEmpty), []model.Field{
			model.Fixed(model.SpreadField("Spread of net", results.InstructionsNetOfEmpty), 0), model.RepeatsField()}))
	}
	return sheets
}

// packetInstructionVerdict gives the instructions of packets for each of our subjects, in a sentence for each hook.
func packetInstructionVerdict(s *model.Section) []string {
	var sentences []string
	for _, g := range bySubject(s).Groups {
		var parts []string
		for _, name := range s.Contenders() {
			var net model.Span
			for _, p := range g.Points {
				if p.Subject == name && p.Has(results.InstructionsNetOfEmpty) {
					net.Add(p.Stats[results.InstructionsNetOfEmpty].Median, true)
				}
			}
			if net.N > 0 {
				parts = append(parts,
					wording.Clean(name)+" "+net.Text(func(v float64) string { return wording.Decimal(v, 0) }))
			}
		}
		if slices.Sort(parts); len(parts) > 0 {
			sentences = append(sentences, fmt.Sprintf("A packet%s takes, in instructions net of an empty program: %s.",
				inHook(g), strings.Join(parts, "; ")))
		}
	}
	return sentences
}

var packetInstructionReading = []model.Paragraph{
	{Head: "Instructions, not time",
		Text: "One processor is emulated, and its clock advances with each instruction, whatever that is. Caches, branch prediction " +
			"and memory are not in the figures: they compare commits of one program, and what a packet costs on hardware is measured in nanoseconds, elsewhere."},
	{Head: "What repeats",
		Text: "The figures do not depend on how fast or how busy the machine is. Repeats differ by where timers fall " +
			"and by the addresses that flows and tables happen to have: a difference of a few instructions is none."},
}
