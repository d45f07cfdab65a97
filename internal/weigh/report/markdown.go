// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Markdown writes the report as GitHub-flavoured Markdown. The error is w's.
func Markdown(w io.Writer, run *results.Run) error { return writeMarkdown(w, English, run) }

func writeMarkdown(w io.Writer, language Language, run *results.Run) error {
	d := newDocument(run)
	m := &markdownWriter{w: bufio.NewWriter(w), words: language.words()}
	m.words.document(d)
	fmt.Fprintf(m.w, "# %s\n", escapeMarkdown(d.Title))
	m.paragraph(d.Asked)
	for _, s := range d.Warnings {
		fmt.Fprintf(m.w, "\n> %s\n", escapeMarkdown(s))
	}
	if len(d.Recommended) > 0 {
		m.heading("Which balancer for which load")
		m.items(d.Recommended)
	}
	m.heading("Verdict")
	m.items(d.Verdict)
	if d.Answers != nil {
		m.sheet("##", d.Answers)
	}
	if len(d.Environment) > 0 {
		m.heading("Environment")
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
		m.paragraph(m.words.text("Source") + ": " + p.Source)
		m.paragraph(m.words.text("Machine") + ": " + p.Machine)
		if len(p.Notes) > 0 {
			fmt.Fprintln(m.w)
			m.items(p.Notes)
		}
	}
	if len(d.Laboratory) > 0 {
		m.heading("The laboratory")
		m.items(d.Laboratory)
	}
	if len(d.Reading) > 0 {
		m.heading("How to read this")
		for _, p := range d.Reading {
			fmt.Fprintf(m.w, "- **%s.** %s\n", escapeMarkdown(p.Head), escapeMarkdown(p.Text))
		}
	}
}

// markdownWriter writes Markdown; the buffer keeps the first error.
type markdownWriter struct {
	w     *bufio.Writer
	words *translator
}

// heading writes the head of a part, with the room for a list below it.
func (m *markdownWriter) heading(title string) { fmt.Fprintf(m.w, "\n## %s\n\n", m.words.text(title)) }

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
