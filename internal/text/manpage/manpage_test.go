// SPDX-License-Identifier: Apache-2.0

package manpage

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

// cli has one of everything that a page shows.
type cli struct {
	Pull struct {
		Hard struct {
			Rope   []string `arg:"" help:"Ropes, such as *left*."`
			Knots  int      "name:\"knots\" short:\"k\" required:\"\" placeholder:\"N\" help:\"How many <knots>; see `--help`.\""
			Secret bool     `hidden:"" help:"Unseen."`
		} `cmd:"" help:"Pull a rope_hard."`
	} `cmd:"" help:"Pull things."`
	Hidden struct{} `cmd:"" hidden:"" help:"Unseen."`
}

// TestCommands: a page has the texts of help, and characters with a meaning in Markdown or roff are shown literally.
func TestCommands(t *testing.T) {
	app, err := kong.New(&cli{}, kong.Name("tool"), kong.Description("Does it."))
	if err != nil {
		t.Fatal(err)
	}
	pages := Commands(app.Model, "tool 1", "## SEE ALSO\n**tool**(1)\n")
	var names []string
	for _, page := range pages {
		names = append(names, page.Name)
		if strings.Contains(string(page.Roff), "Unseen") {
			t.Errorf("%s shows what is hidden:\n%s", page.Name, page.Roff)
		}
	}
	if want := []string{"tool.1", "tool-pull.1", "tool-pull-hard.1"}; !slices.Equal(names, want) {
		t.Fatalf("pages %q, want %q", names, want)
	}
	want := `.nh
.TH "tool-pull-hard" "1" "" "tool 1" "Jeoul"
.SH NAME
tool-pull-hard \- Pull a rope_hard

.SH SYNOPSIS
\fBtool pull hard\fP \fB-k\fP, \fB--knots\fP=\fIN\fP [\fIoptions\fP] \fIrope\fP ...

.SH DESCRIPTION
Pull a rope_hard.

.SH ARGUMENTS
.TP
\fIrope\fP ...
Ropes, such as *left*\&.

.SH OPTIONS
.TP
\fB-h\fP, \fB--help\fP
Show context-sensitive help.

.TP
\fB-k\fP, \fB--knots\fP=\fIN\fP
How many <knots>; see \fB--help\fR\&.

.SH SEE ALSO
\fBtool\fP(1)
`
	if diff := cmp.Diff(want, string(pages[2].Roff)); diff != "" {
		t.Errorf("tool-pull-hard.1 (-want +got):\n%s", diff)
	}
}

// TestText: comments, the title and link targets, which are useless on a terminal, are omitted.
func TestText(t *testing.T) {
	got := Text("<!-- Made\nby hand. -->\n# Title\n\nSee [the page](../a.md#b), [`other`](#c).\n\n## Part\n")
	if want := "\nSee the page, `other`.\n\n## Part\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// helped is a command whose help has details.
type helped struct {
	Where string `arg:"" optional:"" help:"A place."`
	Far   bool   `group:"reach" help:"Go on."`
}

func (helped) Help() string { return "It is *far*:\n\n    tool go *" }

// TestDetails: the details of a command's help are shown, with examples unchanged, and flags of a group separately.
func TestDetails(t *testing.T) {
	app, err := kong.New(&struct {
		Go helped `cmd:"" help:"Go there."`
	}{}, kong.Name("tool"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(Commands(app.Model, "tool 1", "")[1].Roff)
	for _, want := range []string{"[\\fIwhere\\fP]", "It is *far*:\n", "tool go *\n", ".SH REACH OPTIONS\n.TP\n\\fB--far\\fP\nGo on."} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}
