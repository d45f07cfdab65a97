// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// wholeCommands are the commands that read the model of all commands when they run.
var wholeCommands = []string{"completion", "man"}

// parseOne parses a command line by a grammar of the one command that the line names: to build the grammar of all takes
// longer than most commands take to answer. It returns nil, and has written nothing, where that cannot be: the line
// names no command, asks for help or to be completed, or is wrong, which only who knows all commands can explain.
func parseOne(ctx context.Context, args []string, stdout, stderr io.Writer) *kong.Context {
	if len(args) == 0 || os.Getenv("COMP_LINE") != "" || asksForHelp(args) || slices.Contains(wholeCommands, args[0]) {
		return nil
	}
	if _, deprecated := deprecatedCommands[args[0]]; deprecated {
		return nil
	}
	grammar := grammarOf(args[0])
	if grammar == nil {
		return nil
	}
	exited := false
	parser, err := newParserOf(grammar, ctx, stdout, stderr, kong.Exit(func(int) { exited = true }))
	if err != nil {
		return nil
	}
	var warnings bytes.Buffer
	command, err := parser.Parse(modernised(parser, args, &warnings))
	if err != nil || exited {
		return nil
	}
	_, _ = stderr.Write(warnings.Bytes()) // as all that is written there
	return command
}

// asksForHelp says whether a word of a command line may be one by which help is asked for.
func asksForHelp(args []string) bool {
	return slices.ContainsFunc(args, func(word string) bool {
		return word == "help" || word == "--help" || (strings.HasPrefix(word, "-") && strings.Contains(word, "h"))
	})
}

// grammarOf returns what kong reads a command line by whose command has this name, as it stands among all commands; nil
// where there is none.
func grammarOf(name string) any {
	all := reflect.TypeFor[commands]()
	for i := range all.NumField() {
		if field := all.Field(i); strings.ToLower(field.Name) == name {
			return reflect.New(reflect.StructOf([]reflect.StructField{field})).Interface()
		}
	}
	return nil
}
