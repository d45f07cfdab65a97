// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/jeoul/jeoul/internal/test/testdocs"
	"github.com/jeoul/jeoul/internal/text/cli"
)

// shownNodes calls f for each command that help shows, and for each group of commands.
func shownNodes(t *testing.T, f func(t *testing.T, app *kong.Application, node *kong.Node)) {
	t.Helper()
	parser, err := newParser(context.Background(), io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var visit func(node *kong.Node)
	count := 0
	visit = func(node *kong.Node) {
		for _, child := range cli.Visible(node) {
			t.Run(cli.Name(child), func(t *testing.T) { f(t, parser.Model, child) })
			count++
			visit(child)
		}
	}
	visit(parser.Model.Node)
	if count < 50 {
		t.Errorf("only %d commands were found", count)
	}
}

// ownFlags returns a command's flags without --help.
func ownFlags(node *kong.Node) (flags []*kong.Flag) {
	for _, flag := range node.Flags {
		if flag.Name != "help" && !flag.Hidden {
			flags = append(flags, flag)
		}
	}
	return flags
}

// conventionRow matches a row of the table of CONTRIBUTING.md that has a flag: "| `-o`, `--output FORMAT` | …".
var conventionRow = regexp.MustCompile("(?m)^\\| (?:`-([a-z])`, )?`--([a-z-]+)(?: ([A-Z]+))?` \\|")

// conventions returns the flags of the table: name to short letter and placeholder.
func conventions(t *testing.T) map[string][2]string {
	t.Helper()
	text := read(t, filepath.Join(testdocs.Root(t), "CONTRIBUTING.md"))
	flags := map[string][2]string{}
	for _, row := range conventionRow.FindAllStringSubmatch(text, -1) {
		flags[row[2]] = [2]string{row[1], row[3]}
	}
	if len(flags) < 10 {
		t.Fatalf("the table of CONTRIBUTING.md has %d flags", len(flags))
	}
	return flags
}

// TestConventionFlags: the flags of the table of CONTRIBUTING.md mean the same in every command; the table has each
// short flag; and a flag's name always has one kind of value.
func TestConventionFlags(t *testing.T) {
	table, used := conventions(t), map[string]bool{}
	kinds := map[string]string{} // of value, by the flag's name
	shownNodes(t, func(t *testing.T, _ *kong.Application, node *kong.Node) {
		for _, flag := range ownFlags(node) {
			short, placeholder := "", flag.PlaceHolder
			if flag.Short != 0 {
				short = string(flag.Short)
			}
			row, common := table[flag.Name]
			if common && row != [2]string{short, placeholder} {
				t.Errorf("--%s: -%s %q, and CONTRIBUTING.md has -%s %q", flag.Name, short, placeholder, row[0], row[1])
			}
			if short != "" && !common {
				t.Errorf("-%s, --%s: a short flag is one of the table of CONTRIBUTING.md", short, flag.Name)
			}
			used[flag.Name] = true
			kind := kindOf(flag)
			if other, known := kinds[flag.Name]; known && other != kind {
				t.Errorf("--%s takes %q, and %q in another command: use two names", flag.Name, kind, other)
			}
			kinds[flag.Name] = kind
		}
	})
	for name := range table {
		if !used[name] {
			t.Errorf("CONTRIBUTING.md has --%s, and no command", name)
		}
	}
}

// kindOf returns the kind of a flag's value: nothing, one of some words, or the placeholder.
func kindOf(flag *kong.Flag) string {
	switch {
	case flag.IsBool():
		return "nothing"
	case strings.Contains(flag.PlaceHolder, "|"):
		return "words"
	}
	// A service of another balancer is named by its address: tune.
	if flag.Name == "service" {
		return "service"
	}
	// An address may include its port.
	return strings.TrimSuffix(flag.PlaceHolder, ":PORT")
}

// placeholder matches a value's kind in capitals, or the words that it may be.
var placeholder = regexp.MustCompile(`^[A-Z][A-Z/@:=,\[\]…-]*$|^[a-z-]+(\|[a-z-]+)+$`)

// TestConventionValues: the help of a flag shows the kind of its value, with the allowed words and the default.
func TestConventionValues(t *testing.T) {
	shownNodes(t, func(t *testing.T, _ *kong.Application, node *kong.Node) {
		for _, flag := range ownFlags(node) {
			if !strings.HasSuffix(flag.Help, ".") || strings.ToUpper(flag.Help[:1]) != flag.Help[:1] &&
				!strings.Contains(flag.Help, ":") {
				t.Errorf("--%s: help is a sentence: %q", flag.Name, flag.Help)
			}
			if flag.IsBool() {
				continue
			}
			if !placeholder.MatchString(flag.PlaceHolder) {
				t.Errorf("--%s: the placeholder %q is neither a word in capitals nor a list of words", flag.Name,
					flag.PlaceHolder)
			}
			if _, duration := flag.Target.Interface().(time.Duration); duration && flag.PlaceHolder != "DURATION" {
				t.Errorf("--%s: a time is a DURATION, and not %q", flag.Name, flag.PlaceHolder)
			}
			words := cli.Choices(flag.Value)
			if strings.Contains(flag.PlaceHolder, "|") && !slices.Equal(words, strings.Split(flag.PlaceHolder, "|")) {
				t.Errorf("--%s: the placeholder says %s, and %q are taken", flag.Name, flag.PlaceHolder, words)
			}
		}
	})
}

// forms are the formats that -o may name; the first is the default.
var forms = []string{"text", "wide", "json", "yaml", "name", "markdown", "html"}

// TestConventionOutput: -o is the format of the output, and no other flag is; commands that print for a person print
// text by default.
func TestConventionOutput(t *testing.T) {
	shownNodes(t, func(t *testing.T, _ *kong.Application, node *kong.Node) {
		for _, flag := range ownFlags(node) {
			if slices.Contains([]string{"json", "yaml", "format", "follow", "out"}, flag.Name) {
				t.Errorf("--%s: a format is --output FORMAT, following is --watch", flag.Name)
			}
			if flag.Name != "output" {
				continue
			}
			words := cli.Choices(flag.Value)
			if len(words) < 2 || words[0] != forms[0] || flag.Default != "" && flag.Default != forms[0] {
				t.Errorf("--output takes %q, and %q by default", words, flag.Default)
			}
			for _, word := range words {
				if !slices.Contains(forms, word) {
					t.Errorf("--output %s is none of %q", word, forms)
				}
			}
		}
	})
}

// TestConventionConnection: a command that connects to a balancer has every flag that selects the balancer.
func TestConventionConnection(t *testing.T) {
	want := []string{"socket", "server", "token-file", "ca", "certificate", "key"}
	asking := 0
	shownNodes(t, func(t *testing.T, _ *kong.Application, node *kong.Node) {
		var have []string
		for _, flag := range ownFlags(node) {
			if flag.Group != nil && flag.Group.Key == cli.Connection {
				have = append(have, flag.Name)
			}
		}
		if len(have) == 0 {
			return
		}
		if asking++; !slices.Equal(have, want) {
			t.Errorf("has %q of %q", have, want)
		}
	})
	if asking < 15 {
		t.Errorf("only %d commands ask a balancer", asking)
	}
}

// maxHelp is the greatest length of a command's line of help, so that a list of commands can be read at a glance.
const maxHelp = 90

// TestConventionHelp: each command belongs to a task, is explained in one line, and fits into a list.
func TestConventionHelp(t *testing.T) {
	shownNodes(t, func(t *testing.T, app *kong.Application, node *kong.Node) {
		if group := node.ClosestGroup(); group == nil || !slices.ContainsFunc(tasks, func(g kong.Group) bool {
			return g.Key == group.Key
		}) {
			t.Error("belongs to no task")
		}
		if !regexp.MustCompile(`^[A-Z].*\.$`).MatchString(node.Help) || len(node.Help) > maxHelp {
			t.Errorf("help is a sentence of at most %d letters: %q", maxHelp, node.Help)
		}
		_, stdout, _ := runCommandLine(t, append(strings.Fields(cli.Name(node)), "--help")...)
		if count := strings.Count(stdout, "--token-file"); count != 0 {
			t.Errorf("help has the flags of the connection:\n%s", stdout)
		}
		_, helped, _ := runCommandLine(t, append([]string{"help"}, strings.Fields(cli.Name(node))...)...)
		if helped != stdout {
			t.Errorf("`help` before the command shows something else:\n%s", helped)
		}
	})
	_, stdout, _ := runCommandLine(t, "--help")
	if lines := strings.Count(stdout, "\n"); lines > 70 || strings.Count(stdout, "--token-file") != 1 {
		t.Errorf("help of the program has %d lines, or not the flags of the connection once:\n%s", lines, stdout)
	}
	if strings.Contains(stdout, "Commands:") {
		t.Errorf("help has commands of no task:\n%s", stdout)
	}
	last := 0
	for _, task := range tasks {
		at := strings.Index(stdout, task.Title)
		if at < last {
			t.Errorf("help has no %q, or in another order", task.Title)
		}
		last = at
	}
}

// runCommandLine runs a command line that shows help.
func runCommandLine(t *testing.T, words ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), words, &out, &errs)
	return code, out.String(), errs.String()
}

