// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
)

// Contenders are the subjects of the verdict: our own; in a run without any of them, all but the baselines; and if
// there is no other, the proxy.
func (s *Section) Contenders() []string {
	var own, others []string
	for _, name := range s.Subjects {
		switch {
		case !s.Measured(name):
		case strings.HasPrefix(name, OwnPrefix):
			own = append(own, name)
		case name != BaselineSubject && name != s.Baseline && name != ProxySubject && name != EmptySubject &&
			name != swapSubject:
			others = append(others, name)
		}
	}
	switch {
	case len(own) > 0:
		return own
	case len(others) == 0 && s.Measured(ProxySubject):
		return []string{ProxySubject}
	}
	return others
}

// Verdict states in sentences the conclusions from the figures of a load.
func Verdict(s *Section) []string {
	if !slices.ContainsFunc(s.Points(), func(p *Point) bool { return p.Valid > 0 }) {
		return nil // the answer says so
	}
	return s.Kind.Verdict(s)
}

// RateVerdict compares the rates of a load with targets, and names the saturated parts.
func RateVerdict(s *Section, floors []Floor) []string {
	var sentences []string
	for _, v := range floorVerdict(s, floors) {
		sentences = append(sentences, s.Title()+": "+v)
	}
	if v := SaturationVerdict(s); v != "" {
		sentences = append(sentences, s.Title()+": "+v)
	}
	return sentences
}

// OverPoints states the number of points of a range.
func OverPoints(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" (over %d points)", n)
}

// saturatedWords begin the text of SaturationVerdict.
const saturatedWords = "what was saturated, by trials: "

// SaturationVerdict names for each subject the part that limited it.
func SaturationVerdict(s *Section) string {
	var parts []string
	for _, name := range s.Subjects {
		var words []string
		for _, p := range s.Points() {
			if p.Subject == name {
				words = append(words, p.Limits...)
			}
		}
		if len(words) > 0 {
			parts = append(parts, wording.Clean(name)+" "+Tally(words, true))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	_, _, noun := s.Rate()
	return saturatedWords + strings.Join(parts, "; ") +
		". Only where that is the balancer, its " + noun + " are its ceiling."
}
