// SPDX-License-Identifier: Apache-2.0

package keytable

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// A zoo has a value of each kind.
type (
	zoo struct {
		Name    string
		Gates   []string
		Open    bool
		Visit   time.Duration
		Cap     uint32
		Hours   hours
		Cages   []cage
		Feeding color
		Guides  []guide
		Shop    *hours
	}
	hours struct{ From, To uint8 }
	cage  struct {
		Name  string
		Depth uint16
	}
	color string
	guide struct {
		Tongue string
		Years  uint8
		Tags   []string
		Says   []string
	}
)

var errColor = errors.New("unknown color")

func (c *color) UnmarshalText(text []byte) error {
	if *c = color(text); *c != "red" && *c != "blue" {
		return fmt.Errorf("%w %q", errColor, text)
	}
	return nil
}

var words = Scalar[string]{Parse: func(s string) (string, string) { return s, "" }, Show: func(s string) string {
	return s
},
	Kind: "a word", Schema: map[string]any{"type": "string"}}

var zooKeys = Table[zoo]{
	{Name: "name", Required: true, What: "Names it.", Value: Optional(func(z *zoo) *string {
		return &z.Name
	}, words, "")},
	{Name: "gate", Required: true, Unless: "gates", What: "The gate.", Value: Computed(
		func(z *zoo) (string, bool) { return z.Gates[0], len(z.Gates) == 1 },
		func(z *zoo, gate string) { z.Gates = []string{gate} }, words, "", "")},
	{Name: "gates", What: "Gates.", Value: Several(func(z *zoo) *[]string { return &z.Gates }, words, "gate",
		Length{Max: 3, Empty: "build one", TooMany: "that there can be"})},
	{Name: "open", What: "It is open.", Value: Field(func(z *zoo) *bool { return &z.Open }, Bool, true)},
	{Name: "visit", What: "A visit's length.", Value: Field(func(z *zoo) *time.Duration {
		return &z.Visit
	}, Duration(time.Second, time.Hour), time.Minute)},
	{Name: "cap", What: "Visitors.", Refused: "None.", Since: "0.2", Value: Optional(func(z *zoo) *uint32 {
		return &z.Cap
	}, Bound[uint32](99), "no bound")},
	{Name: "hours", What: "Opening hours.", Value: Mapping(func(z *zoo) *hours { return &z.Hours }, Table[hours]{
		{Name: "from", What: "Opens.", Value: Field(func(h *hours) *uint8 { return &h.From }, Number[uint8](0, 24), 9)},
		{Name: "to", What: "Closes.", Value: Field(func(h *hours) *uint8 { return &h.To }, Number[uint8](0, 24), 17)},
	})},
	{Name: "cages", Required: true, What: "Cages.", Value: Mappings(func(z *zoo) *[]cage {
		return &z.Cages
	}, Table[cage]{
		{Name: "name", Required: true, What: "Names it.", Value: Optional(func(c *cage) *string {
			return &c.Name
		}, words, "")},
		{Name: "depth", What: "Meters | feet.", Value: Field(func(c *cage) *uint16 {
			return &c.Depth
		}, Number[uint16](0, 9), 2)},
	}, Length{Max: 3, Empty: "build one", TooMany: "that there can be"})},
	{Name: "feeding", What: "The sign's color.", Value: Field(func(z *zoo) *color {
		return &z.Feeding
	}, Word(color("red"), color("blue")), color("red"))},
	{Name: "guide", What: "The guide.", Value: Short(guides, guideKeys, "tongue", "guides")},
	{Name: "guides", What: "Guides.",
		Value: Shorts(guides, guideKeys, "tongue", Length{Max: 2, Empty: "hire one", TooMany: "that there can be",
			Absent: "none"})},
	{Name: "shop", What: "The shop.", Value: Where(func(z *zoo) bool {
		return z.Shop != nil
	}, Mapping(func(z *zoo) *hours {
		if z.Shop == nil {
			z.Shop = &hours{From: 9}
		}
		return z.Shop
	}, Table[hours]{{Name: "from", Required: true, What: "Opens.", Value: Computed(func(h *hours) (uint8, bool) {
		return h.From, true
	},
		func(h *hours, n uint8) { h.From = n }, Number[uint8](0, 24), 9, "`9`")}}))},
	{Name: "ponds", Gone: "ponds are cages now"},
}

