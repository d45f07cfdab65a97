// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRestIsReadStrictly: keys that a struct leaves to others are read as strictly as the struct itself, with the line
// numbers of the file.
func TestRestIsReadStrictly(t *testing.T) {
	type step struct {
		Every time.Duration `yaml:"every"`
	}
	type own struct {
		Rate  int    `yaml:"rate"`
		Steps []step `yaml:"steps"`
		Last  *step  `yaml:"last"`
	}
	if keys := Keys(&own{}); !slices.Equal(keys, []string{"last", "rate", "steps"}) {
		t.Errorf("the keys are %q", keys)
	}
	for text, says := range map[string]string{
		"name: a\nrate: 5\nsteps: [{every: 2s}]\nlast: {every: 3s}\n": "",
		"name: a\nrats: 5\n":                         "f:2: rats: unknown key rats",
		"name: a\nrate: many\n":                      "f:2: rate: `many` is not a whole number",
		"name: a\nsteps:\n- every: 1s\n- evry: 1s\n": "f:4: steps[1]: unknown key evry",
		"name: a\nlast: {every: soon}\n":             "f:2: last: `soon` is not a duration",
		"name: a\nlast:\n  never: 1s\n":              "f:3: last.never: unknown key never",
	} {
		file := NewFile("f")
		var whole struct {
			Name string `yaml:"name"`
			Rest `yaml:",inline"`
		}
		if !file.Decode([]byte(text), Kind{Noun: "a text", MaxBytes: 1 << 20}, &whole) {
			t.Fatalf("%q: %v", text, file.Problems)
		}
		var got own
		ok := file.DecodeRest(whole.Rest, &got)
		if ok != (says == "") || !ok && !strings.Contains(file.Problems.Err().Error(), says) {
			t.Errorf("%q: got %v, want %q", text, file.Problems, says)
		}
		if ok && (got.Rate != 5 || got.Steps[0].Every != 2*time.Second || got.Last.Every != 3*time.Second) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
