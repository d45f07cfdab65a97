// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"math"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Sizes of a chart of lines, in pixels.
const (
	linesHeight  = 300
	legendEach   = 18
	legendSample = 24
	legendMark   = 15 // room for the mark of an entry without a line
	upright      = 48 // room for the numbers of the vertical axis
)

// dashes are the patterns of lines that share an ink.
var dashes = [][]vg.Length{nil, {6, 3}, {2, 3}, {9, 3, 2, 3}}

// WithDashes gives series that share an ink a pattern each.
func WithDashes(all []Series) []Series {
	used := map[Ink]int{}
	for i := range all {
		all[i].Dash = used[all[i].Ink] % len(dashes)
		used[all[i].Ink]++
	}
	return all
}

func (s Series) style() draw.LineStyle {
	width := vg.Length(1.8)
	if s.Quiet {
		width = 1
	}
	return draw.LineStyle{Color: s.Ink.color(), Width: width, Dashes: dashes[s.Dash%len(dashes)]}
}

// legendPlace is the place of a legend entry, from the upper left.
type legendPlace struct{ x, y vg.Length }

// legendPlaces puts the entries one after the other, in as many rows as they need.
func (c *Chart) legendPlaces(width float64) (places []legendPlace, height vg.Length) {
	s := style(fontSize, InkQuiet, false, atStart)
	var names []string
	for _, l := range c.Lines {
		names = append(names, l.Name)
	}
	sample := vg.Length(legendSample + 6)
	for _, e := range c.Legend {
		names, sample = append(names, e.Name), legendMark
	}
	at := legendPlace{}
	for _, name := range names {
		need := sample + s.Width(name)*labelSlack + 14
		if at.x > 0 && at.x+need > vg.Length(width) {
			at = legendPlace{0, at.y + legendEach}
		}
		places = append(places, at)
		at.x += need
	}
	return places, at.y + legendEach + 8
}

// linesTall returns the height of a chart of lines below its title.
func (c *Chart) linesTall(width float64) float64 {
	_, legend := c.legendPlaces(width)
	return float64(legend) + linesHeight
}

// drawLines draws a chart of lines into dc.
func (c *Chart) drawLines(dc draw.Canvas) {
	places, legend := c.legendPlaces(float64(dc.Size().X))
	label := style(fontSize, InkQuiet, false, atStart)
	for i, l := range c.Lines {
		x, y := dc.Min.X+places[i].x, dc.Max.Y-places[i].y-legendEach/2
		dc.StrokeLine2(l.style(), x, y, x+legendSample, y)
		fill(dc, label, x+legendSample+6, y, l.Name)
	}
	dc.Max.Y -= legend
	// The name of the vertical axis stands above it, where a reader need not turn the head.
	fill(dc, style(tickSize, InkQuiet, false, atStart), dc.Min.X, dc.Max.Y-legendEach/2, c.YAxis)
	dc.Max.Y -= legendEach
	// A reader's font may be wider than the one that the numbers are measured with.
	dc.Min.X += gap
	c.drawSeries(dc)
}

// drawSeries draws the axes, and the lines.
func (c *Chart) drawSeries(dc draw.Canvas) {
	low, high := c.linesBounds()
	number := style(tickSize, InkQuiet, false, atEnd)
	upwards := ticks{}.on(low.Y, high.Y)
	numbers := labelsWidth(number, upwards)
	a := &axes{Canvas: draw.Crop(dc, numbers+number.Width(" "), 0, 0, 0), low: low, high: high}
	axis := xAxis{c.Axis, ticks{room: dc.Size().X - upright}.on(low.X, high.X)}
	a.under(axis)
	a.drawX(axis)
	a.drawY(upwards, a.Min.X-number.Width(" "))
	for _, l := range c.Lines {
		drawn := slices.DeleteFunc(slices.Clone(l.Points), func(p XY) bool {
			return math.IsNaN(p.X) || math.IsNaN(p.Y)
		})
		var at []vg.Point
		for _, p := range drawn {
			at = append(at, vg.Point{X: a.x(p.X), Y: a.y(p.Y)})
		}
		a.StrokeLines(l.style(), a.ClipLinesXY(at)...)
		if !l.Quiet {
			for _, p := range drawn {
				dot(a, p, l.Ink, 2.6)
			}
		}
	}
}

// linesBounds returns the ranges of both axes. They begin at zero, so that twice the value is twice as high.
func (c *Chart) linesBounds() (low, high XY) {
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
