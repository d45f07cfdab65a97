// SPDX-License-Identifier: Apache-2.0

package report

import "testing"

// TestTranslate checks which phrases match texts.
func TestTranslate(t *testing.T) {
	words := newTranslator([]phrase{
		{"load", "Load", "부하"}, {"cores", "cores", "코어"}, {"new", "New connections (ab)", "새 연결(ab)"},
		{"thread", "thread", "스레드"},
		{"threads", "{number1} threads", "스레드 {number1}개"},
		{"served", "{text1} served {text2} of {text3}", "{text3} 대비 {text2}, {text1}"},
		{"but", "all but {number1} of {text2}", "{text2} 중 {number1}개 제외"},
		{"and", " and ", ", "},
	})
	for english, want := range map[string]string{
		"Load":                            "부하",
		"12,345.6":                        "12,345.6",
		"jeoul-nat-tc · 2 threads":        "jeoul-nat-tc · 스레드 2개",
		"2–8 threads":                     "스레드 2–8개",
		"two threads":                     "two threads",
		"jeoul served 0.98 × of direct":   "direct 대비 0.98 ×, jeoul",
		"New connections (ab): 2 threads": "새 연결(ab): 스레드 2개",
		"all but 3 of cores":              "코어 중 3개 제외",
		"Load and cores":                  "부하, 코어",
		// A phrase must not match two items of a list as one, nor a title, nor the full stop.
		"jeoul served 1 of direct; ab served 2 of wrk":        "direct 대비 1, jeoul; wrk 대비 2, ab",
		"New connections (ab): jeoul served 0.98 × of direct": "새 연결(ab): direct 대비 0.98 ×, jeoul",
		"jeoul served 0.98 × of direct.":                      "direct 대비 0.98 ×, jeoul.",
	} {
		if got := words.text(english); got != want {
			t.Errorf("%q became %q, want %q", english, got, want)
		}
	}
}
