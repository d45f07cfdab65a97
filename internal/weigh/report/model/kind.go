// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Registration is how a kind of load makes itself known.
type Registration struct {
	// Titles describe loads of this kind in words, by their names in suites; Name heads those with other names.
	Titles map[string]string
	Name   string
	// Of says how a load is reported; nil if it is of another kind.
	Of func(*Section) *Kind
}

// Kind is how a load is reported: the figures that it compares and the charts that it draws. Question, Sheets and
// Verdict must be there. The other fields may be left out; each has a default.
type Kind struct {
	// Question ends the sentence on the question of the run.
	Question string
	// Sheets are its tables, Verdict the conclusions from them, in sentences.
	Sheets  func(*Section) []Sheet
	Verdict func(*Section) []string
	// Figures are its charts. Without: none.
	Figures func(*Section, *chart.Palette) []chart.Figure
	// Drawn are the one or two charts of a picture in a file. Without: the first of Figures.
	Drawn func(*Section, *chart.Palette) []chart.Figure
	// OnePoint says that a picture shows the point with the most subjects, and not all of them.
	OnePoint bool
	// Answer, Overview and Picture are those of the first screen. Without: those of the ranking, or else of Verdict,
	// Sheets and Figures.
	Answer   func(*Section) []string
	Overview func(*Section) *Sheet
	Picture  func(*Section) *chart.Figure
	// Sure says how sure Answer is. Without: an explanation of the ranking's interval, if there is one.
	Sure func(*Section) string
	// Yardstick is the figure that subjects are ranked by. Without: by nothing, for more than one figure counts.
	Yardstick func(*Section) Yardstick
	// BestOfPoint says that one balancer can be better than another at each point by the yardstick.
	BestOfPoint bool
	// Compared is the figure by which two runs are held against each other. Without: the load's rate.
	Compared *RateMetric
	// Expected is a subject that has a row in each table, measured or not. Without: there is none.
	Expected string
	// Reading says how its figures are to be read; OfRepeats that they are medians of interleaved repeats, ReadFirst
	// that this stands before the texts of other kinds.
	Reading              []Paragraph
	OfRepeats, ReadFirst bool
}

// Paragraph explains one thing about how to read the figures.
type Paragraph struct{ Head, Text string }

// titleOf describes the load in words, in those of a kind that knows it, and has its name where those are of any such
// load.
func titleOf(s *Section, registered []Registration) string {
	name := ""
	for _, r := range registered {
		if r.Of(s) == nil {
			continue
		}
		if title, ok := r.Titles[s.Load]; ok {
			return title
		}
		name = cmp.Or(name, r.Name)
	}
	if name == "" {
		return wording.Clean(s.Load)
	}
	return name + ": " + wording.Clean(s.Load)
}

// kindOf returns how a load is reported: by the first that knows it.
func kindOf(s *Section, registered []Registration) *Kind {
	for _, r := range registered {
		if k := r.Of(s); k != nil {
			return k
		}
	}
	return &Kind{Question: "what does each do", Sheets: func(*Section) []Sheet { return nil },
		Verdict: func(*Section) []string { return nil }}
}

// HasParam says whether trials of the section have a parameter.
func (s *Section) HasParam(name string) bool {
	return slices.ContainsFunc(s.Trials, func(t results.Trial) bool { return t.Params[name] != nil })
}
