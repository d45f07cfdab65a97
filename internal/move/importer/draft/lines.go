// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/jeoul/jeoul/internal/move/remark"
)

// MaxBytes limits the size of an input, with all files that it includes.
const MaxBytes = 10 << 20

// MaxLine limits the length of a line, in bytes. A longer line is no configuration.
const MaxLine = 64 << 10

// Line is a line of an input.
type Line struct {
	At   remark.At
	Text string
}

// Lines returns the lines of a file, and notes them: Account leaves out each line that no reader has noted, as not
// understood. An error names the line from which on the file cannot be read.
func (d *Draft) Lines(file File) ([]Line, error) {
	size := len(file.Data)
	for _, line := range d.lines {
		size += len(line.Text) + 1
	}
	if size > MaxBytes {
		return nil, fmt.Errorf(
			"%s: with this file the input has %d bytes, and may have %d; import a part of it at a time", file.Name,
			size, MaxBytes)
	}
	data := bytes.TrimPrefix(file.Data, []byte("\xef\xbb\xbf"))
	var lines []Line
	for text := range bytes.Lines(data) {
		at := remark.At{File: file.Name, Line: len(lines) + 1}
		text = bytes.TrimRight(text, "\r\n")
		switch {
		case bytes.IndexByte(text, 0) >= 0:
			return nil, fmt.Errorf("%s: a zero byte: this is no text, or one in UTF-16; convert it by `iconv -t UTF-8`",
				at)
		case !utf8.Valid(text):
			return nil, fmt.Errorf("%s: not UTF-8; convert the file by `iconv -f ENCODING -t UTF-8`", at)
		case len(text) > MaxLine:
			return nil, fmt.Errorf("%s: a line of %d bytes, where %d are the most", at, len(text), MaxLine)
		}
		lines = append(lines, Line{at, string(text)})
		d.texts[at] = string(text)
	}
	d.lines = append(d.lines, lines...)
	return lines, nil
}

// Blank reports whether a line is empty, or a comment that begins with one of the marks.
func (l Line) Blank(marks string) bool {
	text := strings.TrimSpace(l.Text)
	return text == "" || strings.ContainsRune(marks, rune(text[0]))
}

// signatures identify dialects by a line that only they have.
var signatures = []struct {
	dialect string
	pattern *regexp.Regexp
}{
	{"ipvsadm", regexp.MustCompile(
		`^\s*((sudo\s+)?\S*ipvsadm\s+)?(-[AaE]|--add-service|--add-server)\s+(-[tuf6]|--(tcp|udp|fwmark)-service)\b`)},
	{"iptables", regexp.MustCompile(
		`^(\*(nat|filter|mangle|raw|security)\s*$|\s*(sudo\s+)?\S*ip6?tables\s+-|-A\s+\S+\s+.*-j\s)`)},
	{"nftables", regexp.MustCompile(`^\s*(table\s+(ip|ip6|inet|arp|bridge|netdev)\s+\S+\s*\{|\{\s*"nftables"\s*:)`)},
	{"keepalived",
		regexp.MustCompile(
			`^\s*(global_defs|virtual_server(_group)?\s.*|vrrp_(instance|sync_group|script)\s.*)\s*\{?\s*$`)},
	{"haproxy", regexp.MustCompile(`^(global|defaults|(frontend|backend|listen)\s+\S+)(\s|$)`)},
	{"nginx", regexp.MustCompile(`^\s*((stream|http|events)\s*\{|(upstream\s+\S+|server)\s*\{)`)},
}

// CheckDialect returns nil if a line is of the dialect of the draft. Otherwise the error names the dialect that the
// lines are of, if there is one.
func (d *Draft) CheckDialect(lines []Line) error {
	for _, s := range signatures {
		if s.dialect == d.Dialect && anyMatches(lines, s.pattern) != nil {
			return nil
		}
	}
	for _, s := range signatures {
		if at := anyMatches(lines, s.pattern); at != nil {
			return fmt.Errorf("%s: `%s` is of %s, and nothing in the file is of %s; write `jeoul import %s`", at,
				d.Text(*at), s.dialect, d.Dialect, s.dialect)
		}
	}
	return fmt.Errorf("%s: nothing in the file is of %s", d.Input, d.Dialect)
}

// anyMatches returns the position of the first line that matches, or nil.
func anyMatches(lines []Line, pattern *regexp.Regexp) *remark.At {
	for _, line := range lines {
		if pattern.MatchString(line.Text) {
			return &line.At
		}
	}
	return nil
}

// Account leaves out, as not understood, each line that no reader has noted. Comments begin with one of the marks.
func (d *Draft) Account(marks string) {
	for _, line := range d.lines {
		if !d.Noted(line.At) && !line.Blank(marks) {
			d.Left(line.At, "not understood; look at it by hand")
		}
	}
}

// Carried returns the lines that are in the configuration.
func (d *Draft) Carried() []remark.At {
	var lines []remark.At
	for _, line := range d.lines {
		if d.carried[line.At] {
			lines = append(lines, line.At)
		}
	}
	return lines
}

// Noted reports whether a reader has carried over a line or remarked on it.
func (d *Draft) Noted(at remark.At) bool { return d.carried[at] || d.remarked[at] }
