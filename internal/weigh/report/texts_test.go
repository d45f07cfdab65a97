// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/text/packed"
)

// TestTexts: both languages have the same ids, each English text occurs once, and a translation has no field that the
// English text lacks.
func TestTexts(t *testing.T) {
	t.Parallel()
	phrases, err := unpackTexts(englishTexts, koreanFile)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, p := range phrases {
		if before, ok := ids[p.english]; ok {
			t.Errorf("%s is %s once more: %q", p.id, before, p.english)
		}
		ids[p.english] = p.id
		fields := placeholder.FindAllString(p.english, -1)
		for _, field := range placeholder.FindAllString(p.other, -1) {
			if !slices.Contains(fields, field) {
				t.Errorf("%s has no field %s: %q", p.id, field, p.other)
			}
		}
		if sorted := slices.Compact(slices.Sorted(slices.Values(fields))); len(sorted) != len(fields) {
			t.Errorf("%s has a field twice: %q", p.id, p.english)
		}
	}
}

// TestTextsAreOfTheFiles: the program has the texts of the present files, and not of earlier ones.
func TestTextsAreOfTheFiles(t *testing.T) {
	t.Parallel()
	for language, compressed := range map[string][]byte{"en": englishTexts, "ko": koreanFile} {
		path := "assets/texts." + language + ".yaml"
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := packed.Read(compressed); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what is embedded (%v): make generate", path, err)
		}
	}
}

// TestTextsErrors: ids that only one language has are named.
func TestTextsErrors(t *testing.T) {
	t.Parallel()
	for _, files := range [][2]string{{"a: x", "b: y"}, {"a: x", "a: y\nb: z"}, {"a: [", "a: y"}, {"a: x", "- y"}} {
		if phrases, err := pairTexts([]byte(files[0]), []byte(files[1])); err == nil {
			t.Errorf("%q and %q gave %v", files[0], files[1], phrases)
		}
	}
}

func FuzzTexts(f *testing.F) {
	f.Add("a.b: \"{number1} x\"", "a.b: \"{number1} y\"")
	f.Add("a: {b: c}", "a: d")
	f.Fuzz(func(t *testing.T, english, other string) {
		if phrases, err := pairTexts([]byte(english), []byte(other)); err == nil {
			newTranslator(phrases).text("7 x")
		}
	})
}
