// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
)

// Span is the range of a ratio over the groups.
type Span struct {
	Low, High float64
	N         int
}

// Add includes a figure, if ok.
func (s *Span) Add(r float64, ok bool) {
	if !ok {
		return
	}
	if s.N == 0 {
		s.Low, s.High = r, r
	}
	s.Low, s.High, s.N = min(s.Low, r), max(s.High, r), s.N+1
}

// Text formats the range with format, once if both ends look the same.
func (s Span) Text(format func(float64) string) string {
	low, high := format(s.Low), format(s.High)
	if low == high {
		return low
	}
	return strings.TrimSuffix(low, " ×") + "–" + high
}

// TargetResult is a target, and the figures that are compared with it.
type TargetResult struct {
	What, Bound string
	Figures     Span
	Format      func(float64) string
	Holds       bool
	// Least: the bound is a lower one.
	Least bool
	// Beside is a remark on the figures.
	Beside string
	// Words replace the text of all fields but Holds.
	Words string
}

func (j TargetResult) text() string {
	if j.Words != "" {
		return j.Words
	}
	figures := strings.TrimSuffix(j.Figures.Text(j.Format), " ×")
	figures += j.Beside
	sign := "≤"
	if j.Least {
		sign = "≥"
	}
	return fmt.Sprintf("%s %s %s (%s)", j.What, sign, j.Bound, figures)
}

// TargetSentences returns a sentence on the targets met, and one on those missed.
func TargetSentences(all []TargetResult, where string) []string {
	var held, missed, sentences []string
	for _, j := range all {
		if j.Holds {
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

// Floor is the least ratio that a subject of ours must reach.
type Floor struct {
	Mode    lb.Mode
	Against string
	Metric  string
	Least   float64
	// Streams is the least number of streams that the target applies to, and From the place of the clients that it
	// applies to; empty: any.
	Streams float64
	From    string
}

// LocalOverDirect is the least ratio of the rate of clients on the balancer's host to their rate without a balancer.
const LocalOverDirect = 0.97

// floorVerdict states which of the targets that the load measures hold.
func floorVerdict(s *Section, floors []Floor) []string {
	rate, _, _ := s.Rate()
	var all []TargetResult
	for _, f := range floors {
		if f.Metric != rate {
			continue
		}
		for _, subject := range s.Subjects {
			if !strings.HasPrefix(subject, OwnPrefix+string(f.Mode)+"-") {
				continue
			}
			var over Span
			for _, g := range s.Groups {
				if v, ok := g.Params[ParamStreams]; (!ok || v.Number >= f.Streams) && g.Is(f.From) {
					over.Add(RatioOf(g.Best(subject, rate), g.Best(f.Against, rate), rate))
				}
			}
			if over.N > 0 {
				all = append(all, TargetResult{What: wording.Clean(subject),
					Bound: wording.Times(f.Least) + " " + f.Against, Figures: over,
					Format: wording.Times, Holds: over.Low >= f.Least, Least: true})
			}
		}
	}
	return TargetSentences(all, "")
}
