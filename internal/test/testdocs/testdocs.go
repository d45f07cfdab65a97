// SPDX-License-Identifier: Apache-2.0

// Package testdocs reads the project's documentation pages for tests: their links and code blocks.
package testdocs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Page is a Markdown page.
type Page struct {
	Path string // from the root of the tree, with slashes
	Text string
}

// Block is a fenced code block of a page.
type Block struct {
	Language string // as written after the fence; may be empty
	Line     int    // the page's line number of the block's first line
	Text     string
}

// Root returns the root of the tree: the folder with go.mod, above the test's.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test's folder")
		}
		dir = parent
	}
}

// Pages returns README.md, CONTRIBUTING.md, CHANGELOG.md, and the pages below docs, by path.
func Pages(t testing.TB) []Page {
	t.Helper()
	root := Root(t)
	paths := []string{"CHANGELOG.md", "CONTRIBUTING.md", "README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			relative, err := filepath.Rel(root, path)
			paths = append(paths, filepath.ToSlash(relative))
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages := make([]Page, len(paths))
	for i, path := range paths {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		pages[i] = Page{path, string(text)}
	}
	return pages
}

// Blocks returns the page's fenced blocks.
func (p Page) Blocks() []Block {
	var blocks []Block
	inside := false
	for i, line := range strings.Split(p.Text, "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !inside:
			blocks = append(blocks, Block{Language: language, Line: i + 2})
			inside = true
		case fence:
			inside = false
		case inside:
			blocks[len(blocks)-1].Text += line + "\n"
		}
	}
	return blocks
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code    = regexp.MustCompile("`[^`\n]*`")
	heading = regexp.MustCompile(`^#+ +(.*)`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Links returns the targets of the page's links, as written.
func (p Page) Links() []string {
	var targets []string
	for _, line := range p.prose() {
		// Code may contain brackets, but the text of a link may be code.
		if !link.MatchString(line) {
			continue
		}
		for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
			targets = append(targets, match[1])
		}
	}
	return targets
}

// Anchors returns the fragments for links to parts of the page: its headings, as GitHub converts them to anchors.
func (p Page) Anchors() map[string]bool {
	anchors := map[string]bool{}
	for _, line := range p.prose() {
		if match := heading.FindStringSubmatch(line); match != nil {
			text := strings.ToLower(linked.ReplaceAllString(match[1], "$1"))
			anchors[strings.ReplaceAll(dropped.ReplaceAllString(text, ""), " ", "-")] = true
		}
	}
	return anchors
}

// prose returns the page's lines outside of fenced blocks.
func (p Page) prose() []string {
	var lines []string
	inside := false
	for _, line := range strings.Split(p.Text, "\n") {
		if strings.HasPrefix(line, "```") {
			inside = !inside
		} else if !inside {
			lines = append(lines, line)
		}
	}
	return lines
}