func guides(z *zoo) *[]guide { return &z.Guides }

var guideKeys = Table[guide]{
	{Name: "tongue", Required: true, What: "Speaks it.", Value: Optional(func(g *guide) *string {
		return &g.Tongue
	}, words, "")},
	{Name: "years", What: "Has been there.", Value: Field(func(g *guide) *uint8 {
		return &g.Years
	}, Number[uint8](0, 99), 1)},
	{Name: "tags", What: "Wears them.", Value: OneOrItems(func(g *guide) *[]string { return &g.Tags }, words, "tag",
		Length{Max: 2, Empty: "wear one", TooMany: "that there can be", Absent: "none"})},
	{Name: "says", What: "Says that.", Value: Sequence(func(g *guide) *[]string {
		return &g.Says
	}, words, Length{Max: 9, Empty: "say something", TooMany: "that fit", Absent: "nothing"})},
}

func read(t *testing.T, text string) (*zoo, yamlfile.Problems) {
	t.Helper()
	f, z := yamlfile.NewFile("f"), &zoo{}
	Reset(zooKeys, z)
	if root := f.Document([]byte(text), yamlfile.Kind{MaxBytes: 1 << 20}); root != nil {
		Read(zooKeys, f, root, "", z)
	}
	return z, f.Problems
}

const smallZoo = "name: a\ngate: g\ncages: [{name: c}]\n"

func TestReadAndWrite(t *testing.T) {
	usual := zoo{Name: "a", Gates: []string{"g"}, Open: true, Visit: time.Minute, Hours: hours{9, 17},
		Cages: []cage{{"c", 2}}, Feeding: "red"}
	full := zoo{Name: "1", Gates: []string{"g", "h"}, Visit: 90 * time.Second, Cap: 5, Hours: hours{0, 17},
		Cages: []cage{{"c", 0}, {"d", 2}}, Feeding: "blue"}
	usual.Shop = &hours{From: 9}
	full.Shop = usual.Shop
	guided := func(guides ...guide) zoo {
		z := usual
		z.Guides = guides
		return z
	}
	for name, test := range map[string]struct {
		text string
		want zoo
	}{
		"word": {"name: a\ngate: g\ncages:\n  - {name: c}\nguide: welsh\nshop:\n  from: 9\n",
			guided(guide{Tongue: "welsh", Years: 1})},
		"short": {"name: a\ngate: g\ncages:\n  - {name: c}\nguide: {tongue: welsh, years: 2}\nshop:\n  from: 9\n",
			guided(guide{Tongue: "welsh", Years: 2})},
		"words and more": {"name: a\ngate: g\ncages:\n  - {name: c}\nguides:\n  - welsh\n  - tongue: thai\n    tags: [x, z]\n    says: [y, y]\nshop:\n  from: 9\n",
			guided(guide{Tongue: "welsh", Years: 1}, guide{Tongue: "thai", Years: 1, Tags: []string{"x", "z"},
				Says: []string{"y", "y"}})},
		"one of many": {"name: a\ngate: g\ncages:\n  - {name: c}\nguide: {tongue: thai, tags: x}\nshop:\n  from: 9\n",
			guided(guide{Tongue: "thai", Years: 1, Tags: []string{"x"}})},
		"usual": {"name: a\ngate: g\ncages:\n  - {name: c}\nshop:\n  from: 9\n", usual},
		"full": {"name: \"1\"\ngates: [g, h]\nopen: false\nvisit: 1m30s\ncap: 5\nhours:\n  from: 0\ncages:\n  - {name: c, depth: 0}\n" +
			"  - {name: d}\nfeeding: blue\nshop:\n  from: 9\n", full},
	} {
		got, problems := read(t, test.text)
		if diff := cmp.Diff(&test.want, got); diff != "" || problems != nil {
			t.Errorf("%s: problems %v (-want +got):\n%s", name, problems, diff)
		}
		var text strings.Builder
		encoder := yaml.NewEncoder(&text)
		encoder.SetIndent(2)
		if err := encoder.Encode(Write(zooKeys, got)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.text, text.String()); diff != "" {
			t.Errorf("%s is written as (-want +got):\n%s", name, diff)
		}
	}
}

