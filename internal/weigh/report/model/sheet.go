// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
)

// Sheet is a table, before it takes a form.
type Sheet struct {
	Title string
	// Lead explains the table; Notes explain single columns.
	Lead    string
	Notes   []string
	Columns []Column
	// Groups are sets of rows that belong together.
	Groups [][]Line
	// Secondary marks a table that a reader may skip at first.
	Secondary bool
}

// Column is the head of one column. A narrow head may break at a soft hyphen.
type Column struct {
	Title   string
	Unit    string
	Numeric bool
}

// Line is one row; its first cell is its head.
type Line struct {
	Cells []string
	// Baseline marks the rows that the others are compared with, Quiet the rows that cannot be told apart from them.
	Baseline, Quiet bool
}

// Empty reports whether the table has no row.
func (sh *Sheet) Empty() bool {
	for _, g := range sh.Groups {
		if len(g) > 0 {
			return false
		}
	}
	return true
}

// DropBlankColumns removes the columns without a single figure.
func (sh *Sheet) DropBlankColumns() {
	for i := len(sh.Columns) - 1; i > 0; i-- {
		if sh.Blank(i) {
			sh.Remove(i)
		}
	}
}

// Blank reports whether a column has no figure.
func (sh *Sheet) Blank(column int) bool {
	for _, g := range sh.Groups {
		for _, l := range g {
			if c := l.Cells[column]; c != wording.Missing && c != "" {
				return false
			}
		}
	}
	return true
}

// Remove takes a column out.
func (sh *Sheet) Remove(column int) {
	sh.Columns = append(sh.Columns[:column:column], sh.Columns[column+1:]...)
	for _, g := range sh.Groups {
		for i := range g {
			g[i].Cells = append(g[i].Cells[:column:column], g[i].Cells[column+1:]...)
		}
	}
}

// Group adds lines as a group, if there are any.
func (sh *Sheet) Group(lines []Line) {
	if len(lines) > 0 {
		sh.Groups = append(sh.Groups, lines)
	}
}

// List returns a list of the table, empty if the table has no row.
func (sh Sheet) List() []Sheet {
	if sh.Empty() {
		return nil
	}
	return []Sheet{sh}
}

// OrNil returns nil for a sheet without lines.
func (sh *Sheet) OrNil() *Sheet {
	if sh.Empty() {
		return nil
	}
	return sh
}

// WithoutBaseline drops rows that say only that the baseline was not measured.
func WithoutBaseline(all []Sheet) []Sheet {
	for _, sh := range all {
		for i := range sh.Groups {
			sh.Groups[i] = slices.DeleteFunc(sh.Groups[i], func(l Line) bool {
				return strings.HasSuffix(l.Cells[0], "(not measured)")
			})
		}
	}
	return all
}

// Clipped returns the table's first rows and columns, and a note on the rest.
func (sh *Sheet) Clipped(rows, columns int) *Sheet {
	short := &Sheet{Lead: sh.Lead, Columns: sh.Columns[:min(columns, len(sh.Columns))]}
	left, all := rows, 0
	for _, g := range sh.Groups {
		all += len(g)
		var lines []Line
		for _, l := range g[:min(left, len(g))] {
			lines = append(lines,
				Line{Baseline: l.Baseline, Quiet: l.Quiet, Cells: slices.Clone(l.Cells[:len(short.Columns)])})
		}
		left -= len(lines)
		short.Group(lines)
	}
	if all > rows {
		short.Notes = []string{fmt.Sprintf("%d more rows are below.", all-rows)}
	}
	return short.OrNil()
}

// OverviewRows is the greatest number of rows of the first screen's table.
const OverviewRows = 12
