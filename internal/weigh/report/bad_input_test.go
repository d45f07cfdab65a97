// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// badTrial is a trial of a results file: its verbs are a subject, a load, the number of the repeat, and a value.
const badTrial = `{"subject":%q,"load":%q,"repeat":%d,"valid":true,"saturated":"none","params":{"size":9},` +
	`"metrics":{"requests_per_second":%s,"misses":67}}`

// badFile is a results file of trials.
func badFile(trials ...string) string {
	return `{"schema":1,"suite":"later","started":"2030-01-02T03:04:05Z","environment":{},"trials":[` +
		strings.Join(trials, ",") + "]}"
}

// badInput has unforeseen results files: each is shown in every form, with the words, or rejected, with the field.
var badInput = map[string]struct {
	text           string
	refused, shown []string
}{
	"of another version": {text: strings.Replace(badFile(), `"schema":1`, `"schema":2`, 1),
		refused: []string{"unknown schema 2: this jeoul reads schema 1; use the jeoul that wrote the file"}},
	"without a version": {text: `{"trials":[]}`, refused: []string{`there is no "schema"`}},
	"cut off": {text: badFile(fmt.Sprintf(badTrial, "a", "http", 1, "1"))[:200],
		refused: []string{":1:201: ", "the file ends in the middle", "copy it again"}},
	"NaN": {text: badFile(fmt.Sprintf(badTrial, "a", "http", 1, "NaN")),
		refused: []string{`not JSON, in "requests_per_second": invalid character 'N'`}},
	"infinite": {text: badFile(fmt.Sprintf(badTrial, "a", "http", 1, "1e999")),
		refused: []string{"trials.metrics cannot hold a JSON number 1e999"}},
	"of an unknown kind": {text: badFile(fmt.Sprintf(badTrial, "jeoul-nat-tc", "mc-of-tomorrow", 1, "12345")),
		shown: []string{"mc-of-tomorrow", "jeoul-nat-tc", "12,345", "What else was counted"}},
	"with markup in names": {text: badFile(fmt.Sprintf(badTrial, "a<b>", "x<i>y", 1, "5"),
		fmt.Sprintf(badTrial, "c", "x<i>y", 1, "6")),
		shown: []string{"a<b>", "x<i>y"}},
	"without a baseline": {text: badFile(fmt.Sprintf(badTrial, "jeoul-nat-tc", "ab", 1, "50"),
		fmt.Sprintf(badTrial, "haproxy-http", "ab", 1, "40")),
		shown: []string{"jeoul-nat-tc", "haproxy-http", "50", "40"}},
	"of 10,000 trials": {text: badFile(manyTrials(5000)...),
		shown: []string{"ipvs-dr and jeoul-nat-tc cannot be told apart"}},
}

// manyTrials returns the trials of two equal subjects.
func manyTrials(each int) (all []string) {
	for i := range each {
		for _, subject := range []string{"ipvs-dr", "jeoul-nat-tc"} {
			all = append(all, fmt.Sprintf(badTrial, subject, "ab", i+1, fmt.Sprint(100+i%7)))
		}
	}
	return all
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	for name, c := range badInput {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, err := results.Decode([]byte(c.text))
			for _, words := range c.refused {
				if err == nil || !strings.Contains(err.Error(), words) {
					t.Errorf("got %v, want %q", err, words)
				}
			}
			if c.refused != nil {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, form := range []string{"html", "md", "txt"} {
				text := render(t, forms[form], run)
				for _, words := range c.shown {
					if form != "txt" {
						words = strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(words)
					}
					if !strings.Contains(strings.Join(strings.Fields(text), " "), words) {
						t.Errorf("%s lacks %q:\n%.2000s", form, words, text)
					}
				}
				if form == "html" && (strings.Contains(text, "<i>y") || strings.Contains(text, "a<b>")) {
					t.Error("a name became markup")
				}
			}
		})
	}
}
