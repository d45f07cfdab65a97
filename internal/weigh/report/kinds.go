// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"slices"
	"strings"
)

// loadKind is how a load is reported that has neither requests nor transfers nor
// packets of many kinds.
type loadKind struct {
	// question ends the sentence on what the run set out to learn.
	question string
	sheets   func(*section) []sheet
	verdict  func(*section) []string
	// figures may be nil.
	figures func(*section) []chart.Figure
	// answer, overview and picture are those of the first screen, where the verdict, the first table and the first
	// figure do not fit it; nil otherwise.
	answer   func(*section) []string
	overview func(*section) *sheet
	picture  func(*section) *chart.Figure
	reading  []paragraph
}

// kinds says of a section how it is reported, or nil; the lowest rank that has an answer counts.
var kinds []rankedKind

type rankedKind struct {
	rank int
	of   func(*section) *loadKind
}

// The ranks: a load is told by what was done to its hosts or is counted, before what it sends.
const (
	rankTuned = iota
	rankFlood
	rankWire
	rankPacketInstructions
	rankInstructions
	rankDNS
	rankChange
	rankNamed
)

// register adds a kind of load, in an init of its file.
func register(rank int, of func(*section) *loadKind) {
	kinds = append(kinds, rankedKind{rank, of})
	slices.SortStableFunc(kinds, func(a, b rankedKind) int { return cmp.Compare(a.rank, b.rank) })
}

// kind returns how a section is reported; nil for one of the usual kind.
func (s *section) kind() *loadKind {
	for _, k := range kinds {
		if kind := k.of(s); kind != nil {
			return kind
		}
	}
	return nil
}

// tabulate makes a table of the section's points that have a metric, in their groups.
func (s *section) tabulate(sh sheet, metric string, fields []field) []sheet {
	of := map[*point]string{}
	for i, g := range s.Groups {
		for _, p := range g.Points {
			of[p] = fmt.Sprint(i)
		}
	}
	return s.tabulateBy(sh, metric, func(p *point) string { return of[p] }, fields)
}

// tabulateBy is tabulate, but points of which a function says the same stand together, in
// the order of the first.
func (s *section) tabulateBy(sh sheet, metric string, words func(*point) string, fields []field) []sheet {
	with := *s
	with.Groups = nil
	at := map[string]*group{}
	for _, p := range s.points() {
		if !p.has(metric) {
			continue
		}
		key := words(p)
		if at[key] == nil {
			at[key] = &group{}
			with.Groups = append(with.Groups, at[key])
		}
		at[key].Points = append(at[key].Points, p)
	}
	sh.fill(&with, fields)
	if sh.empty() {
		return nil
	}
	return []sheet{sh}
}

// percentField shows a metric in per cent.
func percentField(title, metric string) field {
	return fixed(metricField(title, "%", metric), 2)
}

// judgement says which targets hold and which are missed, in a sentence each.
func judgement(all []judged, where string) []string {
	var held, missed, sentences []string
	for _, j := range all {
		if j.holds {
			held = append(held, j.text())
		} else {
			missed = append(missed, j.text())
		}
	}
	if len(held) > 0 {
		sentences = append(sentences, "Targets that hold"+where+": "+strings.Join(held, "; ")+".")
	}
	if len(missed) > 0 {
		sentences = append(sentences, "Targets that are missed"+where+": "+strings.Join(missed, "; ")+".")
	}
	return sentences
}
