// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/metrics"
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
		t.Errorf("%s is stale (`go test ./internal/balancer/metrics/dashboard -update` writes it anew):\n%s", file, diff)
	}
}

// TestExpressionsNameMetrics: a figure of a metric that does not exist stays empty.
func TestExpressionsNameMetrics(t *testing.T) {
	reference := metrics.Reference()
	for _, expression := range Expressions("1m") {
		if strings.Contains(expression, "$") {
			t.Errorf("%s: a variable is left", expression)
		}
		for _, name := range regexp.MustCompile(`\bjeoul_[a-z_]+`).FindAllString(expression, -1) {
			if !strings.Contains(reference, "| `"+name+"` |") {
				t.Errorf("%s: there is no metric %s", expression, name)
			}
		}
	}
}

// TestPanelsFit: Grafana draws panels over each other that do not fit, and drops all but one of
// those with one number.
func TestPanelsFit(t *testing.T) {
	text, err := Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var made struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ H, W, X, Y int }
		}
	}
	if err := json.Unmarshal(text, &made); err != nil {
		t.Fatal(err)
	}
	taken, numbers := map[[2]int]string{}, map[int]string{}
	for _, p := range made.Panels {
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
