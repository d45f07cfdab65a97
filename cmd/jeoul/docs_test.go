// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/jeoul/jeoul/internal/test/testdocs"
	"github.com/jeoul/jeoul/internal/text/cli"
)

// pageCommand is a command of a page: its words, after sudo and the variables before it.
type pageCommand struct {
	at      string // page and line
	words   []string
	refused bool // as the page shows
}

// TestDocsCommands: this program accepts each command line that a page shows; make has the targets, the tree has the
// files, and the API has the operations.
func TestDocsCommands(t *testing.T) {
	root, commands := testdocs.Root(t), shownCommands(t)
	checks := map[string]func(t *testing.T, words []string) error{
		"jeoul": parses(t),
		"make":  targets(t, root),
		"curl":  operations(t, root),
	}
	count := map[string]int{}
	for _, command := range commands {
		name := command.words[0]
		if strings.HasPrefix(name, "scripts/") {
			command.words = append(command.words, name)
		}
		for _, word := range command.words[1:] {
			if err := inTree(root, word); err != nil {
				t.Errorf("%s: %s: %v", command.at, strings.Join(command.words, " "), err)
			}
		}
		if checks[name] == nil {
			continue
		}
		count[name]++
		if err := checks[name](t, command.words[1:]); (err != nil) != command.refused {
			t.Errorf("%s: %s: %v", command.at, strings.Join(command.words, " "), err)
		}
	}
	if count["jeoul"] < 140 || count["make"] < 10 || count["curl"] < 8 {
		t.Errorf("too few commands were found: %v", count)
	}
}

// treePath matches arguments that name files of the tree.
var treePath = regexp.MustCompile(`^(suites|examples|deploy|scripts|docs)/[^*]*$`)

func inTree(root, word string) error {
	if !treePath.MatchString(word) {
		return nil
	}
	_, err := os.Stat(filepath.Join(root, word))
	return err
}

// chdirToDocs changes to a directory like that of a reader of the pages, with the files that the pages name.
func chdirToDocs(t *testing.T) {
	root := testdocs.Root(t)
	dir := t.TempDir()
	for _, folder := range []string{"suites", "examples", "docs", "deploy"} {
		if err := os.Symlink(filepath.Join(root, folder), filepath.Join(dir, folder)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"shop.yaml", "mine.yaml", "jeoul-of-another-commit", "rewriter.o", "rewriter.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// parses returns a check of this program's command lines. It creates files that must exist and that the reader of a
// page has made.
func parses(t *testing.T) func(*testing.T, []string) error {
	chdirToDocs(t)
	return func(t *testing.T, words []string) error {
		// As the program does: building the grammar of all commands takes long.
		if parseOne(t.Context(), words, io.Discard, io.Discard) != nil {
			return nil
		}
		helped := false
		parser, err := newParser(context.Background(), io.Discard, io.Discard, kong.Exit(func(int) { helped = true }))
		if err != nil {
			return err
		}
		if _, err := parser.Parse(words); err != nil && !helped {
			return err
		}
		return nil
	}
}

// targets returns a check of make's command lines.
func targets(t *testing.T, root string) func(*testing.T, []string) error {
	makefile := read(t, filepath.Join(root, "Makefile"))
	return func(_ *testing.T, words []string) error {
		for _, word := range words {
			name, _, variable := strings.Cut(word, "=")
			pattern := `(?m)^` + regexp.QuoteMeta(name) + `:`
			if variable {
				pattern = `(?m)\b` + regexp.QuoteMeta(name) + `\b`
			}
			if !regexp.MustCompile(pattern).MatchString(makefile) {
				return fmt.Errorf("the Makefile has no %s", name)
			}
		}
		return nil
	}
}

// operations returns a check of curl's command lines that call the API.
func operations(t *testing.T, root string) func(*testing.T, []string) error {
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(root, "docs/reference/openapi.json"))),
		&document); err != nil {
		t.Fatal(err)
	}
	return func(_ *testing.T, words []string) error {
		socket := slices.Index(words, "--unix-socket")
		if socket < 0 {
			return nil // it calls a service, or the metrics' own address
		}
		method := "get"
		if i := slices.Index(words, "-X"); i >= 0 {
			method = strings.ToLower(words[i+1])
		}
		for _, word := range words {
			_, rest, is := strings.Cut(word, "http://")
			if !is {
				continue
			}
			_, path, _ := strings.Cut(rest, "/")
			path, _, _ = strings.Cut("/"+path, "?")
			if path == "/metrics" || path == "/openapi.json" {
				return nil
			}
			for pattern, methods := range document.Paths {
				if _, has := methods[method]; has && likePath(pattern, path) {
					return nil
				}
			}
			return fmt.Errorf("the API has no %s %s", method, path)
		}
		return fmt.Errorf("no URL")
	}
}

