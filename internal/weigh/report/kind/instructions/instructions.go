// SPDX-License-Identifier: Apache-2.0

// Package instructions reports requests in a machine whose clock counts instructions.
package instructions

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// instructionTargets bound the instructions that a subject of ours may add to a connection, as a multiple of those that
// another subject adds.
var instructionTargets = []struct {
	ours, against string
	most          float64
}{
	{"jeoul-l2dsr-tc", "ipvs-dr", 0.62},
	{"jeoul-l2dsr-tc", "bare-tc", 1.10},
	{"jeoul-nat-tc", "ipvs-nat", 0.60},
}

// instructionReferences are the subjects that added instructions are compared with, each in a column.
var instructionReferences = []string{"bare-tc", "ipvs-dr", "ipvs-nat"}

// Kind registers trials in a machine whose clock counts instructions.
var Kind = model.Registration{Of: func(s *model.Section) *model.Kind {
	if !s.Has(results.InstructionsPerRequest) {
		return nil
	}
	k := &model.Kind{Question: "how many instructions does a request take, and how many of them does each add to it",
		Sheets: instructionSheets, Verdict: instructionVerdict, Reading: instructionReading}
	if s.HasParam(model.ParamQuestion) { // Name servers are ranked by their queries all the same.
		k.Yardstick, k.BestOfPoint = model.ByRate, true
	}
	return k
}}

// added returns the number of instructions that a point adds to those of the baseline in its group.
func added(s *model.Section, g *model.Group, p *model.Point) (float64, bool) {
	baseline := g.Best(s.Baseline, results.InstructionsPerRequest)
	if baseline == nil || p == nil || p == baseline || !p.Has(results.InstructionsPerRequest) {
		return 0, false
	}
	return p.Stats[results.InstructionsPerRequest].Median - baseline.Stats[results.InstructionsPerRequest].Median, true
}

// addedRatio returns the ratio of the instructions that a point adds to the instructions that the best point of another
// subject in the group adds.
func addedRatio(s *model.Section, g *model.Group, p *model.Point, against string) (float64, bool) {
	own, ok := added(s, g, p)
	of, known := added(s, g, g.Best(against, results.InstructionsPerRequest))
	// A subject that adds no measurable instructions is no reference.
	if !ok || !known || of <= 0 {
		return 0, false
	}
	return own / of, true
}

func instructionSheets(s *model.Section) []model.Sheet {
	fields := append(s.Rows(model.ParamConcurrency, model.ParamFileBytes),
		model.Fixed(model.MetricField("Instructions", "per request", results.InstructionsPerRequest), 0),
		model.Fixed(model.SpreadField("Spread", results.InstructionsPerRequest), 0),
		model.NumberField("Added to "+s.Baseline, "per request", func(v float64) string { return wording.Decimal(v, 0) },
			func(g *model.Group, p *model.Point) (float64, bool) { return added(s, g, p) }),
	)
	for _, against := range instructionReferences {
		fields = append(fields, model.NumberField("Added × "+against, "", wording.RatioText,
			func(g *model.Group, p *model.Point) (float64, bool) { return addedRatio(s, g, p, against) }))
	}
	fields = append(fields, model.Fixed(model.MetricField("Failed", "", results.Failed), 0), model.RepeatsField())
	notes := []string{
		fmt.Sprintf("Added to %s: the difference of the medians. Added × a subject: that, as a multiple of what the subject adds.", s.Baseline),
	}
	if !s.Measured(s.Baseline) {
		notes = append(notes,
			fmt.Sprintf("The baseline %s has no valid trial under this load, so it is not known what the others add.",
				s.Baseline))
	}
	return s.Tabulate(model.Sheet{
		Title: "Instructions",
		Lead: "Of clients, balancer, servers, switch and kernel together, on one emulated processor whose clock counts them. " +
			"They are instructions, and not cache misses, mispredicted branches or nanoseconds.",
		Notes: notes,
	}, results.InstructionsPerRequest, fields)
}

// instructionVerdict counts the instructions that our subjects add, and compares them with the targets.
func instructionVerdict(s *model.Section) []string {
	var sentences []string
	for _, name := range s.Contenders() {
		var extra model.Span
		for _, g := range s.Groups {
			extra.Add(added(s, g, g.Best(name, results.InstructionsPerRequest)))
		}
		if extra.N > 0 {
			sentences = append(sentences, fmt.Sprintf("%s: %s adds %s instructions to a request%s.", s.Title(),
				wording.Clean(name),
				extra.Text(func(v float64) string { return wording.Decimal(v, 0) }), model.OverPoints(extra.N)))
		}
	}
	return append(sentences, model.TargetSentences(targetResults(s), "")...)
}

// targetResults compares the instructions that our subjects add with the targets, all points together.
func targetResults(s *model.Section) []model.TargetResult {
	var all []model.TargetResult
	for _, target := range instructionTargets {
		j := model.TargetResult{What: target.ours, Bound: wording.RatioText(target.most) + " × what " + target.against + " adds",
			Format: wording.Times}
		for _, g := range s.Groups {
			// The highest of a subject's variants is its least favourable.
			j.Figures.Add(addedRatio(s, g, g.Best(target.ours, results.InstructionsPerRequest), target.against))
		}
		j.Holds = j.Figures.High <= target.most
		if j.Figures.N > 0 {
			all = append(all, j)
		}
	}
	return all
}

var instructionReading = []model.Paragraph{
	{Head: "Instructions, not time",
		Text: "One processor is emulated, and its clock advances with each instruction, whatever that is. Caches, branch prediction, " +
			"memory bandwidth and other cores are not in the figures: they compare programs that do alike work, and commits of one program. " +
			"What a packet costs on hardware is measured in nanoseconds, elsewhere."},
	{Head: "What repeats",
		Text: "The figures do not depend on how fast or how busy the machine is. Repeats differ by where timers fall and by how processes " +
			"happen to take turns: a difference smaller than the spread is no difference."},
}
