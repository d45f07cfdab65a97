// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// TestCompare checks the differences that are reported of two runs.
func TestCompare(t *testing.T) {
	first := runOf(trial("direct", rps(1000)), trial("jeoul-nat-tc", rps(900)), trial("haproxy-tcp", rps(500)))
	second := runOf(trial("direct", rps(2000)), trial("jeoul-nat-tc", rps(1800)), trial("haproxy-tcp", rps(800)))
	second.Environment.Kernel = "7.3"
	var text strings.Builder
	if err := Compare(&text, FormatMarkdown, English, first, second); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"The kernel differs: –, then 7.3.",
		"of 2 ratios to direct, 1 differ by 10 % or more; the largest difference is −20.0 % (haproxy-tcp)",
		"| jeoul-nat-tc | 900 | 1,800 | +100.0 % | apart | 0.90 | 0.90 | 0.0 % | +100.0 % |",
		"| haproxy-tcp | 500 | 800 | +60.0 % | apart | 0.50 | 0.40 | −20.0 % | +60.0 % |",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the comparison lacks %q:\n%s", want, &text)
		}
	}
}

// TestCompareNothing checks that two runs without a common point are rejected.
func TestCompareNothing(t *testing.T) {
	for name, second := range map[string]*results.Run{
		"no trials":       runOf(),
		"another subject": runOf(trial("haproxy-tcp", rps(1))),
		"not valid":       runOf(invalid(trial("direct", nil), "why")),
		"another's params": runOf(func() results.Trial {
			t := trial("direct", rps(1))
			t.Params = map[string]any{"concurrency": 11}
			return t
		}()),
	} {
		var text strings.Builder
		if err := Compare(&text, FormatTerminal, English, runOf(trial("direct", rps(1))), second); !errors.Is(err,
			ErrNothingShared) || text.Len() > 0 {
			t.Errorf("%s: got %v and %q; want ErrNothingShared and nothing written", name, err, &text)
		}
	}
}

// TestCompareBeyondTheSpread: with repeats, only a difference between intervals that do not overlap is a change.
func TestCompareBeyondTheSpread(t *testing.T) {
	t.Parallel()
	first := runOf(slices.Concat(repeated("direct", 100, 101, 100), repeated("jeoul-nat-tc", 90, 91, 90),
		repeated("haproxy-tcp", 50, 51, 50))...)
	second := runOf(slices.Concat(repeated("direct", 200, 201, 202), repeated("jeoul-nat-tc", 180, 181, 183),
		repeated("haproxy-tcp", 80, 81, 80))...)
	var text strings.Builder
	if err := Compare(&text, FormatMarkdown, English, first, second); err != nil {
		t.Fatal(err)
	}
	if want := "changed beyond the spread, in requests/s × direct: haproxy-tcp from 0.50 (0.49–0.51) to 0.40 (0.39–0.41); not told apart: 1."; !strings.Contains(text.String(), want) {
		t.Errorf("the comparison lacks %q:\n%s", want, &text)
	}
	text.Reset()
	if err := Compare(&text, FormatTerminal, Korean, first, first); err != nil ||
		!strings.Contains(text.String(), "편차를 넘는 변화 없음") {
		t.Errorf("a run compared with itself: %v\n%s", err, &text)
	}
}

// TestCompareBaselines: the ratios of both runs are those to the baseline of the second, also where the first has
// another one, or has not measured it.
func TestCompareBaselines(t *testing.T) {
	t.Parallel()
	direct, routed := repeated("direct", 100, 101, 100), repeated("routed", 80, 81, 80)
	proxy := repeated("haproxy-tcp", 70, 71, 70)
	for name, c := range map[string]struct {
		first       []results.Trial
		wants, lack string
	}{
		"both are in both": {slices.Concat(direct, routed, proxy),
			"| haproxy-tcp | 70.0 | 70.0 | 0.0 % | overlaps | 0.88 | 0.88 | 0.0 % | 0.0 % |", "changed beyond the spread, in"},
		"the first lacks the second's": {slices.Concat(direct, proxy),
			"| haproxy-tcp | 70.0 | 70.0 | 0.0 % | overlaps | 0.88 | 0.0 % |", "First × routed"},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := runOf(c.first...), runOf(slices.Concat(direct, routed, proxy)...)
			second.Baseline = "routed"
			var text strings.Builder
			if err := Compare(&text, FormatMarkdown, English, first, second); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"The baseline differs: direct, then routed.", c.wants} {
				if !strings.Contains(text.String(), want) {
					t.Errorf("the comparison lacks %q:\n%s", want, &text)
				}
			}
			if strings.Contains(text.String(), c.lack) {
				t.Errorf("the comparison says %q:\n%s", c.lack, &text)
			}
		})
	}
	wantKorean(t, "The baseline differs: direct, then routed.")
}

// TestCompareOnlySharedPoints: points that only one run has change nothing, whichever run it is.
func TestCompareOnlySharedPoints(t *testing.T) {
	t.Parallel()
	at := func(concurrency int, trials ...results.Trial) []results.Trial {
		for i := range trials {
			trials[i].Params = map[string]any{"concurrency": concurrency}
		}
		return trials
	}
	shared := slices.Concat(at(100, repeated("direct", 100, 101, 100, 101, 100, 101)...),
		at(100, repeated("haproxy-tcp", 90, 91, 91, 90, 90, 91)...))
	further := slices.Clone(shared)
	for _, concurrency := range []int{1000, 10000} {
		further = slices.Concat(further, at(concurrency, repeated("direct", 100, 101, 100, 101, 100, 101)...),
			at(concurrency, repeated("haproxy-tcp", 30, 31, 30, 31, 30, 31)...))
	}
	for name, runs := range map[string][2]*results.Run{
		"of the first run":  {runOf(further...), runOf(shared...)},
		"of the second run": {runOf(shared...), runOf(further...)},
	} {
		var text strings.Builder
		if err := Compare(&text, FormatMarkdown, English, runs[0], runs[1]); err != nil {
			t.Fatal(err)
		}
		if want := "nothing changed beyond the spread"; !strings.Contains(text.String(), want) {
			t.Errorf("further points %s: the comparison lacks %q:\n%s", name, want, &text)
		}
	}
}
