// SPDX-License-Identifier: Apache-2.0

// Package tuned reports loads on hosts that were tuned, and not.
package tuned

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// untunedOf returns the point that differs from p only in that its hosts are not tuned; nil if there is none.
func untunedOf(g *model.Group, p *model.Point) *model.Point {
	for _, other := range g.Points {
		if other.Subject == p.Subject && other.Params[model.ParamTuned].Word == model.Untuned &&
			sameBut(p.Params, other.Params, model.ParamTuned) {
			return other
		}
	}
	return nil
}

// sameBut reports whether two sets of parameters differ at most in the parameter but.
func sameBut(a, b model.Params, but string) bool {
	without := func(p model.Params) string {
		return p.Only(slices.DeleteFunc(p.Names(), func(name string) bool { return name == but })).Key()
	}
	return without(a) == without(b)
}

// The words for the effect of tuning.
const (
	effectBase    = "-"
	effectNothing = "nothing to change"
	effectNone    = "none"
	effectUnknown = "too few repeats"
)

// minRepeats is the number of repeats from which ranges that lie apart are evidence. Of two times four measurements
// of one thing, all of the first four are above or below the others once in 35 times (2 of 8 over 4); of two times two,
// once in three.
const minRepeats = 4

// effect gives the effect of tuning at a point: a change only where the ranges of all repeats lie apart.
func effect(g *model.Group, p *model.Point, rate string) string {
	base := untunedOf(g, p)
	switch {
	case base == p:
		return effectBase
	case p.Has(results.SettingsChanged) && p.Stats[results.SettingsChanged].Max == 0:
		return effectNothing
	case base == nil || !base.Has(rate) || !p.Has(rate) || min(base.Stats[rate].N, p.Stats[rate].N) < minRepeats:
		return effectUnknown
	}
	var parts []string
	for _, of := range []struct{ metric, noun string }{{rate, ""}, {results.LatencyMsP99, " p99"}} {
		a, b := base.Stats[of.metric], p.Stats[of.metric]
		if a.N == 0 || b.N == 0 || a.Median == 0 || a.Overlaps(b) {
			continue
		}
		if change := math.Round(100 * (b.Median/a.Median - 1)); change != 0 {
			parts = append(parts, fmt.Sprintf("%+.0f %%%s", change, of.noun))
		}
	}
	if a, b := drops(base), drops(p); !a.Overlaps(b) {
		parts = append(parts, fmt.Sprintf("%+.0f drops", b.Median-a.Median))
	}
	if len(parts) == 0 {
		return effectNone
	}
	return strings.Join(parts, ", ")
}

// drops sums up a point's dropped frames and connections. The ranges of both are added, which is the widest range that
// the sum can have.
func drops(p *model.Point) model.Stat {
	a, b := p.Stats[results.ListenDrops], p.Stats[results.DeviceDrops]
	return model.Stat{Median: a.Median + b.Median, Min: a.Min + b.Min, Max: a.Max + b.Max, N: a.N}
}

// tunedSheet shows each item beside no tuning.
func tunedSheet(s *model.Section) model.Sheet {
	rate, title, noun := s.Rate()
	return model.Sheet{
		Title: "What tuning was worth",
		Lead:  "Each subject with the kernel's own settings on all hosts (not tuned), with single items of `jeoul tune`, and with many at once.",
		Notes: []string{
			"Effect: of " + noun +
				", of p99 and of drops, against the same subject not tuned, where the ranges of all repeats lie apart; none where they do not. " +
				fmt.Sprintf("It takes %d repeats to say so, and even then they lie apart by chance once in 35 times: repeat what looks like an effect.", minRepeats),
			"Nothing to change: the hosts had the item's value, or a better one, by themselves, or have no such setting.",
			"Dropped: connections at full listening queues, and frames at devices.",
		},
	}.Of(s, s.Rows(), []model.Field{
		model.Fixed(model.MetricField("Settings changed", "", results.SettingsChanged), 0),
		model.MetricField(title, "", rate),
		model.SpreadField("Spread", rate),
		model.MetricField("p99", "ms", results.LatencyMsP99),
		model.NumberField("Dropped", "", func(v float64) string { return wording.Decimal(v, 0) },
			func(_ *model.Group, p *model.Point) (float64, bool) {
				return drops(p).Median, p.Has(results.ListenDrops)
			}),
		model.Field{Column: model.Column{Title: "Effect"}, Cell: func(g *model.Group, p *model.Point, _ int) string {
			return effect(g, p, rate)
		}},
		model.RepeatsField(),
	})
}

// tunedVerdict names the items that had an effect, and those that had none.
func tunedVerdict(s *model.Section) []string {
	rate, _, _ := s.Rate()
	effects := map[string][]string{} // by item, for each subject with an effect
	var order, none, nothing, unknown []string
	of := map[string]map[string]bool{}
	for _, g := range s.Groups {
		for _, p := range g.Points {
			name := p.Params[model.ParamTuned].Word
			if name == model.Untuned || name == "" || p.Valid == 0 {
				continue
			}
			if of[name] == nil {
				of[name] = map[string]bool{}
				order = append(order, name)
			}
			what := effect(g, p, rate)
			switch what {
			case effectNone, effectNothing, effectUnknown:
				of[name][what] = true
			default:
				effects[name] = append(effects[name], fmt.Sprintf("%s %s", wording.Clean(p.Subject), what))
			}
		}
	}
	var sentences []string
	for _, name := range order {
		switch {
		case len(effects[name]) > 0:
			sentences = append(sentences, fmt.Sprintf("%s: %s: %s.", s.Title(), model.TunedText(name),
				strings.Join(effects[name], "; ")))
		case of[name][effectUnknown]:
			unknown = append(unknown, name)
		case of[name][effectNone]:
			none = append(none, name)
		default:
			nothing = append(nothing, name)
		}
	}
	if len(none) > 0 {
		sentences = append(sentences, fmt.Sprintf("%s: without an effect that shows: %s.", s.Title(), wording.List(none)))
	}
	if len(unknown) > 0 {
		sentences = append(sentences, fmt.Sprintf("%s: measured too few times (%d are needed) to say anything of: %s.",
			s.Title(), minRepeats, wording.List(unknown)))
	}
	if len(nothing) > 0 {
		sentences = append(sentences,
			fmt.Sprintf("%s: nothing to change, for the hosts have it by themselves, or cannot have it: %s.", s.Title(),
				wording.List(nothing)))
	}
	return sentences
}

// Kind registers loads on hosts that were tuned.
var Kind = model.Registration{Of: func(s *model.Section) *model.Kind {
	if !slices.Contains(s.Own, model.ParamTuned) {
		return nil
	}
	return &model.Kind{Question: "what is each setting of the hosts worth", Verdict: tunedVerdict,
		Sheets: func(s *model.Section) []model.Sheet {
			return append([]model.Sheet{tunedSheet(s)}, model.LoadSheets(s)...)
		}}
}}
