// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestOneCommandIsParsedAsAmongAll parses command lines of the pages with the grammar of their command, and with that
// of all commands.
func TestOneCommandIsParsedAsAmongAll(t *testing.T) {
	commands := shownCommands(t)
	chdirToDocs(t)
	quick, seen, of := 0, map[string]bool{}, map[string]int{}
	for _, shown := range commands {
		line := strings.Join(shown.words, " ")
		if shown.words[0] != "jeoul" || shown.refused || seen[line] {
			continue
		}
		seen[line] = true
		one := parseOne(t.Context(), shown.words[1:], io.Discard, io.Discard)
		if one == nil {
			continue
		}
		// Building the grammar of all commands takes long: some lines of each command suffice.
		if of[one.Command()]++; of[one.Command()] > 2 {
			continue
		}
		quick++
		parser, err := newParser(t.Context(), io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		all, err := parser.Parse(replaceDeprecated(parser, shown.words[1:], io.Discard))
		if err != nil {
			t.Errorf("%s: among all commands: %v", line, err)
			continue
		}
		if got, want := one.Command(), all.Command(); got != want {
			t.Errorf("%s is %q by itself, %q among all", line, got, want)
		}
		if got, want := commandOf(one), commandOf(all); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is parsed as %+v by itself, as %+v among all", line, got, want)
		}
	}
	if quick < 40 {
		t.Errorf("only %d command lines were parsed by the grammar of one command", quick)
	}
}

// commandOf returns the command that a command line has filled in: its arguments and flags.
func commandOf(parsed *kong.Context) any { return parsed.Selected().Target.Interface() }

// TestOneCommandIsNotEnough has command lines that only the grammar of all commands can answer.
func TestOneCommandIsNotEnough(t *testing.T) {
	for _, line := range []string{"", "--help", "status --help", "status -h", "help", "help status", "statsu",
		"status --jsno", "completion bash", "man", "backend", "get nothing"} {
		var out strings.Builder
		if parseOne(t.Context(), strings.Fields(line), &out, &out) != nil {
			t.Errorf("%q was parsed by the grammar of one command", line)
		}
		if out.Len() > 0 {
			t.Errorf("%q: %s was written", line, out.String())
		}
	}
	t.Setenv("COMP_LINE", "jeoul st")
	if parseOne(t.Context(), []string{"status"}, io.Discard, io.Discard) != nil {
		t.Error("a command line that is to be completed was parsed")
	}
}
