// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

const (
	// paramTuned says what the hosts were tuned by.
	paramTuned = "tuned"
	// untuned is its value where they have the kernel's own settings.
	untuned = "none"
)

func tunedText(v string) string {
	if v == untuned {
		return "not tuned"
	}
	return "tuned by " + v
}

// isTuned says whether points differ in what their hosts were tuned by.
func (s *section) isTuned() bool { return slices.Contains(s.Own, paramTuned) }

// untunedOf returns the point that differs from p in nothing but that its hosts are
// not tuned; nil if there is none.
func (g *group) untunedOf(p *point) *point {
	for _, other := range g.Points {
		if other.Subject == p.Subject && other.Params[paramTuned].word == untuned &&
			sameBut(p.Params, other.Params, paramTuned) {
			return other
		}
	}
	return nil
}

// sameBut says whether two sets of parameters differ in one at most.
func sameBut(a, b params, but string) bool {
	without := func(p params) string {
		return p.only(slices.DeleteFunc(p.names(), func(name string) bool { return name == but })).key()
	}
	return without(a) == without(b)
}

// The words for what tuning was worth.
const (
	effectBase    = "-"
	effectNothing = "nothing to change"
	effectNone    = "none"
	effectUnknown = "too few repeats"
)

// leastRepeats is from how many on ranges that lie apart say something: of two
// times four measurements of one thing, all of the first four are above or below the
// others once in 35 times (2 of 8 over 4); of two times two, once in three.
const leastRepeats = 4

// effect says what tuning was worth at a point: a change only where the ranges of
// all repeats lie apart.
func effect(g *group, p *point, rate string) string {
	base := g.untunedOf(p)
	switch {
	case base == p:
		return effectBase
	case p.has(results.SettingsChanged) && p.Stats[results.SettingsChanged].Max == 0:
		return effectNothing
	case base == nil || !base.has(rate) || !p.has(rate) || min(base.Stats[rate].N, p.Stats[rate].N) < leastRepeats:
		return effectUnknown
	}
	var parts []string
	for _, of := range []struct{ metric, noun string }{{rate, ""}, {results.LatencyMsP99, " p99"}} {
		a, b := base.Stats[of.metric], p.Stats[of.metric]
		if a.N == 0 || b.N == 0 || a.Median == 0 || a.overlaps(b) {
			continue
		}
		if change := math.Round(100 * (b.Median/a.Median - 1)); change != 0 {
			parts = append(parts, fmt.Sprintf("%+.0f %%%s", change, of.noun))
		}
	}
	if a, b := drops(base), drops(p); !a.overlaps(b) {
		parts = append(parts, fmt.Sprintf("%+.0f drops", b.Median-a.Median))
	}
	if len(parts) == 0 {
		return effectNone
	}
	return strings.Join(parts, ", ")
}

// drops are a point's frames and connections that were dropped. The ranges of both
// are added, which is the widest that their sum can have.
func drops(p *point) stat {
	a, b := p.Stats[results.ListenDrops], p.Stats[results.DeviceDrops]
	return stat{Median: a.Median + b.Median, Min: a.Min + b.Min, Max: a.Max + b.Max, N: a.N}
}

// tunedSheet shows each item beside no tuning.
func tunedSheet(s *section) sheet {
	rate, title, noun := s.rate()
	fields := []field{subjectField(s)}
	fields = append(fields, placeFields(s)...)
	fields = append(fields,
		fixed(metricField("Settings changed", "", results.SettingsChanged), 0),
		metricField(title, "", rate),
		spreadField("Spread", rate),
		metricField("p99", "ms", results.LatencyMsP99),
		field{column: column{Title: "Dropped", Numeric: true}, cell: func(_ *group, p *point, _ int) string {
			if !p.has(results.ListenDrops) {
				return wording.Missing
			}
			return wording.Decimal(drops(p).Median, 0)
		}},
		field{column: column{Title: "Effect"}, cell: func(g *group, p *point, _ int) string {
			return effect(g, p, rate)
		}},
		repeatsField(),
	)
	sh := sheet{
		Title: "What tuning was worth",
		Lead:  "Each subject with the kernel's own settings on all hosts (not tuned), with single items of `jeoul tune`, and with many at once.",
		Notes: []string{
			"Effect: of " + noun +
				", of p99 and of drops, against the same subject not tuned, where the ranges of all repeats lie apart; none where they do not. " +
				fmt.Sprintf("It takes %d repeats to say so, and even then they lie apart by chance once in 35 times: repeat what looks like an effect.", leastRepeats),
			"Nothing to change: the hosts had the item's value, or a better one, by themselves, or have no such setting.",
			"Dropped: connections at full listening queues, and frames at devices.",
		},
	}
	sh.fill(s, fields)
	return sh
}

// tunedVerdict says which items were worth something, and which nothing.
func tunedVerdict(s *section) []string {
	rate, _, _ := s.rate()
	effects := map[string][]string{} // by item, for each subject that felt something
	var order, none, nothing, unknown []string
	of := map[string]map[string]bool{}
	for _, g := range s.Groups {
		for _, p := range g.Points {
			name := p.Params[paramTuned].word
			if name == untuned || name == "" || p.Valid == 0 {
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
			sentences = append(sentences, fmt.Sprintf("%s: %s: %s.", s.title(), tunedText(name),
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
		sentences = append(sentences, fmt.Sprintf("%s: without an effect that shows: %s.", s.title(), wording.List(none)))
	}
	if len(unknown) > 0 {
		sentences = append(sentences, fmt.Sprintf("%s: measured too few times (%d are needed) to say anything of: %s.",
			s.title(), leastRepeats, wording.List(unknown)))
	}
	if len(nothing) > 0 {
		sentences = append(sentences,
			fmt.Sprintf("%s: nothing to change, for the hosts have it by themselves, or cannot have it: %s.", s.title(),
				wording.List(nothing)))
	}
	return sentences
}

func init() {
	register(rankTuned, func(s *section) *loadKind {
		if s.isTuned() {
			return tunedKind()
		}
		return nil
	})
}

// tunedKind is how a load is reported whose hosts were tuned.
func tunedKind() *loadKind {
	return &loadKind{question: "what is each setting of the hosts worth",
		sheets:  func(s *section) []sheet { return append([]sheet{tunedSheet(s)}, loadSheets(s)...) },
		verdict: tunedVerdict}
}
