// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"slices"
)

// sheet is a table, before it takes a form.
type sheet struct {
	Title string
	// Lead says what the table shows; Notes explain single columns.
	Lead    string
	Notes   []string
	Columns []column
	// Groups are sets of rows that belong together.
	Groups [][]line
	// Aside marks a table that a reader may skip at first.
	Aside bool
}

// column is the head of one column. A soft hyphen is where a narrow head may break.
type column struct {
	Title   string
	Unit    string
	Numeric bool
}

// line is one row; its first cell is its head.
type line struct {
	Cells []string
	// Baseline marks the rows that the others are held against, Quiet those that cannot be told apart from them.
	Baseline, Quiet bool
}

func (sh *sheet) empty() bool {
	for _, g := range sh.Groups {
		if len(g) > 0 {
			return false
		}
	}
	return true
}

// field is a column and how to fill it from a point.
type field struct {
	column
	// cell formats the point's figure, given its group and the decimals of the
	// column.
	cell func(g *group, p *point, decimals int) string
	// figure is the number that decides the column's decimals; nil for text.
	figure func(p *point) (float64, bool)
}

// fill makes the rows of a section's groups from fields. Columns in which no
// row has anything to show are left out.
func (sh *sheet) fill(s *section, fields []field) {
	decimals := make([]int, len(fields))
	for i, f := range fields {
		if f.figure == nil {
			continue
		}
		var values []float64
		for _, p := range s.points() {
			if v, ok := f.figure(p); ok {
				values = append(values, v)
			}
		}
		decimals[i] = wording.DecimalsFor(values)
	}
	for _, f := range fields {
		sh.Columns = append(sh.Columns, f.column)
	}
	for _, g := range s.Groups {
		var lines []line
		for _, p := range withBaseline(s, g) {
			l := line{Baseline: p.Subject == s.Baseline || p.Subject == emptySubject}
			for i, f := range fields {
				l.Cells = append(l.Cells, f.cell(g, p, decimals[i]))
			}
			lines = append(lines, l)
		}
		if len(lines) > 0 {
			sh.Groups = append(sh.Groups, lines)
		}
	}
	sh.dropBlankColumns()
}

// withBaseline returns the group's points, with an empty one for the baseline
// if that was not measured: a reader must see that it is missing.
func withBaseline(s *section, g *group) []*point {
	if s.kind() != nil {
		return g.Points
	}
	baseline := s.Baseline
	if s.isPackets() {
		baseline = emptySubject
	}
	if len(g.Points) == 0 || slices.ContainsFunc(g.Points, func(p *point) bool { return p.Subject == baseline }) {
		return g.Points
	}
	return append([]*point{{Subject: baseline, Params: g.Params}}, g.Points...)
}

// dropBlankColumns removes the columns without a single figure.
func (sh *sheet) dropBlankColumns() {
	for i := len(sh.Columns) - 1; i > 0; i-- {
		if sh.blank(i) {
			sh.remove(i)
		}
	}
}

func (sh *sheet) blank(column int) bool {
	for _, g := range sh.Groups {
		for _, l := range g {
			if c := l.Cells[column]; c != wording.Missing && c != "" {
				return false
			}
		}
	}
	return true
}

func (sh *sheet) remove(column int) {
	sh.Columns = append(sh.Columns[:column:column], sh.Columns[column+1:]...)
	for _, g := range sh.Groups {
		for i := range g {
			g[i].Cells = append(g[i].Cells[:column:column], g[i].Cells[column+1:]...)
		}
	}
}

// group adds lines as a group, if there are any.
func (sh *sheet) group(lines []line) {
	if len(lines) > 0 {
		sh.Groups = append(sh.Groups, lines)
	}
}

// orNil returns nil for a sheet without lines.
func (sh *sheet) orNil() *sheet {
	if sh.empty() {
		return nil
	}
	return sh
}
