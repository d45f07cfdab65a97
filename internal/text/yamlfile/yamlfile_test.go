// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

var testKind = Kind{Noun: "a note", Needs: "a name", MaxBytes: 1 << 20}

// note is a file with a field of every kind.
type note struct {
	Name  string        `yaml:"name"`
	Count int           `yaml:"count"`
	Share float64       `yaml:"share"`
	Sure  bool          `yaml:"sure"`
	Wait  time.Duration `yaml:"wait"`
	Lines []string      `yaml:"lines"`
	Inner struct {
		Name string `yaml:"name"`
	} `yaml:"inner"`
}

// TestDecode: problems are reported with line and field, all of them at once.
func TestDecode(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"right": {"name: a\ncount: 3\nwait: 5s\nlines: [a]\ninner: {name: b}\n", nil},
		"empty": {"# nothing\n", []string{"f: the file is empty; it needs a name"}},
		"list":  {"- a\n", []string{"f: not a note; it needs a name"}},
		"two": {"name: a\n---\nname: b\n",
			[]string{"f:2: a second YAML document starts here; keep one in a file"}},
		"large":     {strings.Repeat("#", 1<<20+1), []string{"f: larger than 1 MiB; this is hardly a note"}},
		"no syntax": {"name: [\n", []string{"f:1: not YAML: did not find expected node content"}},
		"kinds": {"name: [a]\ncount: x\nshare: y\nsure: z\nwait: 3\nlines: 4\ninner: 5\n", []string{
			"f:1: name: a list is not a text", "f:2: count: `x` is not a whole number",
			"f:3: share: `y` is not a number",
			"f:4: sure: `z` is not true or false", "f:5: wait: `3` is not a duration such as 10s",
			"f:6: lines: `4` is not a list", "f:7: inner: `5` is not a mapping (key: value)"}},
		"unknown": {"name: a\ninner:\n  nam: b\n", []string{"f:3: inner.nam: unknown key nam"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := NewFile("f")
			decoded := f.Decode([]byte(test.text), testKind, new(note))
			if decoded != (test.want == nil) {
				t.Errorf("decoded: %t", decoded)
			}
			var got []string
			if err := f.Problems.Err(); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLines: a field that is not written has the line of the mapping that it would be in.
func TestLines(t *testing.T) {
	f := NewFile("f")
	if !f.Decode([]byte("name: a\nlines:\n  - b\n  - c\ninner:\n  name: d\n"), testKind, new(note)) {
		t.Fatal(f.Problems)
	}
	for field, want := range map[string]int{"name": 1, "lines": 2, "lines[1]": 4, "lines[1].x": 4, "lines[7]": 2,
		"inner.name": 6, "inner.other": 5, "other": 0} {
		if got := f.Line(field); got != want {
			t.Errorf("%s is on line %d, want %d", field, got, want)
		}
	}
	if got, want := f.Leaves(), []string{"name", "lines[0]", "lines[1]", "inner.name"}; !slices.Equal(got, want) {
		t.Errorf("leaves %q, want %q", got, want)
	}
	if !f.Written("inner.name") || f.Written("inner.other") || f.AnyBad() {
		t.Error("what is written, or bad, is not known")
	}
	f.Fail("inner.other", "no %d", 3)
	if got, want := f.Problems.Error(), "f:5: inner.other: no 3"; got != want || !f.Bad("inner.other") ||
		f.Bad("inner") {
		t.Errorf("reported %q, want %q", got, want)
	}
	if got, want := f.Place("lines"), "lines (line 2)"; got != want {
		t.Errorf("place %q, want %q", got, want)
	}
}

// TestQuote: the text of a file neither harms nor floods a terminal.
func TestQuote(t *testing.T) {
	for text, want := range map[string]string{"a": `"a"`, "\x1b[2J": `"\x1b[2J"`, strings.Repeat("a", 81): `"` +
		strings.Repeat("a", 80) + `"…`} {
		if got := Quote(text); got != want {
			t.Errorf("%q is shown as %s, want %s", text, got, want)
		}
	}
}

// FuzzFile: reading any file ends, and every problem names the file and fits on a line.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{"name: a", "a: &a [*a]", "? {}\n: x", "<<: {a: b}", "--- a\n--- b", "!!binary x: y",
		"lines: [null, {}, x]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, walked := NewFile("f"), NewFile("f")
		if decoded.Decode(data, testKind, new(note)) != (len(decoded.Problems) == 0) {
			t.Fatalf("problems %v do not tell whether %q was read", decoded.Problems, data)
		}
		if root := walked.Document(data, testKind); root != nil {
			walked.Mapping(root, "", []Key{
				{Name: "name", Required: true, Read: func(node *yaml.Node, field string) {
					walked.Scalar(node, field)
				}},
				{Name: "lines", Read: func(node *yaml.Node, field string) {
					walked.Sequence(node, field, func(_ int, item *yaml.Node, field string) {
						walked.Scalar(item, field)
					})
				}},
			})
		}
		for _, p := range append(decoded.Problems, walked.Problems...) {
			if !strings.HasPrefix(p.String(), "f:") || p.Message == "" || strings.ContainsRune(p.Field, '\n') {
				t.Fatalf("problem %q", p)
			}
		}
	})
}
