// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/jeoul/jeoul/internal/balancer/metrics"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

var update = flag.Bool("update", false, "write the dashboard anew")

const file = "../../../../deploy/grafana/jeoul.json"

func TestFileIsCurrent(t *testing.T) {
	want, err := Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is stale (`go test ./internal/balancer/metrics/dashboard -update` writes it anew):\n%s",
			file, diff)
	}
}

// namesOfMetrics finds the metrics in a text.
var namesOfMetrics = regexp.MustCompile(`\bjeoul_[a-z_]+`)

// TestExpressionsNameMetrics: a figure of a metric that does not exist stays empty.
func TestExpressionsNameMetrics(t *testing.T) {
	reference := metrics.Reference()
	for _, e := range Expressions("1m") {
		if strings.Contains(e.Text, "$instance") || strings.Contains(e.Text, "$service") ||
			strings.Contains(e.Text, "$__") {
			t.Errorf("%s: a variable is left", e.Text)
		}
		for _, name := range namesOfMetrics.FindAllString(e.Text, -1) {
			if !strings.Contains(reference, "| `"+name+"` |") {
				t.Errorf("%s: there is no metric %s", e.Text, name)
			}
		}
	}
}

// without are the metrics that no figure has, and why.
var without = map[string]string{
	"jeoul_interface_info":  "the hook of an interface is a word, and changes with the configuration: `jeoul status` has it",
	"jeoul_service_info":    "the choice of services at the head is made of it",
	"jeoul_vrrp_vip_active": "an alert finds the balancers of a virtual router by it; jeoul_vrrp_active is drawn",
}

// TestEveryMetricHasAFigure: a metric that is scraped and never drawn is overlooked.
func TestEveryMetricHasAFigure(t *testing.T) {
	drawn := map[string]bool{}
	for _, e := range Expressions("1m") {
		for _, name := range namesOfMetrics.FindAllString(e.Text, -1) {
			drawn[name] = true
		}
	}
	listed := regexp.MustCompile("(?m)^\\| `(jeoul_[a-z_]+)` \\|").FindAllStringSubmatch(metrics.Reference(), -1)
	if len(listed) < 80 {
		t.Fatalf("the reference has %d metrics", len(listed))
	}
	for _, m := range listed {
		if _, excused := without[m[1]]; excused == drawn[m[1]] {
			t.Errorf("%s: drawn %t, and a reason not to is given: %t", m[1], drawn[m[1]], excused)
		}
	}
}

// TestSchema: Grafana's own model of a dashboard, of which its schema is generated, takes every field of the file, and
// finds
// nothing wrong in it.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	plugins.RegisterDefaultPlugins()
	//lint:ignore SA1019 the schema that every Grafana imports; see build
	var read dashboard.Dashboard
	// The error is one without content where all is well.
	wrong := func(err error) bool { return err != nil && err.Error() != "" }
	if err := read.UnmarshalJSONStrict(text); wrong(err) {
		t.Fatal(err)
	}
	if err := read.Validate(); wrong(err) {
		t.Error(err)
	}
	for _, was := range []string{`"refresh"`, `"legendFormat"`, `"fillOpacity"`, `"iconColor"`} {
		other := strings.Replace(string(text), was, `"unheardOf"`, 1)
		if err := read.UnmarshalJSONStrict([]byte(other)); !wrong(err) {
			t.Errorf("a key that Grafana does not know is taken in place of %s", was)
		}
	}
}

