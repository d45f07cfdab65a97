// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/jeoul/jeoul/internal/results"
)

// Markdown writes the report as GitHub-flavoured Markdown. The error is w's.
func Markdown(w io.Writer, run *results.Run) error {
	d := newDocument(run)
	m := &markdownWriter{w: bufio.NewWriter(w)}
	fmt.Fprintf(m.w, "# %s\n", escapeMarkdown(d.Title))
	m.paragraph(d.Asked)
	for _, s := range d.Warnings {
		fmt.Fprintf(m.w, "\n> %s\n", escapeMarkdown(s))
	}
	fmt.Fprint(m.w, "\n## Verdict\n\n")
	m.items(d.Verdict)
	if len(d.Environment) > 0 {
		fmt.Fprint(m.w, "\n## Environment\n\n")
		for _, f := range d.Environment {
			fmt.Fprintf(m.w, "- %s: %s\n", f.Name, escapeMarkdown(f.Value))
		}
	}
	for _, l := range d.Loads {
		fmt.Fprintf(m.w, "\n## %s\n", escapeMarkdown(l.Title))
		m.paragraph(l.Constant)
		for i := range l.Sheets {
			m.sheet("###", &l.Sheets[i])
		}
	}
	m.appendix(d)
	return m.w.Flush()
}

// appendix writes what stands behind the loads' tables.
func (m *markdownWriter) appendix(d *document) {
	if d.Invalid != nil {
		m.sheet("##", d.Invalid)
	}
	if d.Remarks != nil {
		m.sheet("##", d.Remarks)
	}
	if d.Evidence != nil {
		m.sheet("##", d.Evidence)
	}
	if p := d.Published; p != nil {
		m.sheet("##", &p.sheet)
		m.paragraph("Source: " + p.Source)
		m.paragraph("Machine: " + p.Machine)
		if len(p.Notes) > 0 {
			fmt.Fprintln(m.w)
			m.items(p.Notes)
		}
	}
	if len(d.Laboratory) > 0 {
		fmt.Fprint(m.w, "\n## The laboratory\n\n")
		m.items(d.Laboratory)
	}
	if len(d.Reading) > 0 {
		fmt.Fprint(m.w, "\n## How to read this\n\n")
		for _, p := range d.Reading {
			fmt.Fprintf(m.w, "- **%s.** %s\n", escapeMarkdown(p.Head), escapeMarkdown(p.Text))
		}
	}
}

// markdownWriter writes Markdown; the buffer keeps the first error.
type markdownWriter struct{ w *bufio.Writer }

func (m *markdownWriter) paragraph(s string) {
	if s != "" {
		fmt.Fprintf(m.w, "\n%s\n", escapeMarkdown(s))
	}
}

func (m *markdownWriter) items(texts []string) {
	for _, s := range texts {
		fmt.Fprintf(m.w, "- %s\n", escapeMarkdown(s))
	}
}

func (m *markdownWriter) sheet(level string, sh *sheet) {
	fmt.Fprintf(m.w, "\n%s %s\n", level, escapeMarkdown(sh.Title))
	m.paragraph(sh.Lead)
	fmt.Fprintf(m.w, "\n%s\n", newTable(sh, column.head, escapeMarkdown).RenderMarkdown())
	if len(sh.Notes) > 0 {
		fmt.Fprintln(m.w)
		m.items(sh.Notes)
	}
}

// markdownEscapes covers what starts an element within a line of Markdown,
// HTML included. The pipe is the table renderer's business; the underscore
// only marks emphasis at a word's edge, and is in too many names to be touched
// everywhere.
var markdownEscapes = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "[", `\[`, "]", `\]`, "<", "&lt;", ">", "&gt;", "&", "&amp;",
	" _", ` \_`, "_ ", `\_ `,
)

func escapeMarkdown(s string) string { return markdownEscapes.Replace(s) }
