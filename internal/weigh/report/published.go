// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// published is a document's table of figures that were measured elsewhere.
type published struct {
	model.Sheet
	Source, Machine string
	Notes           []string
}

// publishedSheet returns a document's table as printed there.
func publishedSheet(p *results.Published, sections []*model.Section) *published {
	if p == nil || len(p.Rows) == 0 {
		return nil
	}
	out := &published{Source: wording.Clean(p.Source), Machine: wording.Clean(p.Machine),
		Notes: wording.CleanAll(p.Notes)}
	out.Sheet.Title = "Published figures"
	out.Lead = "Measured elsewhere, by others, on other machines. Compare shapes, not numbers."
	width := len(p.Columns)
	for _, r := range p.Rows {
		width = max(width, len(r))
	}
	for i := range width {
		c := model.Column{Numeric: numericColumn(p.Rows, i)}
		if i < len(p.Columns) {
			c.Title = wording.Clean(p.Columns[i])
		}
		out.Columns = append(out.Columns, c)
	}
	var lines []model.Line
	for i, r := range p.Rows {
		cells := make([]string, width)
		for j, c := range r {
			cells[j] = wording.Clean(c)
		}
		if i > 0 && len(r) > 0 && len(p.Rows[i-1]) > 0 && r[0] != p.Rows[i-1][0] {
			out.Groups = append(out.Groups, lines)
			lines = nil
		}
		for _, b := range p.Beside {
			cells = append(cells, besideCell(p, b, r, sections))
		}
		lines = append(lines, model.Line{Cells: cells})
	}
	out.Groups = append(out.Groups, lines)
	out.beside(p, width)
	return out
}

// beside adds the columns of the run's own figures, and a note where the run has none of the document's points.
func (p *published) beside(of *results.Published, width int) {
	for _, b := range of.Beside {
		p.Columns = append(p.Columns, model.Column{Title: "Here: " + wording.Clean(b.Figure)})
	}
	for i := len(p.Columns) - 1; i >= width; i-- {
		if p.Blank(i) {
			p.Remove(i)
		}
	}
	switch {
	case len(p.Columns) > width:
		p.Lead = "Measured elsewhere, by others, on other machines; beside it what this run measured at the same point, on this machine. Compare shapes, not numbers."
	case len(of.Beside) > 0:
		p.Notes = append(p.Notes,
			"This run measured none of the document's points, so nothing of ours stands beside them.")
	}
}

// besideCell returns the run's figures at a row's point: those of each subject's best variant.
func besideCell(p *results.Published, b results.Beside, row []string, sections []*model.Section) string {
	cell := func(title string) string { return row[slices.Index(p.Columns, title)] }
	var parts []string
	for _, subject := range b.Subjects[cell(b.Column)] {
		var best *model.Point
		for _, s := range sections {
			for _, q := range s.Points() {
				if s.Load != b.Load || q.Subject != subject || !q.Has(b.Metric) || !at(q, b.Params, cell) {
					continue
				}
				if best == nil || q.Stats[b.Metric].Median > best.Stats[b.Metric].Median {
					best = q
				}
			}
		}
		if best != nil {
			parts = append(parts, wording.Clean(best.Label)+": "+wording.Significant(best.Stats[b.Metric].Median))
		}
	}
	return cmp.Or(strings.Join(parts, "; "), wording.Missing)
}

// at reports whether the point's parameters have the values of a document's row. Parameters that the point lacks do not
// count.
func at(p *model.Point, params map[string]string, cell func(string) string) bool {
	for title, name := range params {
		v, ok := p.Params[name]
		if ok && v.Numeric && !sameNumber(cell(title), v.Number) || ok && !v.Numeric && cell(title) != v.Word {
			return false
		}
	}
	return true
}

// sameNumber reports whether a document's cell is the number, its thousands separated or not.
func sameNumber(cell string, number float64) bool {
	v, err := strconv.ParseFloat(strings.ReplaceAll(cell, ",", ""), 64)
	return err == nil && v == number
}

// numericColumn reports whether every cell of a column begins with a digit.
func numericColumn(rows [][]string, i int) bool {
	for _, r := range rows {
		if i < len(r) && (r[i] == "" || r[i][0] < '0' || r[i][0] > '9') {
			return false
		}
	}
	return true
}
