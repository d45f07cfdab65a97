// SPDX-License-Identifier: Apache-2.0

package testdocs

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const index = "docs/README.md"

// TestLinks: the target of each link exists, including the fragment.
func TestLinks(t *testing.T) {
	pages := map[string]Page{}
	for _, page := range Pages(t) {
		pages[page.Path] = page
	}
	links := 0
	for _, page := range pages {
		for _, target := range page.Links() {
			if problem := page.follow(Root(t), pages, target); problem != "" {
				t.Errorf("%s links to %s: %s", page.Path, target, problem)
			}
			links++
		}
	}
	if links < 300 {
		t.Errorf("only %d links were found", links)
	}
}

// follow returns the problem of a link of the page, or "".
func (p Page) follow(root string, pages map[string]Page, target string) string {
	if strings.Contains(target, "://") {
		return ""
	}
	file, anchor, _ := strings.Cut(target, "#")
	at := p.Path
	if file != "" {
		at = path.Join(path.Dir(p.Path), file)
	}
	if _, err := os.Stat(filepath.Join(root, at)); err != nil {
		return err.Error()
	}
	if anchor != "" && !pages[at].Anchors()[anchor] {
		return "the page has no such heading"
	}
	return ""
}

// TestIndex: each page is linked from the index, except results and the pages at the root.
func TestIndex(t *testing.T) {
	reached := map[string]bool{index: true}
	pages := Pages(t)
	for _, page := range pages {
		if page.Path != index {
			continue
		}
		for _, target := range page.Links() {
			reached[path.Join(path.Dir(index), target)] = true
		}
	}
	for _, page := range pages {
		if !strings.HasPrefix(page.Path, "docs/") || strings.HasPrefix(page.Path, "docs/results/") {
			continue
		}
		if !reached[page.Path] {
			t.Errorf("%s has no link to %s", index, page.Path)
		}
	}
}

var mention = regexp.MustCompile(`\bdocs/[A-Za-z0-9_./-]*\.(md|json(\.gz)?|svg|png|txt)\b`)

// TestMentions: the pages and results that code, units, suites and examples mention exist.
func TestMentions(t *testing.T) {
	root := Root(t)
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("the tree is no clone, so which files are the project's is not known")
	}
	list := exec.Command("git", "-c", "safe.directory="+root, "-C", root, "ls-files", "-z")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("list the tree's files: %v", err)
	}
	mentions := 0
	for _, name := range strings.Split(string(bytes.TrimRight(out, "\x00")), "\x00") {
		if strings.HasPrefix(name, "docs/results/") || strings.Contains(name, "testdata/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, but not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range mention.FindAllString(string(text), -1) {
			mentions++
			if _, err := os.Stat(filepath.Join(root, page)); err != nil {
				t.Errorf("%s speaks of %s, which is not there", name, page)
			}
		}
	}
	if mentions < 50 {
		t.Errorf("only %d mentions were found", mentions)
	}
}
