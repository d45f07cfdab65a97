// SPDX-License-Identifier: Apache-2.0

// Package memory reports the kernel memory that remembered flows take.
package memory

import (
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// flowBytes bounds the kernel memory of a remembered flow, in bytes.
const flowBytes = 128

// memorySheets show the memory of flows.
func memorySheets(s *model.Section) []model.Sheet {
	fields := []model.Field{model.ParamField(s, model.ParamScheduler)}
	fields = append(fields, model.PlaceFields(s, model.ParamStage, "family")...)
	fields = append(fields,
		model.Fixed(model.MetricField("Remembered", "flows", results.FlowsRemembered), 0),
		model.Fixed(model.MetricField("Without room", "flows", results.FlowsWithoutRoom), 0),
		model.MegabytesField("Table", results.TableBytes),
		model.Fixed(model.MetricField("Table", "bytes/flow", results.BytesPerFlow), 1),
		model.Fixed(model.MetricField("Machine", "bytes/flow", results.AvailableBytesPerFlow), 1),
		model.Fixed(model.MetricField("Grown", "bytes", results.GrownBytes), 0),
	)
	return s.TabulateBy(model.Sheet{
		Title: "Kernel memory",
		Lead:  "A balancer of its own for each row, with a table planned for as many flows as come.",
		Notes: []string{
			"Without room: flows that met two full buckets. They were sent on by their hash, and not remembered.",
			"Table: what the kernel says of the map that the flows are in (memlock). Machine: by how much MemAvailable fell from before the balancer was loaded, the program and all other maps included.",
			"Grown: by how much all maps together grew while the flows came. The tables are made at start, whole.",
		},
	}, results.BytesPerFlow, func(p *model.Point) string { return p.Params[model.ParamFlows].Text(model.ParamFlows) },
		fields)
}

// memoryVerdict compares the figures with the targets, by the number of flows: both families and stages together.
func memoryVerdict(s *model.Section) []string {
	var all []model.TargetResult
	for _, p := range s.Points() {
		if !p.Has(results.BytesPerFlow) {
			continue
		}
		bound, what := float64(flowBytes), model.Describe(model.ParamFlows, p.Params[model.ParamFlows])
		if !model.Remembers(p) {
			bound, what = 0, model.Describe(model.ParamScheduler, p.Params[model.ParamScheduler])+", "+what
		}
		i := slices.IndexFunc(all, func(j model.TargetResult) bool { return j.What == what })
		if i < 0 {
			i = len(all)
			all = append(all, model.TargetResult{What: what, Bound: fmt.Sprintf("%.0f bytes a flow", bound), Holds: true,
				Format: func(v float64) string { return wording.Decimal(v, 1) }})
		}
		all[i].Figures.Add(p.Stats[results.BytesPerFlow].Median, true)
		all[i].Holds = all[i].Holds && all[i].Figures.High <= bound &&
			(model.Remembers(p) || p.Stats[results.FlowsRemembered].Max == 0)
	}
	return append(model.TargetSentences(all, ""), roomVerdict(s)...)
}

// roomVerdict gives the number of flows that found no room.
func roomVerdict(s *model.Section) []string {
	sent, without := 0.0, 0.0
	for _, p := range s.Points() {
		if p.Has(results.FlowsWithoutRoom) {
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

var memoryReading = []model.Paragraph{
	{Head: "Planned memory",
		Text: "The tables of flows are made when the balancer starts, for as many flows as the configuration says: what is measured is the whole table by the flows in it when it is as full as planned. With fewer flows each would take more, and a flood makes none of it grow."},
}

// Kind registers the memory that remembered flows take.
var Kind = model.Registration{
	Titles: map[string]string{"memory": "What remembering a flow takes"},
	Of: func(s *model.Section) *model.Kind {
		if s.Load != "memory" {
			return nil
		}
		return &model.Kind{Question: "how much kernel memory does a remembered flow take",
			Sheets: memorySheets, Verdict: memoryVerdict, Reading: memoryReading}
	},
}
