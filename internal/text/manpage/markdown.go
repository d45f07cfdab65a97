// SPDX-License-Identifier: Apache-2.0

package manpage

import (
	"regexp"
	"strings"
)

// special are the characters with a meaning in Markdown.
const special = "\\*_<>[]#|~{}"

// plain escapes a text for Markdown. It leaves text between backticks, which help texts have around words to type.
func plain(text string) string {
	var b strings.Builder
	code := false
	for _, r := range text {
		if r == '`' {
			code = !code
		}
		if !code && strings.ContainsRune(special, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// prose is plain for a text of several lines. Lines indented by four spaces are an example and stay unchanged.
func prose(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, "    ") {
			lines[i] = plain(line)
		}
	}
	return strings.Join(lines, "\n")
}

// sentence returns a help text without its full stop, for the line that whatis(1) shows.
func sentence(help string) string { return strings.TrimSuffix(help, ".") }

var (
	link    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	comment = regexp.MustCompile(`(?s)<!--.*?-->\n?`)
	title   = regexp.MustCompile(`(?m)^# .*\n`)
)

// Text converts a page in Markdown to the text of a manual page: without its title and comments, and without links,
// which lead to files that a terminal does not have.
func Text(page string) string {
	return link.ReplaceAllString(title.ReplaceAllString(comment.ReplaceAllString(page, ""), ""), "$1")
}
