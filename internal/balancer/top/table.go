// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"slices"
	"strings"
)

// tone says how a cell is meant; its colour follows from it, and words say the same.
type tone uint8

const (
	plain tone = iota
	good
	warn
	bad
)

// column is a column of a table.
type column struct {
	title string
	right bool
	// width is the column's least width; trend columns have exactly that.
	width int
	// rank says which columns a narrow screen does without: the highest first. 0: it is always there.
	rank int
	// text returns the text in row i. trend, in its place, returns the values of a sparkline.
	text  func(i int) string
	trend func(i int) []float64
	// value returns the number that the column is sorted by; nil: its text is.
	value func(i int) float64
	tone  func(i int) tone
}

// table is the table of a view. Rows are numbers from 0 up to rows; their text is made when it is shown.
type table struct {
	columns []column
	rows    int
	// id identifies row i, in every reading.
	id func(i int) string
	// words returns the words that a filter is compared with.
	words func(i int) string
	// empty is said where there is no row.
	empty string
}

// sorting is the order of rows.
type sorting struct {
	// column is the title of the one that decides; empty: the table's own order.
	column string
	// up has the smallest first. Figures have their largest first otherwise, and texts their last.
	up bool
}

// next returns the order by the column that follows, or by the one before.
func (s sorting) next(t *table, step int) sorting {
	titles := []string{""}
	for _, c := range t.columns {
		if c.trend == nil {
			titles = append(titles, c.title)
		}
	}
	at := max(slices.Index(titles, s.column), 0)
	title := titles[(at+step+len(titles))%len(titles)]
	return t.sorted(title)
}

// sorted is the order by a column that is natural for it: the largest figures first, texts from A.
func (t *table) sorted(title string) sorting {
	i := slices.IndexFunc(t.columns, func(c column) bool { return c.title == title })
	return sorting{title, i >= 0 && t.columns[i].value == nil}
}

// selectAndSort returns the rows that a filter selects, in order. Rows that are equal stay in the table's own order.
func (t *table) selectAndSort(by sorting, filter string) []int {
	wanted := strings.Fields(strings.ToLower(filter))
	order := make([]int, 0, t.rows)
	for i := range t.rows {
		if len(wanted) == 0 || containsAll(strings.ToLower(t.words(i)), wanted) {
			order = append(order, i)
		}
	}
	at := slices.IndexFunc(t.columns, func(c column) bool { return c.title == by.column })
	if at < 0 {
		return order
	}
	c := t.columns[at]
	compare := func(i, j int) int { return cmp.Compare(c.text(i), c.text(j)) }
	if c.value != nil {
		compare = func(i, j int) int { return cmp.Compare(c.value(i), c.value(j)) }
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if by.up {
			return compare(i, j)
		}
		return compare(j, i)
	})
	return order
}

func containsAll(text string, wanted []string) bool {
	for _, word := range wanted {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// gap is between columns.
const gap = 2

// layout is the columns that are shown, with their widths.
type layout struct {
	columns []column
	widths  []int
}

// resolve fits the columns into a width, by the rows that are shown. A text in the last column takes the rest.
func (t *table) resolve(g glyphs, shown []int, width int) layout {
	l := layout{columns: slices.Clone(t.columns)}
	for _, c := range l.columns {
		l.widths = append(l.widths, widthOf(g, c, shown, maxColumn))
	}
	if last := len(l.columns) - 1; l.columns[last].trend == nil {
		l.widths[last] = min(l.widths[last], minLast)
	}
	for l.total() > width {
		drop := 0
		for i, c := range l.columns {
			if c.rank > l.columns[drop].rank {
				drop = i
			}
		}
		if l.columns[drop].rank == 0 {
			break
		}
		l.columns, l.widths = slices.Delete(l.columns, drop, drop+1), slices.Delete(l.widths, drop, drop+1)
	}
	l.squeeze(width)
	if last := len(l.columns) - 1; l.columns[last].trend == nil {
		room := l.widths[last] + max(width-l.total(), 0)
		l.widths[last] = widthOf(g, l.columns[last], shown, room)
	}
	return l
}

func (l layout) total() int {
	total := -gap
	for _, w := range l.widths {
		total += w + gap
	}
	return total
}

// squeeze takes the surplus width off the widest columns.
func (l layout) squeeze(width int) {
	for over := l.total() - width; over > 0; over-- {
		widest := slices.Index(l.widths, slices.Max(l.widths))
		if l.widths[widest] <= 1 {
			return
		}
		l.widths[widest]--
	}
}

// maxColumn bounds the columns of text that are not the last, and minLast is the least width of the last one, where its
// text is that long.
const (
	maxColumn = 40
	minLast   = 24
)

// widthOf is how wide a column must be for rows, up to a bound.
func widthOf(g glyphs, c column, shown []int, bound int) int {
	width := max(c.width, len(c.title)+1)
	if c.trend != nil {
		return width
	}
	for _, i := range shown {
		width = max(width, min(g.width(c.text(i)), bound))
	}
	return width
}
