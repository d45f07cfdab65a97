// SPDX-License-Identifier: Apache-2.0

// Package distribution reports how new flows are spread over backends.
package distribution

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// distributionSheets show how flows are spread, and how a hash table is spread.
func distributionSheets(s *model.Section) []model.Sheet {
	fields := []model.Field{model.ParamField(s, model.ParamScheduler)}
	fields = append(fields, model.PlaceFields(s, model.ParamBackends, model.ParamWeights)...)
	fields = append(fields,
		model.PercentField("Greatest deviation", results.DeviationPercentMax),
		model.Fixed(model.MetricField("χ²", "", results.ChiSquared), 1),
		model.Fixed(model.MetricField("Degrees of freedom", "", results.DegreesOfFreedom), 0),
		probabilityField("p", results.PValue),
		model.PercentField("Deviation of the table", results.TableDeviationPercentMax),
		model.Fixed(model.MetricField("χ² to the table", "", results.TableChiSquared), 1),
		probabilityField("p to the table", results.TablePValue),
		model.Fixed(model.MetricField("Elsewhere", "flows", results.FlowsElsewhere), 0),
		model.RepeatsField(),
	)
	return s.TabulateBy(model.Sheet{
		Title: "Flows against shares",
		Lead:  "New flows of each backend (where flows end: those that are open) against its share by weight (of lc and rr: the same for all; of fo: all for the first); medians over the valid repeats.",
		Notes: []string{
			"Greatest deviation: of any backend, in per cent of its share. p: how likely chance alone gives a χ² as large; near 1, more even than chance.",
			"Of the table: of a hash table's slots from the weights. To the table: the flows against the shares that the slots make, which is what a good hash can be held to.",
		},
	}, results.DeviationPercentMax, func(p *model.Point) string {
		return p.Params.Only([]string{model.ParamBackends, model.ParamWeights}).Text()
	}, fields)
}

// probabilityField shows a probability.
func probabilityField(title, metric string) model.Field {
	return model.MedianField(title, "", metric, func(v float64) string {
		if v < 0.001 {
			return "< 0.001"
		}
		return wording.Decimal(v, 3)
	})
}

// distributionVerdict has a sentence for each number of backends, and one on the hash.
func distributionVerdict(s *model.Section) []string {
	var sentences []string
	for _, n := range model.Distinct(s.Trials, model.ParamBackends) {
		var parts []string
		off, of := map[string]*model.Span{}, []string(nil)
		for _, p := range s.Points() {
			if p.Params[model.ParamBackends] != n || !p.Has(results.DeviationPercentMax) {
				continue
			}
			name := wording.Clean(p.Params[model.ParamScheduler].Word)
			if off[name] == nil {
				off[name] = &model.Span{}
				of = append(of, name)
			}
			off[name].Add(p.Stats[results.DeviationPercentMax].Median, true)
		}
		for _, name := range of {
			parts = append(parts, name+" "+off[name].Text(func(v float64) string { return wording.Decimal(v, 2) }))
		}
		if len(parts) > 0 {
			sentences = append(sentences,
				fmt.Sprintf("With %s, the one farthest from its share is off by, in per cent: %s.",
					model.Describe(model.ParamBackends, n), strings.Join(parts, "; ")))
		}
	}
	return append(sentences, hashVerdict(s)...)
}

// rare is the probability below which a deviation is not explained by chance.
const rare = 0.01

// hashVerdict reports whether flows spread over hash tables as chance would spread them.
func hashVerdict(s *model.Section) []string {
	n, least := 0, 1.0
	var odd []string
	for _, p := range s.Points() {
		if !p.Has(results.TablePValue) {
			continue
		}
		n++
		// Over several repeats, the median: each repeat has other flows.
		v := p.Stats[results.TablePValue].Median
		least = min(least, v)
		if v < rare {
			odd = append(odd, fmt.Sprintf("%s with %s, weights %s", wording.Clean(p.Params[model.ParamScheduler].Word),
				model.Describe(model.ParamBackends, p.Params[model.ParamBackends]),
				wording.Clean(p.Params[model.ParamWeights].Word)))
		}
	}
	switch {
	case n == 0:
		return nil
	case len(odd) == 0:
		return []string{fmt.Sprintf("Over their hash tables, flows spread as by chance in all %d cases (p from %s on).",
			n, wording.Decimal(least, 3))}
	}
	return []string{fmt.Sprintf(
		"Over their hash tables, flows spread otherwise than chance explains (p below %s) in %d of %d cases: %s.",
		wording.Decimal(rare, 2), len(odd), n, wording.List(odd))}
}

// distributionFigures show the greatest deviation of each scheduler, a dot for each
// number of backends.
func distributionFigures(s *model.Section, _ *chart.Palette) []chart.Figure {
	c := &chart.Chart{Axis: "greatest deviation of a backend from its share, %", Kind: chart.Dots}
	counts := model.Distinct(s.Trials, model.ParamBackends)
	for i, n := range counts {
		c.Legend = append(c.Legend,
			chart.LegendEntry{Name: model.Describe(model.ParamBackends, n), Ink: model.FlowInks[i%len(model.FlowInks)]})
	}
	at := map[string]int{}
	for _, p := range s.Points() {
		if !p.Has(results.DeviationPercentMax) {
			continue
		}
		label := p.Params.Only([]string{model.ParamScheduler, model.ParamWeights, model.ParamEnded}).Text()
		i, ok := at[label]
		if !ok {
			i = len(c.Rows)
			at[label] = i
			c.Rows = append(c.Rows, chart.Row{Label: label})
		}
		c.Rows[i].Marks = append(c.Rows[i].Marks, chart.Mark{
			Value: p.Stats[results.DeviationPercentMax].Median,
			Ink:   model.FlowInks[max(slices.Index(counts, p.Params[model.ParamBackends]), 0)%len(model.FlowInks)],
		})
	}
	for i, r := range c.Rows {
		var values []string
		for _, m := range r.Marks {
			values = append(values, wording.Decimal(m.Value, 2))
		}
		c.Rows[i].Value = strings.Join(values, " · ")
	}
	slices.SortStableFunc(c.Rows, func(a, b chart.Row) int { return strings.Compare(a.Label, b.Label) })
	return []chart.Figure{{Title: "How far from their share backends are",
		Caption: "Less is better; medians. A scheduler that draws lots cannot do better than chance does.", Chart: c}}
}

var distributionReading = []model.Paragraph{
	{Head: "Shares", Text: "Schedulers that take turns, or compare how many flows backends have, can be exact. One that hashes gives each backend its part of a table, and the flows fall on the table as chance has it: with n flows for a backend, deviations of 1/√n and the largest of many backends two or three times that. Against the table's own shares, χ² should therefore be near its degrees of freedom."},
	{Head: "Flows that end",
		Text: "A scheduler by least connections does not give each backend the same number of new flows, but has the same number open. Where no flow ends, that is the same; where half of them do, by lot, what is compared with the shares is how many are open at the end."},
}

// Kind registers the distribution of new flows.
var Kind = model.Registration{
	Titles: map[string]string{"distribution": "How flows are spread"},
	Of: func(s *model.Section) *model.Kind {
		if s.Load != "distribution" {
			return nil
		}
		return &model.Kind{Question: "how many new flows does each backend get, and how many should it",
			Sheets: distributionSheets, Verdict: distributionVerdict, Figures: distributionFigures,
			Reading: distributionReading}
	},
}