// TestExpressionsHaveData: Prometheus itself evaluates each expression over a scrape in which every metric has a
// series, and each
// but an annotation's has data.
func TestExpressionsHaveData(t *testing.T) {
	promtool := testenv.Program(t, "promtool")
	type alert struct {
		Alert string `json:"alert"`
		Expr  string `json:"expr"`
	}
	type firing struct {
		Time  string           `json:"eval_time"`
		Name  string           `json:"alertname"`
		Fires []map[string]any `json:"exp_alerts"`
	}
	var rules []alert
	var tests []firing
	for i, e := range Expressions("5m") {
		name := fmt.Sprintf("Expression%d", i)
		rules = append(rules, alert{name, "count(" + e.Text + ") > 0"})
		if !e.Mark {
			tests = append(tests, firing{"10m", name, []map[string]any{{"exp_labels": map[string]any{}}}})
		}
	}
	dir := t.TempDir()
	write(t, dir+"/rules.json", map[string]any{"groups": []any{map[string]any{"name": "board", "rules": rules}}})
	write(t, dir+"/test.json", map[string]any{"rule_files": []string{"rules.json"}, "evaluation_interval": "1m",
		"tests": []any{map[string]any{"interval": "15s", "input_series": scraped(t), "alert_rule_test": tests}}})
	command := exec.CommandContext(t.Context(), promtool, "test", "rules", "test.json")
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		for i, e := range Expressions("5m") {
			if strings.Contains(string(out), fmt.Sprintf("alertname: Expression%d,", i)) {
				t.Errorf("no data, or not PromQL: %s", e.Text)
			}
		}
		t.Errorf("promtool: %v\n%.2000s", err, out)
	}
}

func write(t *testing.T, path string, value any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// scraped are the series of the metrics' golden scrape, as promtool has them: counters grow. Beside them are those that
// the
// process and a host have.
func scraped(t *testing.T) (all []map[string]string) {
	t.Helper()
	text, err := os.ReadFile("../testdata/sample.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := append(
		strings.Split(string(text), "\n"),
		`jeoul_reloads_total{result="applied"} 1`,
		"jeoul_last_reload_successful 1",
		"jeoul_last_reload_success_timestamp_seconds 1",
		`jeoul_api_denied_total{lacking="role"} 1`,
		"process_cpu_seconds_total 1",
		"process_resident_memory_bytes 1",
		"process_start_time_seconds 1",
		`node_cpu_seconds_total{mode="softirq",cpu="0"} 1`,
	)
	series := regexp.MustCompile(`^(\w+)(?:\{(.*)\})? (\S+)$`)
	for _, line := range lines {
		parts := series.FindStringSubmatch(line)
		if parts == nil {
			continue
		}
		instance, grows := "a:9533", "0"
		if strings.HasPrefix(parts[1], "node_") {
			instance = "a:9100"
		}
		if strings.HasSuffix(parts[1], "_total") {
			grows = "10"
		}
		all = append(all, map[string]string{"values": parts[3] + "+" + grows + "x60",
			"series": parts[1] + "{" + strings.Join(
				append(strings.Fields(parts[2]), `instance="`+instance+`",job="jeoul"`),
				",",
			) + "}"})
	}
	if len(all) < 100 {
		t.Fatalf("the golden scrape has %d series", len(all))
	}
	return all
}

// TestPanelsFit: Grafana draws panels over each other that do not fit, and drops all but one of
// those with one number.
func TestPanelsFit(t *testing.T) {
	text, err := Marshal()
	if err != nil {
		t.Fatal(err)
	}
	type panel struct {
		ID      int
		Title   string
		GridPos struct{ H, W, X, Y int }
		Panels  []panel
	}
	var made panel
	if err := json.Unmarshal(text, &made); err != nil {
		t.Fatal(err)
	}
	taken, numbers := map[[2]int]string{}, map[int]string{}
	all := made.Panels
	for _, p := range made.Panels {
		// Those of a collapsed row are drawn where it is opened.
		all = append(all, p.Panels...)
	}
	for _, p := range all {
		if other, ok := numbers[p.ID]; ok {
			t.Errorf("%q and %q have the number %d", other, p.Title, p.ID)
		}
		numbers[p.ID] = p.Title
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%q ends at %d of 24", p.Title, p.GridPos.X+p.GridPos.W)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok {
					t.Fatalf("%q is drawn over %q", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
