// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestCheck: a refused word is found in each kind of declaration, by whole words of a name. A folder with an exception,
// or one below it, may have the word, and an exception that nothing needs is a finding. C has additional words.
func TestCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "C.md",
		"# C\n\n### Words in names\n| Not | But |\n| --- | --- |\n| `keepHouse`, `tale` | `janitor` |\n\n"+
			"#### Words in names of C\n| Not | But |\n| --- | --- |\n| `recall` | `lookup` |\n\n## End\n| `ear` | no |\n")
	writeFile(t, "a/a.go",
		"package a\n\ntype tale struct{ theTale int }\n\nfunc KeepHouse(recall int) { ear := recall; _ = ear }\n")
	writeFile(t, "b/c/c.go", "package c\n\nvar tales, tale int\n")
	writeFile(t, "d/d.h", "/* recall is\n * no name. */\n#include \"recall.h\"\n#define KEEP_HOUSE 1\n"+
		"static int recall_flow(struct tale *t, int recalls)\n{\n\treturn printf(\"recall\", recall_flow); // tale\n}\n")
	writeFile(t, "allowed.txt", "# a comment\ntale b\nkeepHouse b\n")
	problems, err := check("C.md", "allowed.txt", []string{"a/a.go", "b/c/c.go", "d/d.h"})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(problems, "\n")
	for _, want := range []string{"a/a.go:3:6: tale: the field says janitor", "a/a.go:3:19: theTale:",
		"a/a.go:5:6: KeepHouse:",
		"d/d.h:4: KEEP_HOUSE: the field says janitor", "d/d.h:5: recall_flow: the field says lookup", "d/d.h:5: tale:",
		`allowed.txt: b uses "keepHouse" no more`} {
		if !strings.Contains(got, want) {
			t.Errorf("the findings lack %q", want)
		}
	}
	if len(problems) != 7 {
		t.Errorf("findings:\n%s", got)
	}
	if _, err := check("allowed.txt", "allowed.txt", nil); err == nil {
		t.Error("a page without a table is taken")
	}
}
