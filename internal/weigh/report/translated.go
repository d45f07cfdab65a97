// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
)

// quoted are the facts that stay as they are: commands, identifiers of a build, and makers' names of processors.
var quoted = []string{"Command", "Source", "CPU", "Its host"}

// document translates every text of a report except quotations: the command, and the name and machine of a document.
func (t *translator) document(d *document) {
	d.Title, d.Asked = t.text(d.Title), t.text(d.Asked)
	d.Warnings, d.Laboratory = t.all(d.Warnings), t.all(d.Laboratory)
	t.overview(&d.Overview)
	for i, f := range d.Environment {
		if !slices.Contains(quoted, f.Name) {
			f.Value = t.text(f.Value)
		}
		d.Environment[i] = fact{t.text(f.Name), f.Value}
	}
	for i := range d.Loads {
		l := &d.Loads[i]
		l.Answer, l.Verdict = t.sentences(l.Answer, l.Title), t.sentences(l.Verdict, l.Title)
		l.Title, l.Constant = t.text(l.Title), t.text(l.Constant)
		for j := range l.Sheets {
			t.sheet(&l.Sheets[j])
		}
	}
	for _, sh := range []*model.Sheet{d.Answers, d.Invalid, d.Remarks, d.Evidence} {
		if sh != nil {
			t.sheet(sh)
		}
	}
	if p := d.Published; p != nil {
		t.sheet(&p.Sheet)
		p.Source, p.Machine, p.Notes = t.text(p.Source), t.text(p.Machine), t.all(p.Notes)
	}
	for i, p := range d.Reading {
		d.Reading[i] = model.Paragraph{Head: t.text(p.Head), Text: t.text(p.Text)}
	}
}

func (t *translator) overview(o *overview) {
	o.Question, o.Answer, o.Sure, o.Load = t.text(o.Question), t.sentences(o.Answer, o.Load), t.text(o.Sure),
		t.text(o.Load)
	if o.Question != "" {
		o.Question = capitalized(o.Question) + "?"
	}
	if o.Table != nil {
		t.sheet(o.Table)
	}
	if o.Picture != nil {
		o.Picture = &t.figures([]chart.Figure{*o.Picture})[0]
	}
}

// sentences translates sentences that stand under a title, and removes the title from their beginnings.
func (t *translator) sentences(all []string, title string) []string {
	all, title = t.all(all), t.text(title)+t.joint(": ")
	for i, s := range all {
		all[i] = capitalized(strings.TrimPrefix(s, title))
	}
	return all
}

// capitalized makes a sentence begin with a capital, unless it begins with a name.
func capitalized(s string) string {
	first, _, _ := strings.Cut(s, " ")
	if first == "" || strings.ContainsAny(first, "-·_0123456789") || first[0] < 'a' || first[0] > 'z' {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// sheet translates a table. It works on copies: several forms may be written of
// one document.
func (t *translator) sheet(sh *model.Sheet) {
	sh.Title, sh.Lead, sh.Notes = t.text(sh.Title), t.text(sh.Lead), t.all(sh.Notes)
	columns := make([]model.Column, len(sh.Columns))
	for i, c := range sh.Columns {
		c.Title, c.Unit = t.text(strings.ReplaceAll(c.Title, wording.SoftHyphen, "")), t.text(c.Unit)
		columns[i] = c
	}
	if t.exact != nil {
		sh.Columns = columns
	}
	for _, g := range sh.Groups {
		for i := range g {
			g[i].Cells = t.all(g[i].Cells)
		}
	}
}

// figures translates the texts of charts.
func (t *translator) figures(figures []chart.Figure) []chart.Figure {
	for i := range figures {
		f := &figures[i]
		f.Title, f.Caption = t.text(f.Title), t.text(f.Caption)
		if f.Chart != nil {
			t.chart(f.Chart)
		}
	}
	return figures
}

func (t *translator) chart(c *chart.Chart) {
	c.Axis, c.YAxis = t.text(c.Axis), t.text(c.YAxis)
	for i, l := range c.Lines {
		c.Lines[i].Name = t.text(l.Name)
	}
	for i, e := range c.Legend {
		c.Legend[i].Name = t.text(e.Name)
	}
	for i, p := range c.Places {
		c.Places[i].Name = t.text(p.Name)
	}
	for i, l := range c.Limits {
		c.Limits[i].Name = t.text(l.Name)
	}
	for i, r := range c.Rows {
		c.Rows[i].Label, c.Rows[i].Value = t.text(r.Label), t.text(r.Value)
	}
}
