// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

func TestSummarize(t *testing.T) {
	tests := []struct {
		values []float64
		want   stat
	}{
		{nil, stat{}},
		{[]float64{3}, stat{3, 3, 3, 1}},
		{[]float64{9, 1, 2}, stat{2, 1, 9, 3}},
		{[]float64{4, 1, 2, 3}, stat{2.5, 1, 4, 4}},
		{[]float64{1.6e308, 1.6e308}, stat{1.6e308, 1.6e308, 1.6e308, 2}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, summarize(test.values)); diff != "" {
			t.Errorf("summarize(%v) (-want +got):\n%s", test.values, diff)
		}
	}
}

// TestAggregate checks that invalid repeats do not count, that threads are no
// reason not to compare, and that concurrency is.
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
		bad := at(proxySubject, 10, 2, repeat, 1e9)
		if repeat == 2 {
			bad.Valid, bad.Notes = false, []string{"it failed"}
		} else {
			bad.Metrics = rps(600)
		}
		trials = append(trials,
			at("jeoul-l2dsr-xdp", 10, 0, repeat, 900+float64(repeat)),
			at("jeoul-l2dsr-xdp", 5, 0, repeat, 800),
			at(proxySubject, 10, 1, repeat, 500),
			bad,
			at(baselineSubject, 10, 0, repeat, 1000),
		)
	}
	sections := aggregate(trials, "")
	if len(sections) != 1 {
		t.Fatalf("got %d sections, want 1", len(sections))
	}
	s := sections[0]
	if got := s.Constant.text(); got != "5 KiB file" {
		t.Errorf("constant parameters are %q", got)
	}
	var got []string
	for _, g := range s.Groups {
		for _, p := range g.Points {
			got = append(got, g.Params.text()+": "+p.Label)
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
	proxy := s.Groups[1].best(proxySubject, results.RequestsPerSecond)
	if diff := cmp.Diff(stat{600, 600, 600, 2}, proxy.Stats[results.RequestsPerSecond]); diff != "" {
		t.Errorf("the best proxy, whose second repeat is invalid (-want +got):\n%s", diff)
	}
	ours := s.Groups[1].best("jeoul-l2dsr-xdp", results.RequestsPerSecond)
	if r, ok := ratioOf(ours, proxy, results.RequestsPerSecond); !ok || r != 902.0/600 {
		t.Errorf("ratio to the best proxy is %v, %v", r, ok)
	}
	answer := strings.Join(s.answer(0), "\n")
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
		percent, idle, ok := unevenness(test.backends)
		if percent != test.percent || idle != test.idle || ok != test.ok {
			t.Errorf("%s: got %v, %d, %v", test.name, percent, idle, ok)
		}
	}
}

func TestFormat(t *testing.T) {
	tests := []struct{ got, want string }{
		{decimal(1234567.891, 1), "1,234,567.9"},
		{decimal(-0.4, 1), "−0.4"},
		{decimal(-0.04, 1), "0.0"},
		{decimal(2e15, 0), "2e+15"},
		{ratioText(0.0123), "0.012"},
		{ratioText(0.0000123), "1.2e-05"},
		{ratioText(0), "0.00"},
		{ratioText(1.925), "1.93"},
		{ratioText(12.34), "12.3"},
		{ratioText(123.4), "123"},
		{fraction(0.083), "1/12"},
		{fraction(0.95), "0.95 ×"},
		{percentMore(4.66), "+4.7 %"},
		{percentMore(1234.5), "+1,234 %"},
		{bytesText(5120), "5 KiB"},
		{bytesText(1536), "1.5 KiB"},
		{bytesText(25769803776), "24 GiB"},
		{short(5000, 12000), "5,000"},
		{short(250000, 300000), "250k"},
		{short(0, 300000), "0"},
		{short(-2.5, 10), "−2.5"},
		{clean("a\tb\x1b[0m\xff"), "a b\ufffd[0m\ufffd"},
		{escapeMarkdown("a<b>|*x*_y_ c_d"), `a&lt;b&gt;|\*x\*_y\_ c_d`},
		{tally([]string{"a", "b", "b"}, false), "b, a"},
		{tally([]string{"a", "b", "b"}, true), "b 2, a 1"},
	}
	for _, test := range tests {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

func TestDecimalsFor(t *testing.T) {
	tests := []struct {
		values []float64
		want   int
	}{
		{nil, 0},
		{[]float64{0}, 0},
		{[]float64{12, 400}, 0},
		{[]float64{1.5, 30}, 1},
		{[]float64{0.05, 30}, 3},
		{[]float64{0.05, 5000}, 1},
		{[]float64{0.05, 500000}, 0},
	}
	for _, test := range tests {
		if got := decimalsFor(test.values); got != test.want {
			t.Errorf("decimalsFor(%v) = %d, want %d", test.values, got, test.want)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, span := range []float64{1e-9, 0.7, 1, 3, 59, 61, 12000, 4e9} {
		if n := len((ticks{}).on(0, span)); n < 3 || n > 8 {
			t.Errorf("%d ticks from 0 to %v", n, span)
		}
	}
	for _, high := range []float64{2, 20, 1000, 1e9, 1e100} {
		if n := len((ticks{log: true, room: 300}).on(1, high)); n < 2 || n > 12 {
			t.Errorf("%d ticks from 1 to %v", n, high)
		}
	}
}

// TestPalette checks that a subject's ink does not depend on the others.
func TestPalette(t *testing.T) {
	run := runOf(trial("zzz", nil), trial("jeoul-l2dsr-xdp", nil), trial("haproxy-http", nil), trial("direct", nil))
	p := newPalette(aggregate(run.Trials, run.Baseline))
	want := map[string]ink{"direct": inkBaseline, "haproxy-http": inkOrange, "jeoul-l2dsr-xdp": inkBlue,
		"zzz": inkPurple}
	if diff := cmp.Diff(want, p.of); diff != "" {
		t.Errorf("inks (-want +got):\n%s", diff)
	}
}
