// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"strings"
	"unicode"
)

// The limits of a line (section 2.1 of HAProxy's configuration manual): 64 words, and 2048 bytes.
const (
	mostWords = 64
	mostBytes = 2000
)

// fits reports whether words fit a line, which holds no control characters.
func fits(words []string) bool {
	line := quoted(words)
	return len(words) <= mostWords && len(line) <= mostBytes && !strings.ContainsFunc(line, unicode.IsControl)
}

// quoted writes words as a line, each in quotation marks where it needs them.
func quoted(words []string) string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = quote(word)
	}
	return strings.Join(all, " ")
}

// quote writes a word so that HAProxy reads it as it stands: within single quotation marks everything
// does but those (section 2.2).
func quote(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\"'\\#$") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// name returns a text as a name of a section or a server: letters and digits of ASCII, and - _ . :.
func name(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_.:", r):
			return r
		}
		return '-'
	}, text)
}
