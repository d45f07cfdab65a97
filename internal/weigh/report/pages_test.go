// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// committed is the directory of the results that the documentation refers to, and of the pages made from them.
const committed = "../../../docs/results"

// comparedPages are the pages that compare two committed runs.
var comparedPages = map[string][2]string{
	"instructions-compared":    {"instructions-1cb2b35", "instructions-b3af6c6"},
	"loxilb-graviton-repeats":  {"loxilb-graviton", "loxilb-graviton-second"},
	"packets-instructions":     {"packets-instructions-1cb2b35", "packets-instructions-27cfcc1"},
	"packets-instructions-xdp": {"packets-instructions-xdp-1cb2b35", "packets-instructions-xdp-25d2975"},
}

// pictures are the committed runs that a page shows a picture of.
var pictures = []string{"demo", "nat-bulk-quick", "packets"}

// TestCommittedPages: the pages of docs/results are those that the present writers make from the results beside them.
func TestCommittedPages(t *testing.T) {
	made, part := map[string]bool{}, map[string]bool{}
	page := func(name string, write func(io.Writer) error) {
		t.Helper()
		var text bytes.Buffer
		if err := write(&text); err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		made[name] = true
		compareGolden(t, filepath.Join(committed, name), text.String())
	}
	for name, of := range comparedPages {
		first, second := committedRun(t, of[0]), committedRun(t, of[1])
		part[of[0]], part[of[1]] = true, true
		page(name+".md", func(w io.Writer) error { return Compare(w, FormatMarkdown, English, first, second) })
	}
	for _, name := range pictures {
		run := committedRun(t, name)
		page(name+".svg", func(w io.Writer) error { return English.Chart(w, run) })
	}
	files, err := filepath.Glob(filepath.Join(committed, "*.json.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no results in %s: %v", committed, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json.gz")
		if part[name] && name != "loxilb-graviton" {
			continue // they were measured for the comparison
		}
		run := committedRun(t, name)
		page(name+".md", func(w io.Writer) error { return English.Markdown(w, run) })
	}
	pages, err := filepath.Glob(filepath.Join(committed, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pages {
		if !made[filepath.Base(path)] {
			t.Errorf("%s is made of no results beside it", path)
		}
	}
}

// TestCommittedResultsAreSmall bounds the size of the results in a clone.
func TestCommittedResultsAreSmall(t *testing.T) {
	t.Parallel()
	const most = 3e6
	total := int64(0)
	err := filepath.WalkDir(committed, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if err != nil || total > most {
		t.Errorf("%s has %d bytes (%v); at most %d are committed", committed, total, err, int64(most))
	}
}

func committedRun(t *testing.T, name string) *results.Run {
	t.Helper()
	run, err := results.Load(filepath.Join(committed, name+".json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return run
}
