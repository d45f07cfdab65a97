// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

const paramStage = "stage"

// flowBytes is what a remembered flow may take of kernel memory.
const flowBytes = 128

// memorySheets show what flows take.
func memorySheets(s *section) []sheet {
	fields := []field{paramField(s, paramScheduler)}
	fields = append(fields, placeFields(s, paramStage, "family")...)
	fields = append(fields,
		fixed(metricField("Remembered", "flows", results.FlowsRemembered), 0),
		fixed(metricField("Without room", "flows", results.FlowsWithoutRoom), 0),
		megabytesField("Table", results.TableBytes),
		fixed(metricField("Table", "bytes/flow", results.BytesPerFlow), 1),
		fixed(metricField("Machine", "bytes/flow", results.AvailableBytesPerFlow), 1),
		fixed(metricField("Grown", "bytes", results.GrownBytes), 0),
	)
	return s.tabulateBy(sheet{
		Title: "Kernel memory",
		Lead:  "A balancer of its own for each row, with a table planned for as many flows as come.",
		Notes: []string{
			"Without room: flows that met two full buckets. They were sent on by their hash, and not remembered.",
			"Table: what the kernel says of the map that the flows are in (memlock). Machine: by how much MemAvailable fell from before the balancer was loaded, the program and all other maps included.",
			"Grown: by how much all maps together grew while the flows came. The tables are made at start, whole.",
		},
	}, results.BytesPerFlow, func(p *point) string { return p.Params[paramFlows].text(paramFlows) }, fields)
}

// megabytesField shows bytes by the million.
func megabytesField(title, metric string) field {
	return field{column: column{Title: title, Unit: "MB", Numeric: true}, cell: func(_ *group, p *point, _ int) string {
		if !p.has(metric) {
			return wording.Missing
		}
		return wording.Decimal(p.Stats[metric].Median/1e6, 1)
	}}
}

// memoryVerdict holds the figures against the targets, by the number of flows: both
// families and stages together.
func memoryVerdict(s *section) []string {
	var all []judged
	for _, p := range s.points() {
		if !p.has(results.BytesPerFlow) {
			continue
		}
		bound, what := float64(flowBytes), describe(paramFlows, p.Params[paramFlows])
		if !remembers(p) {
			bound, what = 0, describe(paramScheduler, p.Params[paramScheduler])+", "+what
		}
		i := slices.IndexFunc(all, func(j judged) bool { return j.what == what })
		if i < 0 {
			i = len(all)
			all = append(all, judged{what: what, bound: fmt.Sprintf("%.0f bytes a flow", bound), holds: true,
				format: func(v float64) string { return wording.Decimal(v, 1) }})
		}
		all[i].figures.add(p.Stats[results.BytesPerFlow].Median, true)
		all[i].holds = all[i].holds && all[i].figures.high <= bound &&
			(remembers(p) || p.Stats[results.FlowsRemembered].Max == 0)
	}
	return append(judgement(all, ""), roomVerdict(s)...)
}

// roomVerdict says how many flows found no room.
func roomVerdict(s *section) []string {
	sent, without := 0.0, 0.0
	for _, p := range s.points() {
		if p.has(results.FlowsWithoutRoom) {
			sent += p.Stats[results.FlowsSent].Median
			without += p.Stats[results.FlowsWithoutRoom].Median
		}
	}
	if sent == 0 {
		return nil
	}
	return []string{fmt.Sprintf("Of %s flows in tables planned for as many, %s found no room.", wording.Decimal(sent, 0),
		wording.Decimal(without, 0))}
}

var memoryReading = []paragraph{
	{"Planned memory",
		"The tables of flows are made when the balancer starts, for as many flows as the configuration says: what is measured is the whole table by the flows in it when it is as full as planned. With fewer flows each would take more, and a flood makes none of it grow."},
}

func init() {
	register(rankNamed, func(s *section) *loadKind {
		if s.Load != "memory" {
			return nil
		}
		return &loadKind{question: "how much kernel memory does a remembered flow take",
			sheets: memorySheets, verdict: memoryVerdict, reading: memoryReading}
	})
}