// unset clears the values of earlier command lines: a parser for each line would take ten seconds in all.
func unset(node *kong.Node) {
	for _, value := range node.Values() {
		value.Set = false
	}
	for _, child := range node.Children {
		unset(child)
	}
}

// expectRefused parses an invalid command line and expects each of the texts in the error. It runs no command.
func expectRefused(t *testing.T, parser *kong.Kong, words []string, want ...string) {
	t.Helper()
	unset(parser.Model.Node)
	words = replaceDeprecated(parser, words, io.Discard)
	_, err := parser.Parse(words)
	if err == nil {
		t.Errorf("%q is taken", words)
		return
	}
	text := cli.Explain(parser.Model, words, err).Error()
	for _, w := range append(want, "see `jeoul") {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q:\n%s", words, w, text)
		}
	}
}

// misspelt removes a letter.
func misspelt(word string) string { return word[:len(word)-2] + word[len(word)-1:] }

// TestConventionErrors: for every fault of a command line, the error names the allowed words, and the nearest one.
func TestConventionErrors(t *testing.T) {
	parser, err := newParser(t.Context(), io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	shownNodes(t, func(t *testing.T, _ *kong.Application, node *kong.Node) {
		words := strings.Fields(cli.Name(node))
		if children := cli.Visible(node); len(children) > 0 && node.DefaultCmd == nil {
			var names []string
			for _, child := range children {
				names = append(names, child.Name)
			}
			all := strings.Join(names, ", ")
			expectRefused(t, parser, words, all)
			expectRefused(t, parser, append(words, "xyzzy"), "xyzzy: unknown command; use one of "+all)
			expectRefused(t, parser, append(words, misspelt(names[0])), "did you mean "+names[0]+"?")
			return
		}
		if len(node.Children) > 0 || node.Passthrough {
			return
		}
		expectRefused(t, parser, append(words, "--xyzzy"), "--xyzzy: unknown flag; `jeoul ")
		for _, flag := range ownFlags(node) {
			if len(flag.Name) > 4 && flag.Name != "server-port" && (flag.Group == nil || node.Name == "status") {
				expectRefused(t, parser, append(words, "--"+misspelt(flag.Name)),
					fmt.Sprintf("did you mean --%s?", flag.Name))
			}
			if choices := cli.Choices(flag.Value); len(choices) > 0 {
				expectRefused(t, parser, append(append(words, requiredWords(node, flag)...), "--"+flag.Name+"=xyzzy"),
					fmt.Sprintf(`--%s: "xyzzy" is not possible; use one of %s`, flag.Name, strings.Join(choices, ", ")))
			}
			if flag.Required && len(flag.Xor) == 0 {
				expectRefused(t, parser, append(words, requiredWords(node, flag)...), "--"+flag.Name+"=",
					"is missing: "+flag.Help)
			}
		}
		for _, value := range node.Positional {
			if value.Required {
				expectRefused(t, parser, words, " is missing: "+value.Help)
				break
			}
		}
	})
}

// requiredWords returns the arguments and flags that a command needs, without one flag.
func requiredWords(node *kong.Node, without *kong.Flag) (words []string) {
	for _, value := range node.Positional {
		if !value.Required {
			continue
		}
		word := "1"
		if choices := cli.Choices(value); len(choices) > 0 {
			word = choices[0]
		} else if strings.Contains(value.Name, "/") {
			word = "web/web01"
		}
		words = append(words, word)
	}
	for _, flag := range node.Flags {
		if !flag.Required || flag == without {
			continue
		}
		word := "1"
		if choices := cli.Choices(flag.Value); len(choices) > 0 {
			word = choices[0]
		}
		if flag.Tag.Type == "existingfile" {
			word = "/dev/null"
		}
		words = append(words, "--"+flag.Name+"="+word)
	}
	return words
}

// TestDeprecatedSpellings: deprecated spellings are accepted, with a warning, until the release that drops them.
func TestDeprecatedSpellings(t *testing.T) {
	parser, err := newParser(t.Context(), io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for old, now := range map[string]string{
		"bench packets --json":                        "bench packets --output=json",
		"bench packets --only maglev --limit=5m":      "bench packets --match=maglev --time-limit=5m",
		"bench run s.yaml --quick -o dir":             "bench run s.yaml --quick --to=dir",
		"bench run s.yaml -odir":                      "bench run s.yaml --to=dir",
		"bench run s.yaml --output=dir":               "bench run s.yaml --to=dir",
		"report r.json -o r.html":                     "report r.json --to=r.html",
		"report show r.json --format html":            "report show r.json --output=html",
		"report compare a b --format terminal":        "report compare a b --output=text",
		"status -o table":                             "status --output=text",
		"get backends -w --output=table":              "get backends -w --output=text",
		"apply -f shop.yaml --source ci":              "apply -f shop.yaml --owner=ci",
		"agent --vip 192.0.2.1 --hook tcx":            "agent --vip 192.0.2.1 --attach=tcx",
		"wire --lab 2 --json":                         "wire --self-test=2 --output=json",
		"wire serve --server eth0":                    "wire serve --server-interface=eth0",
		"wire --client eth0=10.0.0.0/8 --next 02:0:1": "wire --client-interface=eth0=10.0.0.0/8 --next 02:0:1",
	} {
		words, notices := cli.Modernise(parser.Model, strings.Fields(old), deprecations(), deprecatedUntil)
		if got := strings.Join(words, " "); got != now || len(notices) == 0 ||
			!strings.Contains(notices[0], "is deprecated, and works until "+deprecatedUntil) {
			t.Errorf("%s: %s, %q", old, got, notices)
		}
		if _, notices := cli.Modernise(parser.Model, strings.Fields(now), deprecations(),
			deprecatedUntil); len(notices) > 0 {
			t.Errorf("%s is said to be old: %q", now, notices)
		}
	}
	_, _, stderr := runCommandLine(t, "events", "--help")
	if !strings.Contains(stderr, "warning: `jeoul events` is deprecated") ||
		!strings.Contains(stderr, "use `jeoul get events`") {
		t.Errorf("of events: %s", stderr)
	}
	changes := read(t, filepath.Join(testdocs.Root(t), "CHANGELOG.md"))
	if strings.Contains(changes, "\n## "+deprecatedUntil+" ") {
		t.Errorf("%s is released: remove the spellings that worked until then", deprecatedUntil)
	}
}

// TestDeprecatedAreOld: each old spelling belongs to an existing command, and is no flag that the command has now.
func TestDeprecatedAreOld(t *testing.T) {
	parser, err := newParser(t.Context(), io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range deprecations() {
		for _, name := range d.Commands {
			node := parser.Model.Node
			for word := range strings.FieldsSeq(name) {
				i := slices.IndexFunc(node.Children, func(child *kong.Node) bool { return child.Name == word })
				if i < 0 {
					t.Fatalf("there is no command %s", name)
				}
				node = node.Children[i]
			}
			flag := strings.TrimPrefix(d.Flag, "--")
			if hasFlag(node, flag) && d.Value == "" && d.Old == nil {
				t.Errorf("%s has %s, which is said to be old", name, d.Flag)
			}
			now, _, _ := strings.Cut(strings.TrimPrefix(d.New, "--"), "=")
			if !hasFlag(node, now) {
				t.Errorf("%s has no --%s, which is in the place of %s", name, now, d.Flag)
			}
		}
	}
}
