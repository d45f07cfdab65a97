// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

func TestSummarize(t *testing.T) {
	tests := []struct {
		values []float64
		want   model.Stat
	}{
		{nil, model.Stat{}},
		{[]float64{3}, model.Stat{Median: 3, Min: 3, Max: 3, N: 1}},
		{[]float64{9, 1, 2}, model.Stat{Median: 2, Min: 1, Max: 9, N: 3}},
		{[]float64{4, 1, 2, 3}, model.Stat{Median: 2.5, Min: 1, Max: 4, N: 4}},
		{[]float64{1.6e308, 1.6e308}, model.Stat{Median: 1.6e308, Min: 1.6e308, Max: 1.6e308, N: 2}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, model.Summarize(test.values)); diff != "" {
			t.Errorf("summarize(%v) (-want +got):\n%s", test.values, diff)
		}
	}
}

// TestAggregate checks that invalid repeats do not count, that points with different threads are compared, and that
// points with different concurrency are not.
func TestAggregate(t *testing.T) {
	at := func(subject string, concurrency, threads, repeat int, v float64) results.Trial {
		tr := trial(subject, rps(v))
		tr.Params = map[string]any{"concurrency": concurrency, "file_bytes": 5120}
		if threads > 0 {
			tr.Params["threads"] = threads
		}
		tr.Repeat = repeat
		return tr
	}
	var trials []results.Trial
	for repeat := 1; repeat <= 3; repeat++ {
		bad := at(model.ProxySubject, 10, 2, repeat, 1e9)
		if repeat == 2 {
			bad.Valid, bad.Notes = false, []string{"it failed"}
		} else {
			bad.Metrics = rps(600)
		}
		trials = append(trials,
			at("jeoul-l2dsr-xdp", 10, 0, repeat, 900+float64(repeat)),
			at("jeoul-l2dsr-xdp", 5, 0, repeat, 800),
			at(model.ProxySubject, 10, 1, repeat, 500),
			bad,
			at(model.BaselineSubject, 10, 0, repeat, 1000),
		)
	}
	sections := aggregate(trials, "")
	if len(sections) != 1 {
		t.Fatalf("got %d sections, want 1", len(sections))
	}
	s := sections[0]
	if got := s.Constant.Text(); got != "5 KiB file" {
		t.Errorf("constant parameters are %q", got)
	}
	var got []string
	for _, g := range s.Groups {
		for _, p := range g.Points {
			got = append(got, g.Params.Text()+": "+p.Label)
		}
	}
	want := []string{
		"5 concurrent · 5 KiB file: jeoul-l2dsr-xdp",
		"10 concurrent · 5 KiB file: direct",
		"10 concurrent · 5 KiB file: haproxy-http · 1 thread",
		"10 concurrent · 5 KiB file: haproxy-http · 2 threads",
		"10 concurrent · 5 KiB file: jeoul-l2dsr-xdp",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
	proxy := s.Groups[1].Best(model.ProxySubject, results.RequestsPerSecond)
	if diff := cmp.Diff(model.Stat{Median: 600, Min: 600, Max: 600, N: 2},
		proxy.Stats[results.RequestsPerSecond]); diff != "" {
		t.Errorf("the best proxy, whose second repeat is invalid (-want +got):\n%s", diff)
	}
	ours := s.Groups[1].Best("jeoul-l2dsr-xdp", results.RequestsPerSecond)
	if r, ok := model.RatioOf(ours, proxy, results.RequestsPerSecond); !ok || r != 902.0/600 {
		t.Errorf("ratio to the best proxy is %v, %v", r, ok)
	}
	answer := strings.Join(sayAnswer(s, 0), "\n")
	if want := "jeoul-l2dsr-xdp serves 1.50 × haproxy-http's requests/s"; !strings.Contains(answer, want) &&
		!strings.Contains(answer, "1.50 × haproxy-http's requests/s") {
		t.Errorf("the answer lacks %q:\n%s", want, answer)
	}
}

func TestUnevenness(t *testing.T) {
	backends := func(connections ...uint64) []results.Backend {
		var b []results.Backend
		for _, c := range connections {
			b = append(b, results.Backend{Connections: c})
		}
		return b
	}
	tests := []struct {
		name     string
		backends []results.Backend
		percent  float64
		idle     int
		ok       bool
	}{
		{"none", nil, 0, 0, false},
		{"even", backends(5, 5), 0, 0, true},
		{"a half more", backends(10, 15, 12), 50, 0, true},
		{"one idle", backends(10, 0), 0, 1, false},
		{"not counted", backends(0, 0), 0, 0, false},
	}
	for _, test := range tests {
		percent, idle, ok := model.Unevenness(test.backends)
		if percent != test.percent || idle != test.idle || ok != test.ok {
			t.Errorf("%s: got %v, %d, %v", test.name, percent, idle, ok)
		}
	}
}

func TestTally(t *testing.T) {
	for withCounts, want := range map[bool]string{false: "b, a", true: "b 2, a 1"} {
		if got := model.Tally([]string{"a", "b", "b"}, withCounts); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestEscapeMarkdown(t *testing.T) {
	if got, want := escapeMarkdown("a<b>|*x*_y_ c_d"), `a&lt;b&gt;|\*x\*_y\_ c_d`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestPalette checks that a subject's ink does not depend on the others.
func TestPalette(t *testing.T) {
	run := runOf(trial("zzz", nil), trial("jeoul-l2dsr-xdp", nil), trial("haproxy-http", nil), trial("direct", nil))
	p := model.NewPalette(aggregate(run.Trials, run.Baseline))
	for name, want := range map[string]chart.Ink{"direct": chart.InkBaseline, "haproxy-http": chart.InkOrange,
		"jeoul-l2dsr-xdp": chart.InkBlue, "zzz": chart.InkPurple} {
		if got := p.Ink(name); got != want {
			t.Errorf("%s has ink %v, want %v", name, got, want)
		}
	}
}
