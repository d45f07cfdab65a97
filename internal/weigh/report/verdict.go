// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"slices"
	"strings"
)

// contenders are the subjects that the verdict is about: our own, or, in a run
// without any, all but the baselines, or else the proxy.
func (s *section) contenders() []string {
	var own, others []string
	for _, name := range s.Subjects {
		switch {
		case !s.measured(name):
		case strings.HasPrefix(name, ownPrefix):
			own = append(own, name)
		case name != baselineSubject && name != s.Baseline && name != proxySubject && name != emptySubject &&
			name != swapSubject:
			others = append(others, name)
		}
	}
	switch {
	case len(own) > 0:
		return own
	case len(others) == 0 && s.measured(proxySubject):
		return []string{proxySubject}
	}
	return others
}

// span is the range of a ratio over the groups.
type span struct {
	low, high float64
	n         int
}

func (s *span) add(r float64, ok bool) {
	if !ok {
		return
	}
	if s.n == 0 {
		s.low, s.high = r, r
	}
	s.low, s.high, s.n = min(s.low, r), max(s.high, r), s.n+1
}

// text formats the range with format, once if both ends look the same.
func (s span) text(format func(float64) string) string {
	low, high := format(s.low), format(s.high)
	if low == high {
		return low
	}
	return strings.TrimSuffix(low, " ×") + "–" + high
}

// verdict says in sentences what the figures of a load show.
func verdict(s *section) []string {
	if !slices.ContainsFunc(s.points(), func(p *point) bool { return p.Valid > 0 }) {
		return nil // the answer says so
	}
	if kind := s.kind(); kind != nil {
		return kind.verdict(s)
	}
	if s.isPackets() {
		return packetVerdict(s)
	}
	if s.laddered() {
		return append(arrivalVerdict(s), prefixedSaturation(s)...)
	}
	var sentences []string
	for _, v := range floorVerdict(s) {
		sentences = append(sentences, s.title()+": "+v)
	}
	if v := saturationVerdict(s); v != "" {
		sentences = append(sentences, s.title()+": "+v)
	}
	return sentences
}

// overPoints says over how many points a range goes.
func overPoints(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" (over %d points)", n)
}

// saturatedWords begin saturationVerdict.
const saturatedWords = "what was saturated, by trials: "

// saturationVerdict says for each subject what limited it.
func saturationVerdict(s *section) string {
	var parts []string
	for _, name := range s.Subjects {
		var words []string
		for _, p := range s.points() {
			if p.Subject == name {
				words = append(words, p.saturated...)
			}
		}
		if len(words) > 0 {
			parts = append(parts, wording.Clean(name)+" "+tally(words, true))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	_, _, noun := s.rate()
	return saturatedWords + strings.Join(parts, "; ") +
		". Only where that is the balancer, its " + noun + " are its ceiling."
}
