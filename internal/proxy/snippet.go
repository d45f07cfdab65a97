// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// sections begin a section of HAProxy's configuration, in 2.6 and what has come since.
var sections = []string{"global", "defaults", "frontend", "backend", "listen", "peers", "resolvers", "mailers",
	"userlist", "program", "http-errors", "ring", "log-forward", "log-profile", "cache", "fcgi-app", "crt-store",
	"traces", "acme", "healthcheck"}

// globalKeys are what of the section "global" has a key, or is Jeoul's alone, and which key that is.
var globalKeys = map[string]string{
	"nbthread": "threads", "cpu-map": "cpu_map", "maxconn": "connections", "hard-stop-after": "hard_stop",
	"user": "user", "group": "group",
	"uid": "user", "gid": "group", "daemon": "", "master-worker": "", "nbproc": "", "pidfile": "", "chroot": "",
	"localpeer": "", "mworker-max-reloads": "", "zero-warning": "", "quiet": "",
}

// checkSnippet refuses lines that would reach beyond their section: one that begins another, or a condition that
// would hide lines behind it. Of ours, lines that have a key or are the engine's. What lines otherwise mean,
// HAProxy judges.
func checkSnippet(lines string, ours map[string]string) error {
	if !utf8.ValidString(lines) {
		return fmt.Errorf("the lines are not UTF-8: %w", ErrSnippet)
	}
	number := 0
	for text := range strings.Lines(lines) {
		number++
		if err := checkLine(bare(text), ours); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	return nil
}

// bare returns a line without what indents and ends it.
func bare(line string) string { return strings.TrimLeft(strings.TrimRight(line, "\r\n"), " \t") }

func checkLine(text string, ours map[string]string) error {
	if strings.ContainsFunc(text, func(r rune) bool { return control(r) && r != '\t' }) {
		return fmt.Errorf("a control character is %w: remove it", ErrSnippet)
	}
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
		return nil
	}
	if strings.HasSuffix(text, `\`) {
		return fmt.Errorf("a backslash at the end is %w: write it in one line", ErrSnippet)
	}
	// What a quotation hides, HAProxy sees.
	first, _, _ := strings.Cut(fields[0], "#")
	key, has := ours[first]
	switch {
	case strings.ContainsAny(first, `'"\$`):
		return fmt.Errorf("a first word with a quotation, a backslash or a variable (%s) is %w: write it plainly", first, ErrSnippet)
	case slices.Contains(sections, first):
		return fmt.Errorf("%q begins a section of HAProxy's and is %w: write what belongs into this section only", first, ErrSnippet)
	case strings.HasPrefix(first, "."):
		return fmt.Errorf("%q is a condition or a message of HAProxy's preprocessor and is %w", first, ErrSnippet)
	case has && key != "":
		return fmt.Errorf("%q is %w: the key %q sets it", first, ErrSnippet, key)
	case has:
		return fmt.Errorf("%q is %w: Jeoul decides it, for it starts and reloads HAProxy", first, ErrSnippet)
	}
	return nil
}
