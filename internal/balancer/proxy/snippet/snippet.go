// SPDX-License-Identifier: Apache-2.0

// Package snippet checks lines in HAProxy's own language that a configuration has for settings without a key.
package snippet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Err means that lines of HAProxy's own language would reach beyond the section that they are for.
var Err = errors.New("not allowed in these lines")

// Sections begin a section of HAProxy's configuration, in 2.6 and in later versions.
var Sections = []string{"global", "defaults", "frontend", "backend", "listen", "peers", "resolvers", "mailers",
	"userlist", "program", "http-errors", "ring", "log-forward", "log-profile", "cache", "fcgi-app", "crt-store",
	"traces", "acme", "healthcheck"}

// GlobalKeys are the keywords of the section "global" that a key of Jeoul's sets, with that key, and those that are
// Jeoul's alone, with "".
var GlobalKeys = map[string]string{
	"nbthread": "threads", "cpu-map": "cpu_map", "maxconn": "connections", "hard-stop-after": "hard_stop",
	"user": "user", "group": "group",
	"uid": "user", "gid": "group", "daemon": "", "master-worker": "", "nbproc": "", "pidfile": "", "chroot": "",
	"localpeer": "", "mworker-max-reloads": "", "zero-warning": "", "quiet": "",
}

// Check refuses lines that would reach beyond their section: one that begins another, or a condition that would hide
// lines behind it. It also refuses keywords of ours, which a key sets or the engine alone has. HAProxy itself checks
// the rest.
func Check(lines string, ours map[string]string) error {
	if !utf8.ValidString(lines) {
		return fmt.Errorf("the lines are not UTF-8: %w", Err)
	}
	number := 0
	for text := range strings.Lines(lines) {
		number++
		if err := checkLine(TrimLine(text), ours); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	return nil
}

// TrimLine returns a line without its indentation and its end.
func TrimLine(line string) string { return strings.TrimLeft(strings.TrimRight(line, "\r\n"), " \t") }

func checkLine(text string, ours map[string]string) error {
	if strings.ContainsFunc(text, func(r rune) bool { return isControl(r) && r != '\t' }) {
		return fmt.Errorf("a control character is %w: remove it", Err)
	}
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
		return nil
	}
	if strings.HasSuffix(text, `\`) {
		return fmt.Errorf("a backslash at the end is %w: write it in one line", Err)
	}
	// HAProxy unquotes a quoted word, and sees the keyword.
	first, _, _ := strings.Cut(fields[0], "#")
	key, has := ours[first]
	switch {
	case strings.ContainsAny(first, `'"\$`):
		return fmt.Errorf("a first word with a quotation, a backslash or a variable (%s) is %w: write it plainly",
			first, Err)
	case slices.Contains(Sections, first):
		return fmt.Errorf("%q begins a section of HAProxy's and is %w: write lines of this section only",
			first, Err)
	case strings.HasPrefix(first, "."):
		return fmt.Errorf("%q is a condition or a message of HAProxy's preprocessor and is %w", first, Err)
	case has && key != "":
		return fmt.Errorf("%q is %w: the key %q sets it", first, Err, key)
	case has:
		return fmt.Errorf("%q is %w: Jeoul decides it, for it starts and reloads HAProxy", first, Err)
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
