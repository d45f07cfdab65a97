// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy/snippet"
)

// place is the part of the configuration that a line comes from.
type place struct {
	service lb.ServiceKey
	field   string
	engine  bool
}

// wrap returns an error about the place.
func (p place) wrap(err error) error {
	if p == (place{}) {
		return err
	}
	return &FieldError{Service: p.service, Field: p.field, Engine: p.engine, Err: err}
}

// line is a line of the file.
type line struct {
	text string
	from place
}

// sectionWriter collects the lines of a section, and the first error.
type sectionWriter struct {
	lines []line
	from  place
	err   error
}

// section begins a section: a comment names its subject.
func (t *sectionWriter) section(comment, kind string, names ...string) {
	t.lines = append(t.lines, line{text: ""}, line{text: "# " + printableComment(comment)})
	t.lines = append(t.lines, line{text: strings.Join(append([]string{kind}, names...), " "), from: t.from})
}

// add adds a line of words, quoted so that HAProxy reads each literally; field is the field that they come from.
func (t *sectionWriter) add(field string, words ...string) {
	from := t.from
	from.field = field
	quoted := make([]string, len(words))
	for i, w := range words {
		q, err := quote(w)
		if err != nil && t.err == nil {
			t.err = from.wrap(err)
		}
		quoted[i] = q
	}
	t.lines = append(t.lines, line{text: "    " + strings.Join(quoted, " "), from: from})
}

// setError records an error about a field.
func (t *sectionWriter) setError(field string, err error) {
	if err == nil || t.err != nil {
		return
	}
	from := t.from
	from.field = field
	t.err = from.wrap(err)
}

// verbatim adds lines of HAProxy's own language, which must not leave their section.
func (t *sectionWriter) verbatim(field, lines string, ours map[string]string) {
	if strings.TrimSpace(lines) == "" {
		return
	}
	t.setError(field, snippet.Check(lines, ours))
	from := t.from
	from.field = field
	for text := range strings.Lines(lines) {
		t.lines = append(t.lines, line{text: "    " + snippet.TrimLine(text), from: from})
	}
}

// quote quotes a word for HAProxy's configuration (configuration manual, section 2.2): within single quotes, every
// character but the single quote is literal.
func quote(word string) (string, error) {
	if i := strings.IndexFunc(word, isControl); i >= 0 {
		return "''", fmt.Errorf("%q has a control character at byte %d: %w; remove it", word, i, ErrValue)
	}
	if word != "" && strings.IndexFunc(word, needsQuote) < 0 {
		return word, nil
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'", nil
}

// isControl reports whether a character could end a line or a word, whatever the quotation.
func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// needsQuote reports whether a character is special outside of quotes.
func needsQuote(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("._:/,()@-+=[]{}!<>|*%?&~^;", r)
}

// printableComment returns text for a comment, without characters that could end its line.
func printableComment(s string) string {
	return strings.Map(func(r rune) rune {
		if isControl(r) {
			return ' '
		}
		return r
	}, s)
}

// literalFormat escapes a value for a place where HAProxy expects a log format.
func literalFormat(value string) string { return strings.ReplaceAll(value, "%", "%%") }

// milliseconds returns a duration as HAProxy's configuration writes it. Less than a millisecond is rounded up to one: 0
// would mean no bound.
func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%dms", max((d+time.Millisecond-1)/time.Millisecond, 1))
}
