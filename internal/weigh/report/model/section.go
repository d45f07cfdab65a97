// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/certainty"
	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Stat sums up one metric of a point over its valid trials.
type Stat struct {
	Median, Min, Max float64
	N                int
}

// Point is one subject under one load with one set of parameters, over all
// its repeats.
type Point struct {
	Subject string
	Params  Params
	// Label names the subject and its own parameters.
	Label string
	// Trials counts all repeats, Valid those that may be quoted.
	Trials, Valid int
	Stats         map[string]Stat
	// valid are the valid trials.
	valid []results.Trial
	// Saturated sums up Limits, which has a word for each valid trial.
	Saturated string
	Limits    []string
	// Evenness is how many per cent more connections the busiest backend had
	// than the idlest; N is 0 where backends were not counted or one was idle.
	Evenness Stat
	// Idle is the largest number of backends that served nothing in a trial.
	Idle int
	// Shares holds each backend's connections relative to an equal share
	// (1 is exactly that), in the valid trial of median unevenness.
	Shares []float64
}

// AllValid reports whether every trial of the point is valid.
func (p *Point) AllValid() bool { return p.Valid == p.Trials }

// NotValid states how many of the point's trials are not valid: "1 of 3".
func (p *Point) NotValid() string { return fmt.Sprintf("%d of %d", p.Trials-p.Valid, p.Trials) }

// InvalidRemark ends a text on the point with the number of trials that are not valid; it is empty if all are valid.
func (p *Point) InvalidRemark() string {
	if p.AllValid() {
		return ""
	}
	return fmt.Sprintf("; %s trials not valid", p.NotValid())
}

// InvalidText is the text on a point without a valid trial.
func (p *Point) InvalidText() string {
	return fmt.Sprintf("%s: %s trials not valid", wording.Clean(p.Label), p.NotValid())
}

// Has reports whether the point's valid trials have metric.
func (p *Point) Has(metric string) bool { return p.Stats[metric].N > 0 }

// Group holds the points that share the load's parameters, and so can be
// compared with each other.
type Group struct {
	Params Params
	Points []*Point
}

// Best returns the subject's point with the highest median of metric, or nil.
func (g *Group) Best(subject, metric string) *Point {
	var best *Point
	for _, p := range g.Points {
		if p.Subject != subject || !p.Has(metric) {
			continue
		}
		if best == nil || p.Stats[metric].Median > best.Stats[metric].Median {
			best = p
		}
	}
	return best
}

// Section is everything that was measured under one load.
type Section struct {
	Load string
	// Baseline is the subject that the others are compared with.
	Baseline string
	// Subjects in the order of the tables.
	Subjects []string
	Groups   []*Group
	// Invalid are the points without a valid trial; no group has them.
	Invalid []*Point
	// Constant holds the load's parameters that never change.
	Constant Params
	// Varying names the load's parameters that change, Own those of the subjects.
	Varying, Own []string
	Trials       []results.Trial
	// Kind defines how the load is reported; words is the load's name in words.
	Kind  *Kind
	words string
	// ranked is nil until the ranking is computed.
	ranked *ranked
}

// Title is the load's name, in words where they are known.
func (s *Section) Title() string { return s.words }

// Points returns the points of all groups, in the order of the tables.
func (s *Section) Points() []*Point {
	var all []*Point
	for _, g := range s.Groups {
		all = append(all, g.Points...)
	}
	return all
}

// Has reports whether any valid trial under the load has metric.
func (s *Section) Has(metric string) bool {
	return slices.ContainsFunc(s.Points(), func(p *Point) bool { return p.Has(metric) })
}

// Registration registers a kind of load.
type Registration struct {
	// Titles are the names of loads of this kind in words, by their names in suites; Name heads the names of its other
	// loads.
	Titles map[string]string
	Name   string
	// Of returns how a load is reported; nil if it is of another kind.
	Of func(*Section) *Kind
}

// Kind defines how a load is reported: the figures that it compares and the charts that it draws. Question, Sheets and
// Verdict are required. The other fields are optional; each has a default.
type Kind struct {
	// Question ends the sentence on the question of the run.
	Question string
	// Sheets are its tables, Verdict the conclusions from them, in sentences.
	Sheets  func(*Section) []Sheet
	Verdict func(*Section) []string
	// Figures are its charts. Default: none.
	Figures func(*Section, *chart.Palette) []chart.Figure
	// Drawn are the one or two charts of a picture in a file. Default: the first of Figures.
	Drawn func(*Section, *chart.Palette) []chart.Figure
	// OnePoint: a picture shows only the point with the most subjects.
	OnePoint bool
	// Answer, Overview and Picture are those of the first screen. Default: those of the ranking, or otherwise of
	// Verdict, Sheets and Figures.
	Answer   func(*Section) []string
	Overview func(*Section) *Sheet
	Picture  func(*Section) *chart.Figure
	// Sure explains how certain Answer is. Default: an explanation of the ranking's interval, if there is one.
	Sure func(*Section) string
	// Yardstick is the figure that subjects are ranked by. Default: no ranking, because more than one figure counts.
	Yardstick func(*Section) Yardstick
	// BestOfPoint: one balancer can be better than another at each point by the yardstick.
	BestOfPoint bool
	// Compared is the figure by which two runs are compared. Default: the load's rate.
	Compared *RateMetric
	// Expected is a subject that has a row in each table, measured or not. Default: none.
	Expected string
	// Reading explains how to read its figures. OfRepeats adds that they are medians of interleaved repeats. ReadFirst
	// puts Reading before the texts of other kinds.
	Reading              []Paragraph
	OfRepeats, ReadFirst bool
}

// Paragraph explains one thing about how to read the figures.
type Paragraph struct{ Head, Text string }

// Yardstick is the figure that the subjects of a load are ranked by.
type Yardstick struct {
	Metric, Title, Noun string
	// More: higher figures are better.
	More bool
	// Cost is the metric of the balancer's CPU time per CostUnit.
	Cost, CostUnit string
}

// RateMetric is a metric, its column's title, and the noun that it counts.
type RateMetric struct{ Name, Title, Noun string }

// Is reports whether the group's load generators were at a place; an empty word matches any place.
func (g *Group) Is(from string) bool { return from == "" || g.Params[paramFrom].Word == from }

// Ranking holds the subjects of a load in the order of a yardstick.
type Ranking struct {
	Yardstick
	// leader is the best of the balancers. Its difference to those in Tied is not significant; its difference to those
	// in Worse is.
	leader      string
	Tied, Worse []Comparison
	// Reference is the subject to which ratios are shown; ToReference is the leader's comparison with it.
	Reference   string
	ToReference Comparison
}

// ranked is a ranking that was computed.
type ranked struct {
	Ranking
	ok bool
}

// Comparison is the ratio of one subject to another over the points that both have.
type Comparison struct {
	Of, To string
	certainty.Estimate
	// Points is the number of pairs of points, and Repeats the largest number of repeats of one pair.
	Points, Repeats int
}
