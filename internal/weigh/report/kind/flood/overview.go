// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/certainty"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// floodAnswer names the subjects that lost a connection, and those whose clients wait longer in the flood.
func floodAnswer(s *model.Section) []string {
	var lost []string
	points := slices.DeleteFunc(s.Points(),
		func(p *model.Point) bool { return slices.Contains(model.NotBalancers, p.Subject) })
	invalid := slices.DeleteFunc(slices.Concat(points, s.Invalid), func(p *model.Point) bool {
		return p.AllValid() || slices.Contains(model.NotBalancers, p.Subject)
	})
	if len(points) == 0 {
		return model.Brief(floodVerdict(s), s.Title()+": ")
	}
	for _, p := range points {
		if n := p.Stats[results.EstablishedLost].Max; n > 0 {
			lost = append(lost, fmt.Sprintf("%s %s", wording.Clean(p.Label), wording.Decimal(n, 0)))
		}
	}
	var out []string
	whole := slices.DeleteFunc(slices.Clone(points), func(p *model.Point) bool { return !p.AllValid() })
	if len(lost) > 0 {
		out = append(out, fmt.Sprintf("Connections are lost in the flood through %s.",
			wording.List(model.AtMost(lost, model.MaxListed))))
	} else if len(whole) > 0 {
		out = append(out, fmt.Sprintf("No connection is lost in the flood through any of the %d.", len(whole)))
	}
	if len(invalid) > 0 {
		out = append(out, notValid(invalid))
	}
	with := slices.DeleteFunc(points, func(p *model.Point) bool { return !p.Has(results.FloodRatioP99) })
	if len(with) == 0 {
		return out
	}
	slices.SortStableFunc(with, func(a, b *model.Point) int {
		return cmp.Compare(slowdown(a).Ratio, slowdown(b).Ratio)
	})
	text := func(p *model.Point) string {
		return fmt.Sprintf("%s, %s ×%s", wording.Clean(p.Label), wording.RatioText(slowdown(p).Ratio), slowdown(p).Brackets())
	}
	first, last := with[0], with[len(with)-1]
	if len(with) > 1 && model.Tied(first, last, results.FloodRatioP99) {
		return append(out, fmt.Sprintf("Their p99 in the flood over the quiet one cannot be told apart: from %s to %s.",
			text(first), text(last)))
	}
	return append(out, fmt.Sprintf("p99 in the flood over the quiet one is from %s to %s.", text(first), text(last)))
}

// notValid names the points with invalid trials: the losses in those are unknown.
func notValid(points []*model.Point) string {
	var words []string
	for _, p := range points {
		words = append(words, wording.Clean(p.Label)+" "+p.NotValid())
	}
	return fmt.Sprintf("Trials that are not valid: %s.", wording.List(model.AtMost(words, model.MaxListed)))
}

// slowdown is the ratio of the p99 in the flood to the quiet p99. It compares the two phases of each trial, and so is
// not the quotient of their medians.
func slowdown(p *model.Point) model.Comparison {
	return model.Level([]*model.Point{p}, results.FloodRatioP99)
}

// slowdownField shows the slowdown with its interval.
func slowdownField() model.Field {
	return model.Field{
		Column: model.Column{Title: "p99 × quiet, of each trial", Numeric: true},
		Cell:   func(_ *model.Group, p *model.Point, _ int) string { return slowdown(p).Interval() },
	}
}

// floodSure explains the answer's intervals.
func floodSure(s *model.Section) string {
	repeats := 0
	for _, p := range s.Points() {
		if d := slowdown(p); d.Sure() {
			repeats = max(repeats, d.Repeats)
		}
	}
	if repeats == 0 {
		return "Too few repeats for an interval, so how long clients wait may be chance."
	}
	return fmt.Sprintf("In brackets: the interval that has the true ratio in it in %.0f of 100 runs; from %d repeats. "+
		"One that has 1 in it tells no wait from a quiet one.", math.Round(certainty.Level*100), repeats)
}

// floodOverview shows the clients' view and the kept connections, in five columns.
func floodOverview(s *model.Section) *model.Sheet {
	sh := &model.Sheet{Lead: "Medians over the repeats; connections that were open before the flood. p99 × quiet: of the two phases of each trial, in brackets the interval from all of them."}
	sh.Fill(s, []model.Field{
		model.LabelField(s),
		model.Fixed(model.MetricField("Lost", "", results.EstablishedLost), 0),
		floodLatency("p99 quiet", results.QuietLatencyMsP99),
		floodLatency("p99 flood", results.FloodLatencyMsP99),
		slowdownField(),
		model.Fixed(model.MetricField("Kept in flood", "", results.RememberedDuring), 0),
	})
	return sh.Clipped(model.OverviewRows, len(sh.Columns))
}
