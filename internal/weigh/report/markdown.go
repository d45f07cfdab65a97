// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

func writeMarkdown(w io.Writer, words *translator, run *results.Run) error {
	d := newDocument(run)
	m := &markdownWriter{w: bufio.NewWriter(w), words: words}
	m.words.document(d)
	fmt.Fprintf(m.w, "# %s\n", escapeMarkdown(d.Title))
	m.overview(&d.Overview)
	for _, s := range d.Warnings {
		fmt.Fprintf(m.w, "\n> %s\n", escapeMarkdown(s))
	}
	m.paragraph(d.Asked)
	if len(d.Environment) > 0 {
		m.heading("Environment")
		for _, f := range d.Environment {
			fmt.Fprintf(m.w, "- %s: %s\n", f.Name, escapeMarkdown(f.Value))
		}
	}
	for _, l := range d.Loads {
		fmt.Fprintf(m.w, "\n## %s\n", escapeMarkdown(l.Title))
		m.paragraph(l.Constant)
		m.paragraph(strings.Join(l.Answer, " "))
		if len(l.Verdict) > 0 {
			fmt.Fprintln(m.w)
			m.items(l.Verdict)
		}
		for i := range l.Sheets {
			m.sheet("###", &l.Sheets[i])
		}
	}
	m.appendix(d)
	return m.w.Flush()
}

// overview writes the question, the answer and the compact table.
func (m *markdownWriter) overview(o *overview) {
	m.paragraph(o.Question)
	if answer := strings.Join(o.Answer, " "); answer != "" {
		fmt.Fprintf(m.w, "\n**%s**\n", escapeMarkdown(answer))
	}
	m.paragraph(o.Sure)
	if sh := o.Table; sh != nil {
		m.paragraph(o.Load)
		m.table(sh)
		m.paragraph(sh.Lead)
	}
}

// appendix writes the parts behind the loads' tables.
func (m *markdownWriter) appendix(d *document) {
	if d.Answers != nil {
		m.sheet("##", d.Answers)
	}
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
		m.sheet("##", &p.Sheet)
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

func (m *markdownWriter) sheet(level string, sh *model.Sheet) {
	fmt.Fprintf(m.w, "\n%s %s\n", level, escapeMarkdown(sh.Title))
	m.paragraph(sh.Lead)
	m.table(sh)
}

func (m *markdownWriter) table(sh *model.Sheet) {
	fmt.Fprintf(m.w, "\n%s\n", newTable(sh, headOf, escapeMarkdown).RenderMarkdown())
	if len(sh.Notes) > 0 {
		fmt.Fprintln(m.w)
		m.items(sh.Notes)
	}
}

// markdownEscapes covers characters that start an element within a line of Markdown, HTML included. The table renderer
// escapes the pipe. The underscore marks emphasis only at a word's edge, and too many names have one to escape it
// everywhere.
var markdownEscapes = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "[", `\[`, "]", `\]`, "<", "&lt;", ">", "&gt;", "&", "&amp;",
	" _", ` \_`, "_ ", `\_ `,
)

func escapeMarkdown(s string) string { return markdownEscapes.Replace(s) }
