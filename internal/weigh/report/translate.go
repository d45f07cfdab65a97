// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
)

// phrase is a text of the report, or of a run's notes, in English and in another language. A field like {text1} matches
// any words, one like {number2} a number or a range of numbers. In the other language, the field becomes the matched
// text, which is translated in its turn.
//
// Texts are translated once they are complete, and not where they are made: notes come from results files, which runs
// of any age wrote in English.
type phrase struct{ id, english, other string }

// translator turns whole texts into another language. The zero value leaves them
// as they are.
type translator struct {
	// language is the language that the texts are translated into, as BCP 47 names it.
	language string
	exact    map[string]string
	patterns []pattern
	// missed collects the texts that stay English because no phrase matches, for tests.
	missed map[string]bool

	mu sync.Mutex
	// known holds the texts that were translated before.
	known map[string]translated
}

// translated is a text in another language; ok is false if it has no translation.
type translated struct {
	text string
	ok   bool
}

type pattern struct {
	expression *regexp.Regexp
	// parts are the fixed parts of a text that matches, in this order; the text begins with the first. A search for
	// them is faster than the expression.
	parts []string
	// names are the fields, in the order of the expression's groups.
	names []string
	other string
	// fixed is the length of the fixed parts: the longer they are, the better the pattern fits.
	fixed int
}

// placeholder matches a field of a phrase.
var placeholder = regexp.MustCompile(`\{(?:text|number)\d+\}`)

// aNumber matches a field for a number: a number, a range of them, or a ratio.
const aNumber = `([−+-]?` + digits + `(?:–[−+-]?` + digits + `)?)`

// digits ends with a digit: a comma or a full stop behind the digits belongs to the sentence.
const digits = `\d(?:[\d.,]*\d)?(?:e[+-]?\d+)?`