// likePath reports whether a path matches one of OpenAPI's, whose parts in braces match any part.
func likePath(pattern, path string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	return slices.EqualFunc(want, have, func(want, have string) bool {
		return want == have || strings.HasPrefix(want, "{") && have != ""
	})
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// shownCommands returns the commands of all pages. Text that looks like a command outside of blocks of commands is an
// error.
func shownCommands(t *testing.T) (all []pageCommand) {
	t.Helper()
	for _, page := range testdocs.Pages(t) {
		for _, block := range page.Blocks() {
			commands, err := commandsOf(page.Path, block)
			if err != nil {
				t.Errorf("%s:%d: %v", page.Path, block.Line, err)
			}
			all = append(all, commands...)
		}
	}
	return all
}

// commandLike matches the beginning of a line in a block of commands.
var commandLike = regexp.MustCompile(`(?m)^(\$ |(sudo )?(jeoul|make|curl|systemctl|ip|tc) )`)

// commandsOf returns the commands of a block: all of a `sh` block, and the lines with a prompt of a `console` block.
func commandsOf(path string, block testdocs.Block) ([]pageCommand, error) {
	text, refused := block.Text, map[int]bool{} // lines
	switch block.Language {
	case "sh":
	case "console":
		text, refused = prompted(block.Text)
	default:
		if line := commandLike.FindString(text); line != "" {
			return nil, fmt.Errorf("a block with a command, %q…, that is neither of sh nor of console", line)
		}
		return nil, nil
	}
	file, err := syntax.NewParser().Parse(strings.NewReader(text), path)
	if err != nil {
		return nil, err
	}
	var commands []pageCommand
	config := &expand.Config{
		Env:       expand.ListEnviron("PWD=/", "ID=3f9a", "PATH=/bin", "HOME=/root"),
		CmdSubst:  func(w io.Writer, _ *syntax.CmdSubst) error { _, err := io.WriteString(w, "1"); return err },
		ProcSubst: func(*syntax.ProcSubst) (string, error) { return "/dev/fd/63", nil },
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		call, is := node.(*syntax.CallExpr)
		if !is || len(call.Args) == 0 {
			return true
		}
		words, fails := expand.Fields(config, call.Args...)
		if fails != nil {
			err = fails
			return false
		}
		if words = bare(words); len(words) > 0 {
			line := int(call.Pos().Line())
			commands = append(commands, pageCommand{fmt.Sprintf("%s:%d", path, block.Line+line-1), words,
				refused[line]})
		}
		return true
	})
	return commands, err
}

// prompted returns the commands of a session, each in its line, and the lines of the commands that the program rejects
// there for their syntax.
func prompted(session string) (commands string, refused map[int]bool) {
	refused = map[int]bool{}
	last, number := 0, 0
	for line := range strings.Lines(session) {
		number++
		command, is := strings.CutPrefix(line, "$ ")
		if is {
			last = number
		} else {
			command = "\n"
		}
		if strings.HasPrefix(line, "jeoul: see `jeoul ") {
			refused[last] = true
		}
		commands += command
	}
	return commands, refused
}

// bare returns a command without its launchers: sudo, and env with its variables.
func bare(words []string) []string {
	for len(words) > 0 && (words[0] == "sudo" || words[0] == "env" || strings.Contains(words[0], "=")) {
		words = words[1:]
	}
	return words
}

// inlineJeoul matches commands in text, also those that go on in the next line.
var inlineJeoul = regexp.MustCompile("`(?:sudo )?jeoul ([a-z][^`\n]*(?:\n[^`\n]+)?)`" +
	// `jeoul COMMAND` with `--flag`
	"(?:\\s+(?:with|without)\\s+`(-[^`\n]+)`)?")

// TestDocsMentions: the commands and flags that pages mention in text are those of this program, none of them
// deprecated.
func TestDocsMentions(t *testing.T) {
	parser, err := newParser(context.Background(), io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	mentions := 0
	for _, page := range testdocs.Pages(t) {
		if page.Path == "CHANGELOG.md" || strings.HasPrefix(page.Path, "docs/results/") {
			continue // these pages also mention earlier commands
		}
		for _, match := range inlineJeoul.FindAllStringSubmatch(page.Text, -1) {
			mentions++
			words := strings.Fields(match[1] + " " + match[2])
			if err := spokenOf(parser.Model.Node, words); err != nil {
				t.Errorf("%s: `jeoul %s`: %v", page.Path, strings.Join(words, " "), err)
			}
			_, notices := cli.Modernise(parser.Model, words, deprecations(), deprecatedUntil)
			for _, notice := range notices {
				t.Errorf("%s: `jeoul %s`: %s", page.Path, strings.Join(words, " "), notice)
			}
		}
	}
	if mentions < 100 {
		t.Errorf("only %d mentions were found", mentions)
	}
}

// spokenOf follows words from a node of the command line's model: commands as far as they match, and flags.
func spokenOf(node *kong.Node, words []string) error {
	for _, word := range words {
		word = strings.TrimRight(word, ",.;:…")
		name, flag := strings.CutPrefix(word, "--")
		if flag {
			name, _, _ = strings.Cut(name, "=")
			if !hasFlag(node, name) {
				return fmt.Errorf("%s has no flag --%s", node.FullPath(), name)
			}
		}
		if flag || len(node.Children) == 0 || !commandWord.MatchString(word) {
			continue
		}
		child := node
		for name := range strings.SplitSeq(word, "|") {
			i := slices.IndexFunc(node.Children, func(child *kong.Node) bool { return child.Name == name })
			if i < 0 {
				return fmt.Errorf("%s has no command %s", node.FullPath(), name)
			}
			child = node.Children[i]
		}
		node = child
	}
	return nil
}

// commandWord matches words that may name a command, or several: no file, no placeholder.
var commandWord = regexp.MustCompile(`^[a-z|]+$`)

// hasFlag reports whether a command, or the one that it stands for, has a flag.
func hasFlag(node *kong.Node, name string) bool {
	if node.DefaultCmd != nil && hasFlag(node.DefaultCmd, name) {
		return true
	}
	for _, group := range node.AllFlags(false) {
		if slices.ContainsFunc(group, func(flag *kong.Flag) bool {
			return flag.Name == name || "no-"+flag.Name == name
		}) {
			return true
		}
	}
	return false
}
