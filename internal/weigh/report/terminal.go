// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// textWidth is the column at which running text wraps in a terminal.
const textWidth = 100

func writeTerminal(w io.Writer, words *translator, run *results.Run) error {
	d := newDocument(run)
	t := &textWriter{w: bufio.NewWriter(w), words: words}
	t.words.document(d)
	t.heading(d.Title, '=')
	t.overview(&d.Overview)
	for _, s := range d.Warnings {
		t.paragraph("! ", s)
	}
	t.paragraph("", d.Asked)
	if len(d.Environment) > 0 {
		t.heading(t.words.text("Environment"), '-')
		for _, f := range d.Environment {
			t.hanging(text.Pad(f.Name, 10, ' '), f.Value)
		}
	}
	for i := range d.Loads {
		t.load(&d.Loads[i])
	}
	t.appendix(d)
	return t.w.Flush()
}

// overview writes the question, the answer and the compact table.
func (t *textWriter) overview(o *overview) {
	t.paragraph("", o.Question)
	t.paragraph("= ", strings.Join(o.Answer, " "))
	t.paragraph("  ", o.Sure)
	if o.Table != nil {
		t.sheet(&model.Sheet{Title: o.Load, Lead: o.Table.Lead, Notes: o.Table.Notes, Columns: o.Table.Columns,
			Groups: o.Table.Groups})
	}
	fmt.Fprintln(t.w)
}

// load writes the primary tables of a load, and names the secondary ones.
func (t *textWriter) load(l *loadPart) {
	t.heading(l.Title, '-')
	t.paragraph("", l.Constant)
	t.paragraph("= ", strings.Join(l.Answer, " "))
	for _, s := range l.Verdict {
		t.paragraph("* ", s)
	}
	var secondary []string
	for i := range l.Sheets {
		if sh := &l.Sheets[i]; sh.Secondary {
			secondary = append(secondary, "“"+sh.Title+"”")
		} else {
			t.sheet(sh)
		}
	}
	if len(secondary) > 0 {
		fmt.Fprintln(t.w)
		t.paragraph("", strings.ReplaceAll(t.words.text("The Markdown and HTML forms also have the tables {}."), "{}",
			t.words.list(secondary)))
	}
}

// appendix writes the parts behind the loads' tables.
func (t *textWriter) appendix(d *document) {
	t.section(d.Answers)
	t.section(d.Invalid)
	t.section(d.Remarks)
	if d.Evidence != nil {
		fmt.Fprintln(t.w)
		t.paragraph("",
			t.words.text("The Markdown and HTML forms also say how the saturated part was told, trial by trial."))
	}
	if p := d.Published; p != nil {
		t.section(&p.Sheet)
		t.paragraph("", t.words.text("Source")+": "+p.Source)
		t.paragraph("", t.words.text("Machine")+": "+p.Machine)
		for _, n := range p.Notes {
			t.paragraph("* ", n)
		}
	}
	if len(d.Laboratory) > 0 {
		t.heading(t.words.text("The laboratory"), '-')
		for _, n := range d.Laboratory {
			t.paragraph("* ", n)
		}
	}
	if len(d.Reading) > 0 {
		t.heading(t.words.text("How to read this"), '-')
		for _, p := range d.Reading {
			t.paragraph("* ", p.Head+". "+p.Text)
		}
	}
}

// textWriter writes plain text; the buffer keeps the first error.
type textWriter struct {
	w     *bufio.Writer
	words *translator
}

func (t *textWriter) heading(s string, rule rune) {
	fmt.Fprintf(t.w, "\n%s\n%s\n", s, strings.Repeat(string(rule), text.StringWidth(s)))
}

// paragraph writes wrapped text after a mark, its other lines indented alike.
func (t *textWriter) paragraph(mark, s string) {
	if s != "" {
		t.hanging(mark, s)
	}
}

func (t *textWriter) hanging(mark, s string) {
	indent := text.StringWidth(mark)
	body := text.WrapSoft(s, textWidth-indent)
	for i, l := range strings.Split(body, "\n") {
		if i > 0 {
			mark = strings.Repeat(" ", indent)
		}
		fmt.Fprintf(t.w, "%s%s\n", mark, strings.TrimRight(l, " "))
	}
}

func (t *textWriter) section(sh *model.Sheet) {
	if sh != nil {
		t.sheet(sh)
	}
}

func (t *textWriter) sheet(sh *model.Sheet) {
	fmt.Fprintf(t.w, "\n%s\n", sh.Title)
	t.paragraph("", sh.Lead)
	tw := newTable(sh, stackedHead, func(s string) string { return s })
	tw.SetStyle(terminalStyle())
	fmt.Fprintln(t.w, tw.Render())
	for _, n := range sh.Notes {
		t.paragraph("  ", n)
	}
}

// terminalStyle has rules between groups and no vertical lines.
func terminalStyle() table.Style {
	s := table.StyleLight
	s.Name = "jeoul"
	s.Options.DrawBorder = false
	s.Options.SeparateColumns = false
	s.Box.PaddingLeft, s.Box.PaddingRight = "", "  "
	s.Format.Header = text.FormatDefault
	s.Format.HeaderVAlign = text.VAlignBottom
	return s
}

// newTable turns a sheet into a table; title writes a column's head, and escape
// makes a text safe for its form.
func newTable(sh *model.Sheet, title func(model.Column) string, escape func(string) string) table.Writer {
	tw := table.NewWriter()
	var head table.Row
	var configs []table.ColumnConfig
	for i, c := range sh.Columns {
		head = append(head, escape(title(c)))
		cfg := table.ColumnConfig{Number: i + 1}
		if c.Numeric {
			cfg.Align, cfg.AlignHeader = text.AlignRight, text.AlignRight
		} else {
			cfg.Align, cfg.AlignHeader = text.AlignLeft, text.AlignLeft
			cfg.WidthMax, cfg.WidthMaxEnforcer = 60, text.WrapSoft
		}
		configs = append(configs, cfg)
	}
	tw.AppendHeader(head)
	tw.SetColumnConfigs(configs)
	for i, g := range sh.Groups {
		if i > 0 {
			tw.AppendSeparator()
		}
		for _, l := range g {
			var row table.Row
			for _, c := range l.Cells {
				row = append(row, escape(c))
			}
			tw.AppendRow(row)
		}
	}
	return tw
}

// headOf returns the column's title with its unit.
func headOf(c model.Column) string {
	title := strings.ReplaceAll(c.Title, wording.SoftHyphen, "")
	if c.Unit == "" {
		return title
	}
	return title + ", " + c.Unit
}

// stackedHead returns the column's title in several short lines, the unit last.
func stackedHead(c model.Column) string {
	breaks := strings.NewReplacer(wording.SoftHyphen, "-\n", " ", "\n", "-", "-\n")
	title := strings.Replace(breaks.Replace(c.Title), "×\n", "× ", 1)
	if c.Unit != "" {
		title += "\n" + c.Unit
	}
	return title
}
