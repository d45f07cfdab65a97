// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
)

// Field is a column and the functions that fill it from a point.
type Field struct {
	Column
	// Cell formats the point's figure, given its group and the decimals of the column.
	Cell func(g *Group, p *Point, decimals int) string
	// figure is the number that decides the column's decimals; nil for text.
	figure func(p *Point) (float64, bool)
}

// Fill makes the rows of a section's groups from fields. Columns in which no
// row has anything to show are left out.
func (sh *Sheet) Fill(s *Section, fields []Field) {
	decimals := make([]int, len(fields))
	for i, f := range fields {
		if f.figure == nil {
			continue
		}
		var values []float64
		for _, p := range s.Points() {
			if v, ok := f.figure(p); ok {
				values = append(values, v)
			}
		}
		decimals[i] = wording.DecimalsFor(values)
	}
	for _, f := range fields {
		sh.Columns = append(sh.Columns, f.Column)
	}
	for _, g := range s.Groups {
		var lines []Line
		for _, p := range withBaseline(s, g) {
			l := Line{Baseline: p.Subject == s.Baseline || p.Subject == EmptySubject}
			for i, f := range fields {
				l.Cells = append(l.Cells, f.Cell(g, p, decimals[i]))
			}
			lines = append(lines, l)
		}
		if len(lines) > 0 {
			sh.Groups = append(sh.Groups, lines)
		}
	}
	sh.DropBlankColumns()
}

// Of returns the table with a row for each point of a section.
func (sh Sheet) Of(s *Section, fields ...[]Field) Sheet {
	sh.Fill(s, slices.Concat(fields...))
	return sh
}

// withBaseline returns the group's points, with an empty point for the expected subject, mostly the baseline, if that
// was not measured: a reader must see that it is missing.
func withBaseline(s *Section, g *Group) []*Point {
	expected := s.Kind.Expected
	if expected == "" || len(g.Points) == 0 ||
		slices.ContainsFunc(g.Points, func(p *Point) bool { return p.Subject == expected }) {
		return g.Points
	}
	return append([]*Point{{Subject: expected, Params: g.Params}}, g.Points...)
}
