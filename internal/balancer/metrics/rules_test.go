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
	for _, arguments := range [][]string{{"check", "rules", "jeoul.rules.yml"}, {"test", "rules", "jeoul.rules.test.yml"}} {
		command := exec.CommandContext(t.Context(), promtool, arguments...)
		command.Dir = rulesDir
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, output)
		}
	}
}
