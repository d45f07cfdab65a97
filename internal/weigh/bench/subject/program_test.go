// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"slices"
	"strings"
	"testing"
)

// TestOnlyCompleteLinesArePassedOn writes lines in pieces, as a program's output arrives.
func TestOnlyCompleteLinesArePassedOn(t *testing.T) {
	var got []string
	output := tail{onLine: func(line string) { got = append(got, line) }}
	for piece := range strings.SplitAfterSeq("reading a again\nreloaded a\n\nrelo", "re") {
		if _, err := output.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"reading a again", "reloaded a", ""}; !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
}
