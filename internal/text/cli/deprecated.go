// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Deprecated is a spelling of a flag that was replaced. It still works until the release that the program names.
type Deprecated struct {
	// Commands are the commands that had the flag, such as "bench packets".
	Commands []string
	// Flag is the old spelling, with its hyphens: --json, or -o.
	Flag string
	// Takes reports whether the flag takes a value. If Value is set, only that value is replaced. If Old is set, it
	// reports whether a value is replaced.
	Takes bool
	Value string
	Old   func(value string) bool
	// New has the replacement. If the flag takes a value, the value follows, unless Value is set.
	New string
}

// Modernise replaces deprecated spellings on a command line, and returns a notice for each.
func Modernise(app *kong.Application, args []string, old []Deprecated, until string) (words, notices []string) {
	node, rest := walk(app.Node, args)
	words = slices.Clone(args[:len(args)-len(rest)])
	name := Name(node)
	for i := 0; i < len(rest); i++ {
		if rest[i] == "--" {
			return append(words, rest[i:]...), notices
		}
		d, value, used := find(old, name, rest[i:])
		if used == 0 {
			words = append(words, rest[i])
			continue
		}
		i += used - 1
		replaced := strings.Fields(d.New)
		if d.Takes && d.Value == "" {
			replaced[len(replaced)-1] += "=" + value
		}
		words = append(words, replaced...)
		notices = append(notices, fmt.Sprintf("`%s` of `%s` is deprecated, and works until %s: write `%s`",
			strings.TrimSpace(d.Flag+" "+d.Value), Called(app, node), until, d.New))
	}
	return words, notices
}

// find returns the deprecated spelling at the beginning of a command's words, its value, and the number of words that
// it takes; 0 if there is none.
func find(old []Deprecated, command string, words []string) (d Deprecated, value string, used int) {
	for _, d := range old {
		if !slices.Contains(d.Commands, command) {
			continue
		}
		value, used := d.match(words)
		if used > 0 && (d.Value == "" || d.Value == value) && (d.Old == nil || d.Old(value)) {
			return d, value, used
		}
	}
	return Deprecated{}, "", 0
}

// match returns the spelling's value, and the number of words that it takes.
func (d Deprecated) match(words []string) (value string, used int) {
	after, begins := strings.CutPrefix(words[0], d.Flag)
	short := !strings.HasPrefix(d.Flag, "--")
	switch {
	case !begins:
		return "", 0
	case !d.Takes && after == "":
		return "", 1
	case !d.Takes:
		return "", 0
	case after == "" && len(words) > 1:
		return words[1], 2
	case short && after != "":
		return after, 1
	}
	value, inline := strings.CutPrefix(after, "=")
	if !inline {
		return "", 0
	}
	return value, 1
}
