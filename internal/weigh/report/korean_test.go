// SPDX-License-Identifier: Apache-2.0

package report

import (
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// publishedRuns are the files that a reader finds in the documentation, and the
// fixtures of this package.
func publishedRuns(t *testing.T) map[string]*results.Run {
	t.Helper()
	runs := map[string]*results.Run{}
	for _, pattern := range []string{"../../../docs/results/*.json.gz", "testdata/*.json"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("no results match %s: %v", pattern, err)
		}
		for _, path := range paths {
			run, err := results.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			runs[path] = run
		}
	}
	return runs
}

var (
	hangul = regexp.MustCompile(`\p{Hangul}`)
	// fileName matches a name with words in it that are not text.
	fileName = regexp.MustCompile(`[\w.-]+\.(txt|md)\b`)
)

// wantKorean checks that sentences have a Korean form.
func wantKorean(t *testing.T, sentences ...string) {
	t.Helper()
	for _, sentence := range sentences {
		if korean := koreanTexts().text(sentence); !hangul.MatchString(korean) {
			t.Errorf("%q has no Korean form; add it to assets/texts.*.yaml", sentence)
		}
	}
}

// TestKoreanIsComplete finds texts of published results that stay English.
func TestKoreanIsComplete(t *testing.T) {
	words := koreanTexts()
	words.known = map[string]translated{} // shared, so that texts of many files are translated once
	// The page has nearly all the words; the other forms of one model take turns.
	others := []func(io.Writer, *results.Run) error{Korean.Markdown, Korean.Terminal, Korean.Chart}
	runs := publishedRuns(t)
	for i, path := range slices.Sorted(maps.Keys(runs)) {
		words.missed = map[string]bool{}
		for _, write := range []func(io.Writer, *results.Run) error{Korean.HTML, others[i%len(others)]} {
			_ = write(io.Discard, runs[path]) // a run without a picture has returned an error
		}
		if missed := slices.Sorted(maps.Keys(words.missed)); len(missed) > 0 {
			t.Errorf("%s has %d texts without Korean ones; add them to assets/texts.*.yaml:\n%s",
				path, len(missed), strings.Join(missed, "\n"))
		}
	}
	for text, korean := range words.known {
		if korean.ok && hangul.MatchString(korean.text) &&
			english.MatchString(fileName.ReplaceAllString(korean.text, "")) {
			t.Errorf("half translated: %q is %q", text, korean.text)
		}
	}
}
