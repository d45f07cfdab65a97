// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

const rulesDir = "../../../deploy/prometheus"

// TestRulesNameMetrics: an alert on a metric that does not exist never fires.
func TestRulesNameMetrics(t *testing.T) {
	text, err := os.ReadFile(rulesDir + "/jeoul.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, f := range families() {
		known[f.name] = true
	}
	named := regexp.MustCompile(`\bjeoul_[a-z_]+`).FindAllString(string(text), -1)
	if len(named) == 0 {
		t.Fatal("the rules name no metric")
	}
	for _, name := range named {
		if !known[name] {
			t.Errorf("the rules name %s, which is no metric", name)
		}
	}
}

// TestAlertsHaveRunbooks: each alert names its section of the page about alerts, and the page has no other.
func TestAlertsHaveRunbooks(t *testing.T) {
	rules, err := os.ReadFile(rulesDir + "/jeoul.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/reference/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for _, section := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(page), -1) {
		sections[section[1]] = true
	}
	alerts := strings.Split(string(rules), "      - alert: ")[1:]
	if len(alerts) < 30 {
		t.Errorf("%d alerts were found", len(alerts))
	}
	for _, alert := range alerts {
		name, text, _ := strings.Cut(alert, "\n")
		if !sections[name] {
			t.Errorf("%s has no section", name)
		}
		if want := "docs/reference/alerts.md#" + strings.ToLower(name) + "\n"; !strings.Contains(text+"\n", want) {
			t.Errorf("%s does not name its section, %s", name, want)
		}
		delete(sections, name)
	}
	for name := range sections {
		t.Errorf("the section %s is about no alert", name)
	}
}

// TestRulesFire: each alert fires when it should, and only then, by Prometheus' own tool.
func TestRulesFire(t *testing.T) {
	promtool := testenv.Program(t, "promtool")
	text, err := os.ReadFile(rulesDir + "/jeoul.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(rulesDir + "/jeoul.rules.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(string(tests), "alertname: "+alert[1]) {
			t.Errorf("%s has no test", alert[1])
		}
	}
	for _, arguments := range [][]string{{"check", "rules", "jeoul.rules.yml"},
		{"test", "rules", "jeoul.rules.test.yml"}} {
		command := exec.CommandContext(t.Context(), promtool, arguments...)
		command.Dir = rulesDir
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, output)
		}
	}
}
