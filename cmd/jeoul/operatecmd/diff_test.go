// SPDX-License-Identifier: Apache-2.0

package operatecmd

import (
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
)

// TestWriteDifference: a difference is printed unchanged, and with colours for the added lines, the removed ones and
// the lines around them.
func TestWriteDifference(t *testing.T) {
	const difference = "--- before\n+++ after\n@@ -1,2 +1,2 @@\n services:\n-  a: 1\n+  a: 2\n"
	var plain, colours strings.Builder
	writeDifference(&plain, difference, false)
	if plain.String() != difference {
		t.Errorf("without colours: %q", plain.String())
	}
	text.EnableColors()
	defer text.DisableColors()
	writeDifference(&colours, difference, true)
	want := "\x1b[1m--- before\x1b[0m\n\x1b[1m+++ after\x1b[0m\n\x1b[36m@@ -1,2 +1,2 @@\x1b[0m\n services:\n\x1b[31m-  a: 1\x1b[0m\n\x1b[32m+  a: 2\x1b[0m\n"
	if colours.String() != want {
		t.Errorf("in colours: %q, want %q", colours.String(), want)
	}
}
