// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/text/manpage"
)

// TestManIsComplete: every command has a page with every flag and argument of it, and so does every key of the
// configuration.
func TestManIsComplete(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	var stdout, stderr bytes.Buffer
	if code := execute(t.Context(), []string{"man", dir}, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	parser, err := newParser(t.Context(), &stdout, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	leaves := parser.Model.Leaves(true)
	if len(leaves) < 20 {
		t.Fatalf("%d commands were found", len(leaves))
	}
	for _, leaf := range leaves {
		name := strings.ReplaceAll(manpage.Command(leaf), " ", "-") + ".1"
		page := roff(t, dir, name)
		for _, value := range leaf.Positional {
			wants(t, name, page, value.Name)
		}
		for _, flags := range leaf.AllFlags(true) {
			for _, flag := range flags {
				wants(t, name, page, "--"+flag.Name)
			}
		}
	}
	wants(t, "jeoul.yaml.5", roff(t, dir, "jeoul.yaml.5"), "interface", "services[].backends[]", "slow_start")
}

func roff(t *testing.T, dir, name string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func wants(t *testing.T, name, page string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(page, `\fB`+word+`\f`) && !strings.Contains(page, `\fI`+word+`\f`) {
			t.Errorf("%s does not explain %s", name, word)
		}
	}
}
