// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// zoo has every kind of element of a command line.
type zoo struct {
	Feed struct {
		Animal string   `arg:"" enum:"bear,ape" help:"Who: bear or ape."`
		With   []string `name:"with" enum:"honey,nuts" placeholder:"FOOD" help:"What: honey or nuts."`
		Keeper string   `name:"keeper" required:"" placeholder:"NAME" help:"Who feeds."`
		Gate   string   `name:"gate" group:"connection" placeholder:"PATH" help:"Which zoo."`
	} `cmd:"" group:"daily" help:"Feed an animal."`
	House struct {
		Open  struct{} `cmd:"" default:"withargs" help:"Open it (default)."`
		Close struct{} `cmd:"" help:"Close it."`
	} `cmd:"" group:"daily" help:"Open and close houses."`
}

func newZoo(t *testing.T, stdout *bytes.Buffer) *kong.Kong {
	t.Helper()
	parser, err := kong.New(&zoo{}, kong.Name("zoo"), kong.Writers(stdout, stdout), kong.Exit(func(int) {}),
		kong.Help(PrintHelp), Groups([]kong.Group{{Key: "daily", Title: "Every day:"}}))
	if err != nil {
		t.Fatal(err)
	}
	return parser
}

// TestExplain: each mistake is reported with the allowed words or the nearest one.
func TestExplain(t *testing.T) {
	for line, want := range map[string]string{
		"fed":                              "fed: unknown command; did you mean feed?\nsee `zoo --help`",
		"close":                            "close: unknown command; did you mean `zoo house close`?\nsee `zoo --help`",
		"walk":                             "walk: unknown command; use one of feed, house\nsee `zoo --help`",
		"feed":                             "ANIMAL is missing: Who: bear or ape.\nwrite `zoo feed ANIMAL`\n--keeper=NAME is missing: Who feeds.\nsee `zoo feed --help`",
		"feed bear":                        "--keeper=NAME is missing: Who feeds.\nsee `zoo feed --help`",
		"feed bea --keeper=kim":            "animal: \"bea\" is not possible; did you mean bear? Use one of bear, ape\nsee `zoo feed --help`",
		"feed ape --keeper=kim --with=tea": "--with: \"tea\" is not possible; use one of honey, nuts\nsee `zoo feed --help`",
		"feed ape --keepr=kim":             "--keepr: unknown flag; did you mean --keeper?\nsee `zoo feed --help`",
		"feed ape -x":                      "-x: unknown flag; `zoo feed` takes --help, --with, --keeper\nsee `zoo feed --help`",
		"feed ape cat --keeper=kim":        "cat: one argument too many; write `zoo feed ANIMAL`\nsee `zoo feed --help`",
		"house clos":                       "clos: unknown command; did you mean close?\nsee `zoo house --help`",
		"house close now":                  "now: `zoo house close` takes no arguments, only flags\nsee `zoo house close --help`",
	} {
		parser := newZoo(t, &bytes.Buffer{})
		words := strings.Fields(line)
		_, err := parser.Parse(words)
		if err == nil {
			t.Errorf("%q is taken", line)
			continue
		}
		if got := Explain(parser.Model, words, err).Error(); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	sentinel := errors.New("of another kind")
	if err := Explain(newZoo(t, &bytes.Buffer{}).Model, []string{"house"}, sentinel); !errors.Is(err, sentinel) {
		t.Errorf("what is not explained has become %v", err)
	}
}

// TestHelp: the connection flags are explained with the program, once, and not with a command.
func TestHelp(t *testing.T) {
	for line, has := range map[string]bool{"--help": true, "help": true, "help feed": false, "feed --help": false} {
		var stdout bytes.Buffer
		parser := newZoo(t, &stdout)
		_, _ = parser.Parse(Help(parser.Model, strings.Fields(line))) // help does not exit here
		if got := strings.Count(stdout.String(), "Which zoo."); got != map[bool]int{true: 1}[has] {
			t.Errorf("%s shows the connection %d times:\n%s", line, got, &stdout)
		}
	}
	app := newZoo(t, &bytes.Buffer{}).Model
	for line, want := range map[string]string{"house help": "house --help", "feed help": "feed help",
		"help house": "house --help"} {
		if got := strings.Join(Help(app, strings.Fields(line)), " "); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// TestModernise: an old spelling is replaced in the commands that had it, however its value is written, but not after
// --.
func TestModernise(t *testing.T) {
	app := newZoo(t, &bytes.Buffer{}).Model
	old := []Deprecated{
		{Commands: []string{"feed"}, Flag: "-w", Takes: true, New: "--with"},
		{Commands: []string{"feed"}, Flag: "--sweet", New: "--with=honey"},
		{Commands: []string{"feed"}, Flag: "--by", Takes: true, Value: "me", New: "--keeper=kim"},
		{Commands: []string{"feed"}, Flag: "--in", Takes: true, Old: func(value string) bool { return value != "town" },
			New: "--gate"},
	}
	for line, want := range map[string]string{
		"feed ape -w nuts --sweet": "feed ape --with=nuts --with=honey",
		"feed -wnuts":              "feed --with=nuts",
		"feed --by me":             "feed --keeper=kim",
		"feed --by=you":            "feed --by=you",
		"feed --in=town --in a b":  "feed --in=town --gate=a b",
		"feed -- -w nuts":          "feed -- -w nuts",
		"feed --sweeter -w":        "feed --sweeter -w",
		"house -w nuts":            "house -w nuts",
	} {
		words, notices := Modernise(app, strings.Fields(line), old, "2.0")
		if got := strings.Join(words, " "); got != want || (len(notices) > 0) != (line != want) {
			t.Errorf("%s: %s, %q, want %s", line, got, notices, want)
		}
	}
	if words, _ := Modernise(app, []string{"feed", "-w", "a b"}, old, "2.0"); !slices.Equal(words,
		[]string{"feed", "--with=a b"}) {
		t.Errorf("a value with a space: %q", words)
	}
}
