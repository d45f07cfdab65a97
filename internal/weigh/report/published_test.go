// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

func documentRun(trials ...results.Trial) *results.Run {
	run := runOf(trials...)
	run.Published = &results.Published{
		Source: "a document", Machine: "another machine",
		Columns: []string{"Method", "Thread", "Concurrency", "Requests (sec)"},
		Rows: [][]string{{"proxy", "1", "1,000", "500"}, {"proxy", "2", "1,000", "900"},
			{"L2DSR", "1", "1,000", "1000"}},
		Beside: []results.Beside{{
			Figure: "Requests (sec)", Load: "http", Metric: results.RequestsPerSecond, Column: "Method",
			Params:   map[string]string{"Thread": "threads", "Concurrency": "concurrency"},
			Subjects: map[string][]string{"proxy": {"haproxy-http"}, "L2DSR": {"jeoul-l2dsr-xdp"}},
		}},
	}
	return run
}

// TestBeside checks which of our figures are shown beside a document's: those at the row's point, and the best variant
// of each subject.
func TestBeside(t *testing.T) {
	at := func(subject string, concurrency int, rate float64, own map[string]any) results.Trial {
		made := trial(subject, rps(rate))
		made.Params = map[string]any{"concurrency": concurrency}
		for name, v := range own {
			made.Params[name] = v
		}
		return made
	}
	run := documentRun(
		at("haproxy-http", 1000, 11, map[string]any{"threads": 1}),
		at("haproxy-http", 1000, 22, map[string]any{"threads": 2}),
		at("haproxy-http", 2000, 99, map[string]any{"threads": 1}),
		at("jeoul-l2dsr-xdp", 1000, 33, map[string]any{"scheduler": "rr"}),
		at("jeoul-l2dsr-xdp", 1000, 44, map[string]any{"scheduler": "maglev"}),
	)
	d := newDocument(run)
	var got []string
	for _, g := range d.Published.Groups {
		for _, l := range g {
			got = append(got, l.Cells[4])
		}
	}
	want := []string{"haproxy-http · 1 thread: 11.0", "haproxy-http · 2 threads: 22.0",
		"jeoul-l2dsr-xdp · maglev: 44.0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBesideNothing checks that a table without a point of ours says so and has no empty column.
func TestBesideNothing(t *testing.T) {
	d := newDocument(documentRun(trial("haproxy-http", rps(1))))
	if len(d.Published.Columns) != 4 || len(d.Published.Notes) != 1 {
		t.Errorf("%d columns and the notes %q; want 4 and one that says why", len(d.Published.Columns),
			d.Published.Notes)
	}
}
