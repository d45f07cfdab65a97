// SPDX-License-Identifier: Apache-2.0

package report

import (
	"html"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// repeated makes a trial for each rate.
func repeated(subject string, rates ...float64) []results.Trial {
	var all []results.Trial
	for i, rate := range rates {
		t := trial(subject, rps(rate))
		t.Repeat = i + 1
		all = append(all, t)
	}
	return all
}

// TestAnswer: the first screen names a winner only where there is one, and otherwise says how many more repeats would
// tell.
func TestAnswer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		others [][]results.Trial
		want   []string
	}{
		"apart": {[][]results.Trial{repeated("haproxy-http", 50, 51, 50), repeated("jeoul-nat-tc", 80, 82, 81)},
			[]string{"jeoul-nat-tc serves 1.61 × haproxy-http's requests/s (1.58–1.64) at 1.61 × its CPU time."}},
		"not apart": {[][]results.Trial{repeated("haproxy-http", 50, 81, 80), repeated("jeoul-nat-tc", 80, 82, 79)},
			[]string{"jeoul-nat-tc and haproxy-http cannot be told apart by their requests/s: the ratio is 1.17 (0.49–2.78).",
				"No balancer of this run is better than another beyond the spread."}},
		"another as good": {[][]results.Trial{repeated("haproxy-http", 50, 51, 50),
			repeated("jeoul-nat-tc", 80, 82, 81), repeated("jeoul-l2dsr-tc", 80, 80, 84)},
			[]string{"jeoul-l2dsr-tc serves 1.62 × haproxy-http's requests/s (1.44–1.81) at 1.62 × its CPU time.",
				"Not told apart from it in this run: jeoul-nat-tc."}},
		"one repeat": {[][]results.Trial{repeated("haproxy-http", 50), repeated("jeoul-nat-tc", 80)},
			[]string{"This run is too short to name a winner: jeoul-nat-tc looks like 1.60 × haproxy-http's requests/s, but chance alone can do that.",
				"An interval needs 3 pairs of trials from 2 repeats or more; here are 1 from 1 repeat. 3 repeats of each point (about 3 min) would give one."}},
		"one alone": {[][]results.Trial{repeated("jeoul-nat-tc", 100, 101, 99)},
			[]string{"jeoul-nat-tc and direct cannot be told apart by their requests/s: the ratio is 1.00 (0.97–1.03).",
				"No balancer of this run is better than another beyond the spread."}},
		"none": {nil, []string{"The tables below show what was measured; there is nothing to hold it against."}},
	} {
		t.Run(name, func(t *testing.T) {
			run := runOf(repeated("direct", 100, 100, 100)...)
			if name == "one repeat" {
				run = runOf(repeated("direct", 100)...)
			}
			for _, other := range test.others {
				run.Trials = append(run.Trials, other...)
			}
			run.Ended = run.Started.Add(time.Duration(len(run.Trials)/max(1, len(test.others)+1)) * time.Minute)
			if diff := cmp.Diff(test.want, newDocument(run).Overview.Answer); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestEnoughRepeats: the report promises only a number of repeats that the run gives a reason for.
func TestEnoughRepeats(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		others [][]results.Trial
		want   string
	}{
		"one repeat": {[][]results.Trial{repeated("haproxy-http", 50), repeated("jeoul-nat-tc", 80)},
			"3 repeats of each point would give one."},
		"one repeat of equals": {[][]results.Trial{repeated("haproxy-http", 80), repeated("jeoul-nat-tc", 80)},
			"3 repeats of each point would give one."},
		"two repeats": {[][]results.Trial{repeated("haproxy-http", 50, 51), repeated("jeoul-nat-tc", 80, 82)},
			"3 repeats of each point would tell."},
		"two repeats of equals": {[][]results.Trial{repeated("haproxy-http", 80, 80), repeated("jeoul-nat-tc", 80, 80)},
			"A ratio of 1.00 is no difference, however often it is measured."},
		"two repeats of nearly equals": {
			[][]results.Trial{repeated("haproxy-http", 80, 90), repeated("jeoul-nat-tc", 90, 80.1)},
			"A ratio of 1.00 is no difference, however often it is measured."},
	} {
		t.Run(name, func(t *testing.T) {
			answer := newDocument(runOf(slices.Concat(test.others...)...)).Overview.Answer
			if len(answer) != 2 || !strings.HasSuffix(answer[1], test.want) {
				t.Errorf("the answer is %q, want it to end with %q", answer, test.want)
			}
			wantKorean(t, answer...)
		})
	}
}

// TestEveryFormBeginsWithTheAnswer: the question and the answer are the first lines of each form, in the same words.
func TestEveryFormBeginsWithTheAnswer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"demo", "change-quick", "synflood-quick", "packets", "dns-udp-quick"} {
		run := committedRun(t, name)
		o := newDocument(run).Overview
		English.words().overview(&o)
		for ending, until := range map[string]string{"html": "<h2", "md": "\n## ", "txt": "\nEnvironment\n"} {
			begins, _, _ := strings.Cut(html.UnescapeString(render(t, forms[ending], run)), until)
			begins = strings.Join(strings.Fields(strings.ReplaceAll(begins, `\`, "")), " ")
			for _, words := range append([]string{o.Question}, o.Answer...) {
				if !strings.Contains(begins, strings.Join(strings.Fields(words), " ")) {
					t.Errorf("%s.%s does not begin with %q", name, ending, words)
				}
			}
		}
	}
}
