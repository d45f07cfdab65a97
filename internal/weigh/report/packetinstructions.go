// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// countsPackets says whether the trials counted the instructions of packets.
func (s *section) countsPackets() bool { return s.has(results.InstructionsPerPacket) }

func init() {
	register(rankPacketInstructions, func(s *section) *loadKind {
		if s.countsPackets() {
			return packetInstructionsKind()
		}
		return nil
	})
}

func packetInstructionsKind() *loadKind {
	return &loadKind{question: "how many instructions does a packet take in the data plane",
		sheets: packetInstructionSheets, verdict: packetInstructionVerdict, reading: packetInstructionReading}
}

// packetInstructionSheets has a table a hook, with a row for every kind of packet.
func packetInstructionSheets(s *section) []sheet {
	var sheets []sheet
	for _, g := range s.bySubject().Groups {
		fields := []field{
			{column: column{Title: "Subject"}, cell: func(_ *group, p *point, _ int) string {
				return p.marked(wording.Clean(p.Subject))
			}},
			{column: column{Title: "Packets"}, cell: func(_ *group, p *point, _ int) string {
				return cmp.Or(s.packetWords(p), wording.Missing)
			}},
			fixed(metricField("Per packet", "instructions", results.InstructionsPerPacket), 0),
		}
		for _, flows := range distinct(s.trials, paramFlows) {
			fields = append(fields, s.flowsField(flows, results.InstructionsNetOfEmpty))
		}
		fields = append(fields, fixed(spreadField("Spread of net", results.InstructionsNetOfEmpty), 0), repeatsField())
		sh := sheet{
			Title: "Instructions of a packet" + inHook(g),
			Lead:  "Net of an empty program, by the number of flows; medians over the valid repeats. Beside them, of the fewest flows: the whole count, and the lowest and the highest repeat.",
			Notes: []string{"Rows say what varies within their subject."},
		}
		row := *s
		row.Groups = []*group{{Params: g.Params, Points: s.kinds(g)}}
		sh.fill(&row, fields)
		sheets = append(sheets, sh)
	}
	return sheets
}

// flowsField shows a metric of a row's packets with a number of flows.
func (s *section) flowsField(flows value, metric string) field {
	title := "Net"
	if flows.numeric {
		title = describe(paramFlows, flows)
	}
	return field{column: column{Title: title, Unit: "instructions", Numeric: true},
		cell: func(_ *group, p *point, _ int) string {
			if q := s.withFlows(p, flows); q != nil && q.has(metric) {
				return wording.Decimal(q.Stats[metric].Median, 0)
			}
			return wording.Missing
		}}
}

// packetInstructionVerdict says what packets of each subject of ours take, in a sentence a hook.
func packetInstructionVerdict(s *section) []string {
	var sentences []string
	for _, g := range s.bySubject().Groups {
		var parts []string
		for _, name := range s.contenders() {
			var net span
			for _, p := range g.Points {
				if p.Subject == name && p.has(results.InstructionsNetOfEmpty) {
					net.add(p.Stats[results.InstructionsNetOfEmpty].Median, true)
				}
			}
			if net.n > 0 {
				parts = append(parts,
					wording.Clean(name)+" "+net.text(func(v float64) string { return wording.Decimal(v, 0) }))
			}
		}
		if slices.Sort(parts); len(parts) > 0 {
			sentences = append(sentences, fmt.Sprintf("A packet%s takes, in instructions net of an empty program: %s.",
				inHook(g), strings.Join(parts, "; ")))
		}
	}
	return sentences
}

var packetInstructionReading = []paragraph{
	{"Instructions, not time",
		"One processor is emulated, and its clock advances with each instruction, whatever that is. Caches, branch prediction " +
			"and memory are not in the figures: they compare commits of one program, and what a packet costs on hardware is measured in nanoseconds, elsewhere."},
	{"What repeats",
		"The figures do not depend on how fast or how busy the machine is. Repeats differ by where timers fall " +
			"and by the addresses that flows and tables happen to have: a difference of a few instructions is none."},
}
