// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// phrase is a text of ours, or of a run's notes, in English and in another
// language. In the English one, {} stands for any words and {n} for a number or
// a range of numbers; in the other one, {1}, {2}, … stand for what they matched,
// translated in its turn.
//
// Texts are translated once they are whole, and not where they are made: notes
// come from results files, which are written in English by runs of any age.
type phrase struct{ english, other string }

// translator turns whole texts into another language. The zero value leaves them
// as they are.
type translator struct {
	exact    map[string]string
	patterns []pattern
	// missed collects the texts for which there is no phrase, for tests.
	missed map[string]bool
}

type pattern struct {
	expression *regexp.Regexp
	other      string
	// fixed is the length of what is no placeholder: the more, the better it fits.
	fixed int
}

// placeholder is what a phrase leaves open.
var placeholder = regexp.MustCompile(`\{n?\}`)

// aNumber is what {n} matches: a number, a range of them, or a ratio.
const aNumber = `([−+-]?\d[\d.,]*(?:e[+-]?\d+)?(?:–[−+-]?\d[\d.,]*)?)`

func newTranslator(phrases ...[]phrase) *translator {
	t := &translator{exact: map[string]string{}}
	for _, p := range slices.Concat(phrases...) {
		if !placeholder.MatchString(p.english) {
			t.exact[p.english] = p.other
			continue
		}
		t.patterns = append(t.patterns, compile(p))
	}
	slices.SortStableFunc(t.patterns, func(a, b pattern) int { return cmp.Compare(b.fixed, a.fixed) })
	return t
}

func compile(p phrase) pattern {
	var expression strings.Builder
	expression.WriteString(`(?s)^`)
	rest, fixed := p.english, 0
	for _, at := range placeholder.FindAllStringIndex(p.english, -1) {
		begin := at[0] - (len(p.english) - len(rest))
		expression.WriteString(regexp.QuoteMeta(rest[:begin]))
		fixed += begin
		if p.english[at[0]:at[1]] == "{n}" {
			expression.WriteString(aNumber)
			fixed++
		} else {
			expression.WriteString(`(.+?)`)
		}
		rest = p.english[at[1]:]
	}
	expression.WriteString(regexp.QuoteMeta(rest) + `$`)
	return pattern{regexp.MustCompile(expression.String()), p.other, fixed + len(rest)}
}

// text translates a whole text. What no phrase is known for is taken apart at
// the signs that join texts of ours; what is left stays English.
func (t *translator) text(s string) string {
	if t.exact == nil || !wordy.MatchString(s) {
		return s
	}
	if other, ok := t.exact[s]; ok {
		return other
	}
	for _, p := range t.patterns {
		if match := p.expression.FindStringSubmatch(s); match != nil {
			return t.fill(p.other, match[1:])
		}
	}
	for _, joint := range []string{"\n", " · ", "; ", ". ", ": ", ", ", " and "} {
		if first, rest, ok := strings.Cut(s, joint); ok && first != "" && rest != "" {
			return t.text(first) + t.joint(joint) + t.text(rest)
		}
	}
	if bare, ok := strings.CutSuffix(s, "."); ok {
		return t.text(bare) + "."
	}
	if t.missed != nil && !verbatim.MatchString(s) {
		t.missed[s] = true
	}
	return s
}

// joint is what joins two texts in the other language.
func (t *translator) joint(english string) string {
	if other, ok := t.exact[english]; ok {
		return other
	}
	return english
}

var (
	// wordy is a text that has a word at all.
	wordy = regexp.MustCompile(`[A-Za-z]{2}`)
	// verbatim is what has no translation: names, versions, paths, units.
	verbatim = regexp.MustCompile(`^[^ ]*[-_/.\d:=%][^ ]*$|^(nginx|haproxy|HAProxy|iptables|jeoul|direct|routed|bare|empty|macswap|[A-Z0-9]+|[kMGT]?i?B|[mnµ]?s|p\d+)$`)
)

// fill puts what was matched into the translation.
func (t *translator) fill(other string, matched []string) string {
	for i, m := range matched {
		other = strings.ReplaceAll(other, fmt.Sprintf("{%d}", i+1), t.text(m))
	}
	return other
}

// all translates every text of a list.
func (t *translator) all(texts []string) []string {
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i] = t.text(s)
	}
	return out
}
