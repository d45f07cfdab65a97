// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"math"
)

// Chart is a horizontal chart with one row for each point: bars, stacked bars or dots on a common axis. Lengths are in
// pixels.
type Chart struct {
	Title string
	// Axis names the axis and its unit.
	Axis string
	Kind kind
	Log  bool
	// Legend explains the marks where the row's label does not.
	Legend []LegendEntry
	Rows   []Row
	// Lines replace the rows in a chart of the kind Lines, and YAxis names its vertical axis.
	Lines []Series
	YAxis string
	// Places and Limits are the content of a scatter plot.
	Places []Place
	Limits []Limit
	// Reference is the value that a line marks for comparison, if HasReference.
	Reference    float64
	HasReference bool
	// Unlabelled omits the rows' labels, which the chart beside it has.
	Unlabelled bool
	// Percent marks the axis' numbers with a per cent sign.
	Percent bool
}

// kind is how a chart shows its values.
type kind int

// The kinds of charts.
const (
	Bars kind = iota
	StackedBars
	Dots
	Lines
	Scatter
)

// LegendEntry explains an ink, or a hollow mark.
type LegendEntry struct {
	Name   string
	Ink    Ink
	Hollow bool
}

// Row is one row of a chart, or the head of the rows below it.
type Row struct {
	Label string
	Head  bool
	Marks []Mark
	// Value is written behind the marks.
	Value string
}

// Mark is one value of a row, with its range over the repeats.
type Mark struct {
	Value, Low, High float64
	Ink              Ink
	// Hollow marks the second of a pair of dots.
	Hollow bool
}

// values returns the mark's value and, if it has a range, the ends of that.
func (m Mark) values() []float64 {
	if m.High > m.Low {
		return []float64{m.Low, m.Value, m.High}
	}
	return []float64{m.Value}
}

// usable reports whether a value can be drawn on the chart's axis.
func (c *Chart) usable(v float64) bool {
	return !math.IsNaN(v) && math.Abs(v) < 1e300 && (!c.Log || v > 0)
}

// Empty reports whether no row has anything to draw.
func (c *Chart) Empty() bool {
	switch c.Kind {
	case Lines:
		return len(c.Lines) == 0
	case Scatter:
		return len(c.Places) == 0
	}
	for _, r := range c.Rows {
		if len(r.Marks) > 0 {
			return false
		}
	}
	return true
}

// Widths at which a page's charts are drawn, in pixels.
const (
	WideWidth   = 544
	NarrowWidth = 400
)

// LogIfWide gives a chart a logarithmic axis if its values differ too much for a linear one, and a logarithmic one can
// show them all. It reports whether it did.
func (c *Chart) LogIfWide() bool {
	least, most := math.Inf(1), 0.0
	for _, r := range c.Rows {
		for _, m := range r.Marks {
			least, most = min(least, m.Value), max(most, m.Value)
		}
	}
	if c.Log = least > 0 && most/least > LogFrom; c.Log {
		c.Axis += " (logarithmic)"
	}
	return c.Log
}

// LogFrom is the ratio of largest to smallest from which an axis is logarithmic.
const LogFrom = 12

// Series is a line of a chart of the kind lines.
type Series struct {
	Name string
	Ink  Ink
	// Dash selects the pattern that tells lines of one ink apart; 0 is a solid line.
	Dash   int
	Points []XY
	// Quiet lines are only for comparison: thin, and without dots.
	Quiet bool
}

// Place is one subject on a chart of the kind scatter, with its spread along both axes.
type Place struct {
	Name   string
	Ink    Ink
	X, Y   Mark
	Hollow bool
}

// Limit is a value of the vertical axis that nothing should exceed.
type Limit struct {
	Name  string
	Value float64
}

// XY is a pair of values, one of each axis.
type XY struct{ X, Y float64 }