func TestProblems(t *testing.T) {
	for text, want := range map[string]string{
		"gate: g\ncages: [{name: c}]":                       "f:1: name: missing; add it",
		"name: a\ncages: [{name: c}]":                       "f:1: gate: missing; add it",
		smallZoo + "guide: ''\nguides: []":                  "f:5: guides: empty; hire one",
		smallZoo + "guide: {years: 3}":                      "f:4: guide.tongue: missing; add it",
		smallZoo + "guide: [a]":                             "f:4: guide: must be a mapping (key: value)",
		smallZoo + "guides: [a, ~]":                         "f:4: guides[1]: has no value; give it one or remove the key",
		smallZoo + "guides: [a, {tongue: b, tags: [x, x]}]": "f:4: guides[1].tags[1]: x is already guides[1].tags[0] (line 4); name each tag once",
		smallZoo + "gates: [h]":                             "f:4: gates: written beside gate; keep one of the two",
		smallZoo + "open: yes":                              `f:4: open: "yes" is neither true nor false`,
		smallZoo + "visit: 5":                               `f:4: visit: "5" has no unit; write seconds as "5s", minutes as 5m, hours as 2h`,
		smallZoo + "visit: 2h":                              `f:4: visit: "2h" is not from 1s to 1h`,
		smallZoo + "visit: long":                            `f:4: visit: "long" is not a length of time; write one such as 30s, 5m or 1h30m`,
		smallZoo + "cap: 0":                                 "f:4: cap: 0 would let nothing pass; write a number from 1 to 99, or remove the line to have no bound",
		smallZoo + "cap: 0x5":                               `f:4: cap: "0x5" is not a whole number from 1 to 99`,
		smallZoo + "feeding: green":                         `f:4: feeding: unknown color "green"`,
		smallZoo + "ponds: 3":                               "f:4: ponds: ponds are cages now",
		smallZoo + "hours: {form: 1}":                       "f:4: hours.form: unknown key; did you mean from?",
		"name: a\ngate: g\ncages: []":                       "f:3: cages: empty; build one",
		"name: a\ngate: g\ncages: [{}]":                     "f:3: cages[0].name: missing; add it",
		"name: a\ngates: [g, g]\ncages: [{name: c}]":        "f:2: gates[1]: g is already gates[0] (line 2); name each gate once",
		"name: a\ngates: [g, h, i, j]\ncages: [{name: c}]":  "f:2: gates: 4 are more than the 3 that there can be",
	} {
		if _, problems := read(t, text); problems.Error() != want {
			t.Errorf("%q: problems\n%s\nwant\n%s", text, problems.Error(), want)
		}
	}
}

// TestElementsDoNotShare: the elements of a list do not share values.
func TestElementsDoNotShare(t *testing.T) {
	got, problems := read(t, "name: a\ngate: g\ncages: [{name: c, depth: 7}, {name: d}]\n")
	if want := []cage{{"c", 7}, {"d", 2}}; !cmp.Equal(want, got.Cages) || problems != nil {
		t.Errorf("cages %+v, want %+v; problems %v", got.Cages, want, problems)
	}
}

func TestReference(t *testing.T) {
	var page strings.Builder
	if err := Reference(zooKeys, &page, "Zoo"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n## Zoo\n", "| `gate` | a word | required, unless there is `gates` | The gate. |",
		"| `guide` | a mapping, or its `tongue` alone: [`guides[]`](#guides) | none | The guide. |",
		"| `guides` | a list of up to 2 mappings, or of their `tongue` alone: [`guides[]`](#guides) | none | Guides. |",
		"\n## `guides[]`\n",
		"| `tags` | a word, or a list of up to 2, each a word | none | Wears them. |",
		"| `visit` | a length of time from 1s to 1h | `1m` | A visit's length. |",
		"| `cap` | a whole number from 1 to 99 | no bound | Visitors. Refused: none. Since 0.2. |",
		"| `cages` | a list of up to 3 mappings: [`cages[]`](#cages) | required | Cages. |", "\n## `cages[]`\n",
		`Meters \| feet.`, "\n## `hours`\n",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, &page)
		}
	}
	if strings.Contains(page.String(), "ponds") {
		t.Error("the page explains a key that is gone")
	}
}

