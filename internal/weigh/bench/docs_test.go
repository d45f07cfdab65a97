// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testdocs"

	. "github.com/jeoul/jeoul/internal/weigh/bench"
)

var topKey = regexp.MustCompile(`(?m)^([a-z_]+):`)

// TestDocs: the suites on the pages are correct, and so are parts of suites once the rest is added.
func TestDocs(t *testing.T) {
	shown := 0
	for _, page := range testdocs.Pages(t) {
		for _, block := range page.Blocks() {
			if !strings.HasPrefix(page.Path, "docs/weigh/") || block.Language != "yaml" {
				continue
			}
			shown++
			t.Run(fmt.Sprintf("%s:%d", page.Path, block.Line), func(t *testing.T) {
				text := wholeSuite(block.Text)
				if _, err := ParseSuite("f", []byte(text)); err != nil {
					t.Errorf("%v\nof:\n%s", err, text)
				}
			})
		}
	}
	if shown < 8 {
		t.Errorf("only %d suites were found", shown)
	}
}

// wholeSuite completes a suite of which a page shows a part: loads, which are indented, or keys of the top level.
func wholeSuite(text string) string {
	if strings.HasPrefix(text, " ") {
		text = "loads:\n" + text
	}
	keys := map[string]bool{}
	for _, match := range topKey.FindAllStringSubmatch(text, -1) {
		keys[match[1]] = true
	}
	baseline, web := "direct", ""
	subjects := "subjects: [{name: direct}, {name: routed}]\n"
	if strings.Contains(text, "kind: change") {
		baseline = "jeoul-nat-tc"
		subjects = "subjects: [{name: jeoul-nat-tc, params: {scheduler: [rr]}}]\n"
	}
	if strings.Contains(text, "kind: paced") {
		web = "web: {file_bytes: 1000}\n"
	}
	for _, rest := range []struct{ key, text string }{
		{"name", "name: mine\n"},
		{"title", "title: Which one?\n"},
		{"lab", "lab: {clients: 2, servers: 2}\n"},
		{"baseline", "baseline: " + baseline + "\n"},
		{"repeats", "repeats: 1\n"},
		{"subjects", subjects},
		{"web", web},
	} {
		if !keys[rest.key] {
			text += rest.text
		}
	}
	return text
}
