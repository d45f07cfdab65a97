// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// series is a line of a chart of the kind lines.
type series struct {
	Name string
	Ink  ink
	// Dash tells lines of one ink apart: which of the patterns, 0 is a whole line.
	Dash   int
	Points plotter.XYs
	// Quiet lines are there to compare with: thin, and without dots.
	Quiet bool
}

// Sizes of a chart of lines, in pixels.
const (
	linesHeight  = 300
	legendEach   = 18
	legendSample = 24
	upright      = 48 // room for the numbers of the vertical axis
)

// dashes are the patterns of lines that share an ink.
var dashes = [][]vg.Length{nil, {6, 3}, {2, 3}, {9, 3, 2, 3}}

// withDashes gives series that share an ink a pattern each.
func withDashes(all []series) []series {
	used := map[ink]int{}
	for i := range all {
		all[i].Dash = used[all[i].Ink] % len(dashes)
		used[all[i].Ink]++
	}
	return all
}

func (s series) style() draw.LineStyle {
	width := vg.Length(1.8)
	if s.Quiet {
		width = 1
	}
	return draw.LineStyle{Color: s.Ink.color(), Width: width, Dashes: dashes[s.Dash%len(dashes)]}
}

// legendPlace is where an entry of the legend stands, from the upper left.
type legendPlace struct{ x, y vg.Length }

// legendPlaces puts the entries one after the other, in as many rows as they need.
func (c *chart) legendPlaces(width float64) (places []legendPlace, height vg.Length) {
	s := style(fontSize, inkQuiet, false, atStart)
	at := legendPlace{}
	for _, l := range c.Lines {
		need := legendSample + 6 + s.Width(l.Name)*labelSlack + 14
		if at.x > 0 && at.x+need > vg.Length(width) {
			at = legendPlace{0, at.y + legendEach}
		}
		places = append(places, at)
		at.x += need
	}
	return places, at.y + legendEach + 8
}

// linesTall is the height of a chart of lines below its title.
func (c *chart) linesTall(width float64) float64 {
	_, legend := c.legendPlaces(width)
	return float64(legend) + linesHeight
}

// drawLines draws a chart of lines into dc.
func (c *chart) drawLines(dc draw.Canvas) {
	places, legend := c.legendPlaces(float64(dc.Size().X))
	label := style(fontSize, inkQuiet, false, atStart)
	for i, l := range c.Lines {
		x, y := dc.Min.X+places[i].x, dc.Max.Y-places[i].y-legendEach/2
		dc.StrokeLine2(l.style(), x, y, x+legendSample, y)
		fill(dc, label, x+legendSample+6, y, l.Name)
	}
	dc.Max.Y -= legend
	// The vertical axis is named above it, where a reader need not turn the head.
	fill(dc, style(tickSize, inkQuiet, false, atStart), dc.Min.X, dc.Max.Y-legendEach/2, c.YAxis)
	dc.Max.Y -= legendEach
	// A reader's font may be wider than the one that the numbers are measured with.
	dc.Min.X += gap
	p := c.linesPlot(float64(dc.Size().X))
	p.Draw(dc)
}

// linesPlot builds the gonum plot.
func (c *chart) linesPlot(width float64) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.TextHandler = text.Plain{Fonts: font.DefaultCache}
	low, high := c.linesBounds()
	for _, a := range []struct {
		axis  *plot.Axis
		low   float64
		high  float64
		room  vg.Length
		along anchor
	}{{&p.X, low.X, high.X, vg.Length(width) - upright, atMiddle}, {&p.Y, low.Y, high.Y, 0, atEnd}} {
		a.axis.Padding, a.axis.Width, a.axis.Tick.Length, a.axis.Tick.Width = 0, 0, 4, 0
		a.axis.Tick.Label = style(tickSize, inkQuiet, false, a.along)
		a.axis.Tick.Marker = ticks{room: a.room}
	}
	p.X.Label.Text = c.Axis
	p.X.Label.TextStyle = style(tickSize, inkQuiet, false, atMiddle)
	p.X.Label.Padding = 4
	p.X.Tick.Label.YAlign = draw.YTop
	p.X.Label.TextStyle.YAlign = draw.YBottom
	grid := plotter.NewGrid()
	grid.Vertical = draw.LineStyle{Color: inkGrid.color(), Width: 1}
	grid.Horizontal = grid.Vertical
	p.Add(grid)
	for _, l := range c.Lines {
		p.Add(&plotter.Line{XYs: l.Points, LineStyle: l.style()})
		if !l.Quiet {
			p.Add(&plotter.Scatter{XYs: l.Points, GlyphStyle: draw.GlyphStyle{Color: l.Ink.color(), Radius: 2.6, Shape: draw.CircleGlyph{}}})
		}
	}
	// Adding lines widens the axes.
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = low.X, high.X, low.Y, high.Y
	return p
}

// linesBounds are the ranges of both axes; they begin at nought, so that what is twice as
// much is twice as high.
func (c *chart) linesBounds() (low, high plotter.XY) {
	for _, l := range c.Lines {
		for _, at := range l.Points {
			if !math.IsNaN(at.X) && !math.IsNaN(at.Y) {
				high.X, high.Y = max(high.X, at.X), max(high.Y, at.Y)
			}
		}
	}
	if high.X <= 0 {
		high.X = 1
	}
	if high.Y <= 0 {
		high.Y = 1
	}
	// Room for a dot at the edge.
	high.X *= 1.02
	high.Y *= 1.04
	return low, high
}
