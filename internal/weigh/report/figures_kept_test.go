// SPDX-License-Identifier: Apache-2.0

package report

import (
	"compress/gzip"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEveryFigureIsInATable: each metric of published results is in a table of its load, rounded as the tables round.
func TestEveryFigureIsInATable(t *testing.T) {
	t.Parallel()
	for path, run := range publishedRuns(t) {
		if len(run.Trials) > 60 {
			continue // the same kinds are in the smaller ones
		}
		for _, s := range aggregate(run.Trials, run.Baseline) {
			if rest := s.LeftOut(s.Sheets()); !rest.Empty() {
				t.Errorf("%s, %s: no table has %v", path, s.Title(), rest.Columns)
			}
		}
	}
}

// oldFigures holds the figures of the pages that docs/results had at commit 27c6e1a, before a page began with its
// answer: a line with a page's name, followed by a line for each row, with its first cell and its figures in the form
// of figuresOf. Figures from the notes of a single trial (notes on valid trials, how its saturated part was determined)
// are not included, because a summary leaves them out.
const oldFigures = "testdata/figures-27c6e1a.txt.gz"

// TestOldFiguresAreKept: the page of the same results today has each figure of an old page's tables and verdict.
func TestOldFiguresAreKept(t *testing.T) {
	t.Parallel()
	file, err := os.Open(oldFigures)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unzip)
	if err != nil {
		t.Fatal(err)
	}
	page, compared := "", 0
	var kept map[string][]string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(cells) == 1 {
			page = cells[0]
			now, err := os.ReadFile(filepath.Join(committed, page))
			if err != nil {
				t.Fatal(err)
			}
			kept = figuresOf(string(now))
			continue
		}
		for _, figure := range cells[1:] {
			compared++
			if !slices.ContainsFunc(kept[cells[0]], func(now string) bool { return sameFigure(figure, now) }) {
				t.Errorf("%s: no figure of %q is %s now", page, cells[0], figure)
			}
		}
	}
	if compared < 25_000 {
		t.Errorf("%d figures were compared; the old pages had more", compared)
	}
}

var (
	numberPattern = regexp.MustCompile(`\d+(,\d{3})*(\.\d+)?`)
	alignedRight  = regexp.MustCompile(`^ ?-+: ?$`)
)

// inSentences is the key of the figures of sentences in figuresOf.
const inSentences = "sentences"

// figuresOf returns the figures of a Markdown page's tables, by the first cell of their row, and those of all its lines
// under inSentences. (From the old pages, only the figures of the verdict were taken, and none of the comparison's,
// which counted ratios.)
func figuresOf(page string) map[string][]string {
	all := map[string][]string{}
	add := func(of string, figures ...string) {
		for _, f := range figures {
			if f != "" && !slices.Contains(all[of], f) {
				all[of] = append(all[of], f)
			}
		}
	}
	var right []bool
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		add(inSentences, numberPattern.FindAllString(line, -1)...)
		switch {
		case !strings.HasPrefix(line, "|"):
			right = nil
		case strings.HasPrefix(line, "|:--") || strings.HasPrefix(line, "| --"):
			right = nil
			for _, c := range cells {
				right = append(right, alignedRight.MatchString(c))
			}
		case len(cells) == len(right):
			for i, c := range cells[1:] {
				if right[i+1] && numberPattern.MatchString(c) {
					add(strings.TrimSpace(cells[0]), strings.TrimSpace(c))
				}
			}
		}
	}
	return all
}

// sameFigure reports whether two cells have the same numbers, give or take one in the last digit or in the sixth: a
// summary has six digits of a figure.
func sameFigure(old, now string) bool {
	if old == now {
		return true
	}
	if numberPattern.ReplaceAllString(old, "#") != numberPattern.ReplaceAllString(now, "#") {
		return false
	}
	current := numberPattern.FindAllString(now, -1)
	for i, text := range numberPattern.FindAllString(old, -1) {
		_, fraction, _ := strings.Cut(text, ".")
		was, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
		is, wrong := strconv.ParseFloat(strings.ReplaceAll(current[i], ",", ""), 64)
		if err != nil || wrong != nil || math.Abs(was-is) > max(1.01*math.Pow10(-len(fraction)), was*1e-5) {
			return false
		}
	}
	return true
}
