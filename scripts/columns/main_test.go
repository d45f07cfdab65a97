// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

// TestLongLines: code and comments are too long from 121 columns on, and a tab counts as four. The columns of strings,
// of one line or of several, do not count.
func TestLongLines(t *testing.T) {
	name := strings.Repeat("n", 110)
	text := strings.Repeat("s", 200)
	for _, tc := range []struct {
		what, line string
		isGo       bool
		long       []longLine
	}{
		{"120 columns", "// " + strings.Repeat("c", 117), true, nil},
		{"121 columns", "// " + strings.Repeat("c", 118), true, []longLine{{3, 121}}},
		{"a tab", "\t// " + strings.Repeat("c", 114), true, []longLine{{3, 121}}},
		{"letters of several bytes", "// " + strings.Repeat("가", 117), true, nil},
		{"C", "\t" + strings.Repeat("c", 117), false, []longLine{{3, 121}}},
		{"a string", `var a = "` + text + `"`, true, nil},
		{"a string with a quote", `var a = "` + text + `\"` + text + `"`, true, nil},
		{"a string in C", `char *a = "` + text + `";`, false, []longLine{{3, 213}}},
		{"a string behind a long name", "var " + name + name + ` = "` + text + `"`, true, []longLine{{3, 429}}},
		{"the second line of a string", "var a = `\n" + text + "`", true, nil},
		{"code behind a string of two lines", "var a = f(`\n" + text + "`, " + name + "+" + name + ")", true,
			[]longLine{{4, 425}}},
		{"a directive", "//go:generate " + text, true, nil},
	} {
		got := longLines([]byte("package p\n\n"+tc.line+"\n"), tc.isGo)
		if !slices.Equal(got, tc.long) {
			t.Errorf("%s: %v, want %v", tc.what, got, tc.long)
		}
	}
}