// TestManual: the same keys as terms of a manual page.
func TestManual(t *testing.T) {
	var page strings.Builder
	if err := Manual(zooKeys, &page, "Zoo"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n## Zoo\n", "`gate`\n:   (a word; required, unless there is `gates`) The gate.\n",
		"`visit`\n:   (a length of time from 1s to 1h; default: `1m`) A visit's length.\n", "\n## `hours`\n",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, &page)
		}
	}
}

// A yard has a value of each kind that a zoo lacks.
type (
	yard struct {
		Pond pond
		Shed *shed
		Rest time.Duration
	}
	pond struct {
		On   bool
		Deep uint8
	}
	shed struct{ Doors uint8 }
)

var yardKeys = Table[yard]{
	{Name: "pond", What: "The pond.", Value: Switch(func(y *yard) *pond { return &y.Pond },
		func(p *pond) *bool { return &p.On }, Table[pond]{
			{Name: "deep", What: "Meters.", Value: Field(func(p *pond) *uint8 { return &p.Deep }, Number[uint8](0, 9), 2)},
		})},
	{Name: "shed", What: "The shed.", Value: Part(func(y *yard) **shed { return &y.Shed }, Table[shed]{
		{Name: "doors", What: "Its doors.", Value: Field(func(s *shed) *uint8 { return &s.Doors }, Number[uint8](1, 9), 1)},
	})},
	{Name: "rest", What: "A day's rest.", Value: Field(func(y *yard) *time.Duration { return &y.Rest },
		OrNever(Duration(time.Minute, time.Hour)), 0)},
}

// TestSwitchesAndParts: keys that are off, or nil, by default are read, written and described.
func TestSwitchesAndParts(t *testing.T) {
	for text, want := range map[string]yard{
		"{}\n":                    {Pond: pond{Deep: 2}},
		"pond: true\n":            {Pond: pond{On: true, Deep: 2}},
		"pond: {deep: 3}\n":       {Pond: pond{On: true, Deep: 3}},
		"shed:\n  doors: 2\n":     {Pond: pond{Deep: 2}, Shed: &shed{2}},
		"shed: {}\n":              {Pond: pond{Deep: 2}, Shed: &shed{1}},
		"rest: 5m\n":              {Pond: pond{Deep: 2}, Rest: 5 * time.Minute},
		"pond: false\nrest: 1h\n": {Pond: pond{Deep: 2}, Rest: time.Hour},
		"rest: never\n":           {Pond: pond{Deep: 2}},
	} {
		f, got := yamlfile.NewFile("f"), yard{Shed: &shed{7}}
		Reset(yardKeys, &got)
		if root := f.Document([]byte(text), yamlfile.Kind{MaxBytes: 1 << 20}); root != nil {
			Read(yardKeys, f, root, "", &got)
		}
		if diff := cmp.Diff(want, got); diff != "" || f.Problems != nil {
			t.Errorf("%q: problems %v (-want +got):\n%s", text, f.Problems, diff)
		}
		var written strings.Builder
		encoder := yaml.NewEncoder(&written)
		encoder.SetIndent(2)
		if err := encoder.Encode(Write(yardKeys, &got)); err != nil {
			t.Fatal(err)
		}
		usual := strings.NewReplacer("pond: false\n", "", "rest: never\n", "{}\n", "shed: {}\n", "{}\n").Replace(text)
		if written.String() != usual {
			t.Errorf("%q is written as %q, want %q", text, written.String(), usual)
		}
	}
	var page strings.Builder
	if err := Reference(yardKeys, &page, "Yard"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| `pond` | `true`, `false`, or a mapping", "| `rest` | a length of time from 1m to 1h, or `never` |"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, &page)
		}
	}
}

func TestSchema(t *testing.T) {
	text, err := Schema(zooKeys, "Zoo")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties map[string]struct {
			Description string
			Items       struct{ Required []string }
		}
		Required             []string
		AdditionalProperties bool
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	if len(schema.Properties) != len(zooKeys)-1 || schema.AdditionalProperties ||
		!cmp.Equal(schema.Required, []string{"name", "cages"}) ||
		!cmp.Equal(schema.Properties["cages"].Items.Required, []string{"name"}) ||
		schema.Properties["visit"].Description != "A visit's length. Default: 1m." {
		t.Errorf("schema:\n%s", text)
	}
}
