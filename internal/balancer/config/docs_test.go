// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/test/testdocs"
)

// foreign are blocks of YAML that are no configuration of a balancer, by the line that they begin with.
var foreign = map[string]string{
	"scrape_configs:": "Prometheus's",
	"# pools.yaml":    "pools of jeoul kubernetes",
	"apiVersion: v1":  "an object of Kubernetes",
	"apiVersion: gateway.networking.k8s.io/v1": "objects of the Gateway API",
	"items:":    "a profile of jeoul tune: internal/tools/tune has the test",
	"backends:": "a list of discovered backends: TestDocsList has the test",
}

// TestDocs: the configurations that pages show are correct and without a warning, those that show a part only
// when the rest is added; and those that are called defaults are. Pages about weighing show suites instead.
func TestDocs(t *testing.T) {
	for _, page := range testdocs.Pages(t) {
		if strings.HasPrefix(page.Path, "docs/weigh/") {
			continue
		}
		for _, block := range page.Blocks() {
			first, _, _ := strings.Cut(block.Text, "\n")
			if block.Language != "yaml" || foreign[first] != "" {
				continue
			}
			t.Run(fmt.Sprintf("%s:%d", page.Path, block.Line), func(t *testing.T) { checkBlock(t, whole(block.Text)) })
		}
	}
}

var topKey = regexp.MustCompile(`(?m)^([a-z_]+):`)

// whole returns a configuration that a page shows a part of: keys of a service, which are indented, or of the
// whole.
func whole(text string) string {
	const (
		head     = "interface: eth0\n"
		service  = "services:\n  - name: web\n    vip: 192.0.2.100\n    port: 80\n"
		backends = "    backends: [{name: web01, address: 192.0.2.11}, {name: web02, address: 192.0.2.12}]\n"
		pool     = "fullnat: {addresses: [192.0.2.99]}\n"
	)
	if strings.HasPrefix(text, " ") {
		if strings.Contains(text, "mode: fullnat") {
			text = pool + service + text
		} else {
			text = service + text
		}
		if !strings.Contains(text, "backends:") {
			text += backends
		}
	}
	keys := map[string]bool{}
	for _, match := range topKey.FindAllStringSubmatch(text, -1) {
		keys[match[1]] = true
	}
	if !keys["interface"] && !keys["interfaces"] {
		text = head + text
	}
	if !keys["services"] {
		text += service + backends
	}
	return text
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
		t.Errorf("(-default +shown):\n%s", cmp.Diff([]any{silent.Flows, silent.Transition},
			[]any{cfg.Flows, cfg.Transition}))
	}
}

// TestDocumentedProblem: the errors that a page shows for a wrong file are those that Parse reports.
func TestDocumentedProblem(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guides/limits.md")
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
