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

// fits reports whether words fit in a line. A line holds no control characters.
func fits(words []string) bool {
	line := quoted(words)
	return len(words) <= mostWords && len(line) <= mostBytes && !strings.ContainsFunc(line, unicode.IsControl)
}

// quoted joins words into a line, and quotes each word that needs it.
func quoted(words []string) string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = quote(word)
	}
	return strings.Join(all, " ")
}

// quote quotes a word so that HAProxy reads it literally. Within single quotation marks every character is literal
// except the single quotation mark itself (section 2.2).
func quote(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\"'\\#$") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// name returns a text as the name of a section or a server. Characters other than ASCII letters and digits, and - _ . :
// become hyphens.
func name(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_.:", r):
			return r
		}
		return '-'
	}, text)
}