func newTranslator(phrases []phrase) *translator {
	t := &translator{exact: map[string]string{}, known: map[string]translated{}}
	for _, p := range phrases {
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
	var names []string
	for _, at := range placeholder.FindAllStringIndex(p.english, -1) {
		begin := at[0] - (len(p.english) - len(rest))
		expression.WriteString(regexp.QuoteMeta(rest[:begin]))
		fixed += begin
		names = append(names, p.english[at[0]:at[1]])
		if strings.HasPrefix(names[len(names)-1], "{number") {
			expression.WriteString(aNumber)
			fixed++
		} else {
			expression.WriteString(`(.+?)`)
		}
		rest = p.english[at[1]:]
	}
	expression.WriteString(regexp.QuoteMeta(rest) + `$`)
	return pattern{regexp.MustCompile(expression.String()), placeholder.Split(p.english, -1), names, p.other,
		fixed + len(rest)}
}

// text translates a whole text, or leaves it as it is: a text half in one language
// and half in another is harder to read than either.
func (t *translator) text(s string) string {
	if t.exact == nil {
		return s
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	other := t.try(s)
	if !other.ok {
		if t.missed != nil {
			t.missed[s] = true
		}
		return s
	}
	return other.text
}

// try translates a text or a part of one.
func (t *translator) try(s string) translated {
	if !hasWord.MatchString(s) {
		return translated{s, true}
	}
	if known, ok := t.known[s]; ok {
		return known
	}
	t.known[s] = translated{} // ends the recursion: a text is not a part of itself
	other := t.lookup(s)
	t.known[s] = other
	return other
}

// lookup returns the translation of a text: by its phrase, or, where the text joins several, by the translations of its
// parts.
func (t *translator) lookup(s string) translated {
	if other, ok := t.exact[s]; ok {
		return translated{other, true}
	}
	// Lists come first: a phrase with a field for any words would match an item and half of the next one.
	for _, joint := range []string{"; ", " · "} {
		if other := t.items(s, joint); other.ok {
			return other
		}
	}
	// Titles come next: a phrase that begins with such a field would match a title.
	if title, rest, ok := strings.Cut(s, ": "); ok && t.titles(title) {
		if a, b := t.try(title), t.try(rest); a.ok && b.ok {
			return translated{a.text + t.joint(": ") + b.text, true}
		}
	}
	if other := t.sentence(s); other.ok {
		return other
	}
	if other := t.phrase(s, func(*pattern) bool { return true }); other.ok {
		return other
	}
	if verbatim.MatchString(s) && !english.MatchString(s) {
		return translated{s, true}
	}
	for _, joint := range []string{"\n", " · ", ". ", "; ", ": ", ", ", " and ", " – ", " "} {
		first, rest, ok := strings.Cut(s, joint)
		if !ok || first == "" || rest == "" || joint == " " && !named.MatchString(first) {
			continue
		}
		if a, b := t.try(first), t.try(rest); a.ok && b.ok {
			return translated{a.text + t.joint(joint) + b.text, true}
		}
	}
	return translated{}
}

// titles reports whether words before a colon are a title: a known text, or a name.
func (t *translator) titles(s string) bool {
	_, known := t.exact[s]
	return known || verbatim.MatchString(s)
}

// sentence translates a text that ends with a full stop, by a phrase that ends with one, or otherwise without the full
// stop.
func (t *translator) sentence(s string) translated {
	bare, ok := strings.CutSuffix(s, ".")
	if !ok {
		return translated{}
	}
	whole := func(p *pattern) bool { return strings.HasSuffix(p.parts[len(p.parts)-1], ".") }
	if other := t.phrase(s, whole); other.ok {
		return other
	}
	if other := t.try(bare); other.ok {
		return translated{other.text + ".", true}
	}
	return translated{}
}

// phrase translates a text by the first phrase with placeholders that fits, among those that mayMatch accepts.
func (t *translator) phrase(s string, mayMatch func(*pattern) bool) translated {
	for i := range t.patterns {
		if p := &t.patterns[i]; mayMatch(p) {
			if other := t.match(p, s); other.ok {
				return other
			}
		}
	}
	return translated{}
}

// items translates a list, item by item.
func (t *translator) items(s, joint string) translated {
	items := strings.Split(s, joint)
	if len(items) < 2 || slices.Contains(items, "") {
		return translated{}
	}
	for i, item := range items {
		other := t.try(item)
		if !other.ok {
			return translated{}
		}
		items[i] = other.text
	}
	return translated{strings.Join(items, t.joint(joint)), true}
}

// match translates a text by a phrase with placeholders, if the text matches the phrase.
func (t *translator) match(p *pattern, s string) translated {
	if !p.mayMatch(s) {
		return translated{}
	}
	matched := p.expression.FindStringSubmatch(s)
	if matched == nil {
		return translated{}
	}
	other := p.other
	for i, m := range matched[1:] {
		part := t.try(m)
		if !part.ok {
			return translated{}
		}
		other = strings.ReplaceAll(other, p.names[i], part.text)
	}
	return translated{other, true}
}

// mayMatch is a quick test: it returns false for nearly all texts that do not match the pattern.
func (p *pattern) mayMatch(s string) bool {
	if !strings.HasPrefix(s, p.parts[0]) {
		return false
	}
	for _, part := range p.parts {
		at := strings.Index(s, part)
		if at < 0 {
			return false
		}
		s = s[at+len(part):]
	}
	return true
}

// list joins words that are in the other language already.
func (t *translator) list(words []string) string {
	if len(words) < 2 {
		return wording.List(words)
	}
	last := len(words) - 1
	return strings.Join(words[:last], t.joint(", ")) + t.joint(" and ") + words[last]
}

// joint returns the separator between two texts in the other language.
func (t *translator) joint(english string) string {
	if other, ok := t.exact[english]; ok {
		return other
	}
	return english
}

var (
	// hasWord matches a text that has a word at all.
	hasWord = regexp.MustCompile(`[A-Za-z]{2}`)
	// names are the names of programs, modes and schedulers that look like any word.
	names = `jeoul|ab|wrk|nginx|haproxy|netperf|dnsperf|named|envoy|loxilb|nftables|direct|routed|bare|nat|fullnat|ipip|gue|dscp|fo|lc|wlc|maglev|rr|wrr|sh`
	// named matches a word that no language translates, whatever stands beside it: a name with a mark or a digit, a
	// version, a path, an acronym.
	named = regexp.MustCompile(`^(“?[^ ]*[-_/.\d=%@][^ ]*|[A-Z0-9]{2,}|[χ²√µ]+|HAProxy|MemAvailable|` + names +
		`)[”,;:.]?$`)
	// verbatim matches a text without a translation: such a word, or a single word where a phrase has a field for a
	// name.
	verbatim = regexp.MustCompile(named.String() + `|^[a-z0-9χ²√µ]+[”,;:.]?$`)
	// english matches words that are not names: a text that still has one is not completely translated. A word follows
	// an article; no word follows the first label of a domain name. A word that is part of a name ("abort-on-overflow")
	// does not match either.
	english = regexp.MustCompile(
		`(^|[\s(“])((the|is|are|was|were|of|its|it|and|or|per|for|with|that|which|time|at|by|from|as|in|on|to|an|each|more|than)([\s).,;:”]|$)|a )`)
)

// all translates every text of a list.
func (t *translator) all(texts []string) []string {
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i] = t.text(s)
	}
	return out
}
