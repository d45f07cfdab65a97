// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestDocs: the configurations that pages show are correct, whole, and without a
// warning; and those that are called defaults are.
func TestDocs(t *testing.T) {
	for _, page := range []string{"schedulers.md", "limits.md"} {
		text, err := os.ReadFile("../../docs/guides/" + page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := yamlBlock.FindAllStringSubmatch(string(text), -1)
		if len(blocks) == 0 {
			t.Fatalf("%s shows no configuration", page)
		}
		for i, block := range blocks {
			t.Run(fmt.Sprintf("%s/%d", page, i), func(t *testing.T) { checkBlock(t, block[1]) })
		}
	}
}

func checkBlock(t *testing.T, text string) {
	cfg, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatalf("%v\nof:\n%s", err, text)
	}
	if len(cfg.Warnings) > 0 {
		t.Errorf("warnings:\n%v\nof:\n%s", cfg.Warnings, text)
	}
	if !strings.Contains(text, "# defaults") {
		return
	}
	silent, err := Parse("f", []byte(limited("mode: l2dsr")))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Flows != silent.Flows || cfg.Transition != silent.Transition {
		t.Errorf("(-default +shown):\n%s", cmp.Diff([]any{silent.Flows, silent.Transition}, []any{cfg.Flows, cfg.Transition}))
	}
}

// TestDocumentedProblem: what a page shows of a wrong file is what Parse reports.
func TestDocumentedProblem(t *testing.T) {
	page, err := os.ReadFile("../../docs/guides/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse("web.yaml", []byte(`interface: eth0
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    limits:
      connections: 50000
      burst: 500

    backends:
      - {name: web01, address: 192.0.2.11, upper: 18000, lower: 20000}
`))
	if err == nil {
		t.Fatal("no error")
	}
	for _, problem := range strings.Split(err.Error(), "\n") {
		if !strings.Contains(string(page), "\njeoul: "+problem+"\n") {
			t.Errorf("the page does not show\n%s", problem)
		}
	}
}
