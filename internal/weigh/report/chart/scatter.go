// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const scatterHeight = 340

// drawScatter draws a chart of the kind scatter into dc.
func (c *Chart) drawScatter(dc draw.Canvas) {
	c.drawLegend(dc)
	dc.Max.Y -= c.legendHeight(float64(dc.Size().X))
	quiet := style(tickSize, InkQuiet, false, atStart)
	fill(dc, quiet, dc.Min.X, dc.Max.Y-legendEach/2, c.YAxis)
	dc.Max.Y -= legendEach
	dc.Min.X += gap
	low, high := c.scatterBounds()
	number := style(tickSize, InkQuiet, false, atEnd)
	upwards := ticks{}.on(low.Y, high.Y)
	numbers := labelsWidth(number, upwards)
	a := &axes{Canvas: draw.Crop(dc, numbers+number.Width(" "), 0, 0, 0), low: low, high: high, log: c.Log}
	axis := xAxis{c.Axis, ticks{log: c.Log, room: dc.Size().X - upright}.on(low.X, high.X)}
	a.under(axis)
	a.drawX(axis)
	a.drawY(upwards, a.Min.X-number.Width(" "))
	taken := &labels{within: a.Rectangle}
	for _, l := range c.Limits {
		segment(a, XY{low.X, l.Value}, XY{high.X, l.Value},
			draw.LineStyle{Color: InkQuiet.color(), Width: 1.2, Dashes: dashes[1]})
		taken.take(a.Min.X, a.y(l.Value)-1, a.Max.X, a.y(l.Value)+1)
		taken.put(quiet.Width(l.Name)*labelSlack, a.Max.X-1, a.y(l.Value)+legendEach/2, func(x, y vg.Length) {
			fill(a.Canvas, quiet, x, y, l.Name)
		})
	}
	for _, p := range c.Places {
		const room = dotRadius + 2
		at := vg.Point{X: a.x(p.X.Value), Y: a.y(p.Y.Value)}
		taken.take(at.X-room, at.Y-room, at.X+room, at.Y+room)
		taken.take(a.x(p.X.Low), a.y(p.Y.Value)-1, a.x(p.X.High), a.y(p.Y.Value)+1)
		taken.take(a.x(p.X.Value)-1, a.y(p.Y.Low), a.x(p.X.Value)+1, a.y(p.Y.High))
		s := draw.LineStyle{Color: p.Ink.color(), Width: 1.2}
		segment(a, XY{p.X.Low, p.Y.Value}, XY{p.X.High, p.Y.Value}, s)
		segment(a, XY{p.X.Value, p.Y.Low}, XY{p.X.Value, p.Y.High}, s)
		dot(a, XY{p.X.Value, p.Y.Value}, p.Ink, dotRadius+0.6)
		if p.Hollow {
			dot(a, XY{p.X.Value, p.Y.Value}, InkPaper, dotRadius-1.2)
		}
	}
	// A dot at the edge has the fewest places for its name.
	for _, p := range slices.SortedStableFunc(slices.Values(c.Places),
		func(p, q Place) int { return cmp.Compare(p.X.Value, q.X.Value) }) {
		s := style(fontSize, InkText, false, atStart)
		at := vg.Point{X: a.x(p.X.Value), Y: a.y(p.Y.Value)}
		width := s.Width(p.Name) * labelSlack
		taken.put(width, at.X, at.Y, func(x, y vg.Length) {
			if away := y - at.Y; math.Abs(float64(away)) > 2*fontSize {
				end := y - vg.Length(math.Copysign(fontSize/2, float64(away)))
				a.StrokeLine2(gridLine(), at.X, at.Y, min(max(at.X, x), x+width), end)
			}
			fill(a.Canvas, s, x, y, p.Name)
		})
	}
}

// scatterBounds returns the ranges of both axes. The vertical axis begins at zero, so that heights compare.
func (c *Chart) scatterBounds() (low, high XY) {
	low = XY{X: math.Inf(1)}
	for _, p := range c.Places {
		low.X, high.X = min(low.X, p.X.Low), max(high.X, p.X.High)
		high.Y = max(high.Y, p.Y.High)
	}
	for _, l := range c.Limits {
		high.Y = max(high.Y, l.Value)
	}
	high.Y *= 1.08
	if high.Y <= 0 {
		high.Y = 1
	}
	if c.Log {
		low.X, high.X = logFloor(low.X*0.95), logCeil(high.X*1.05)
		return low, high
	}
	low.X, high.X = 0, high.X*1.06
	if high.X <= 0 {
		high.X = 1
	}
	return low, high
}

// labels holds the rectangles that names must leave free.
type labels struct {
	within vg.Rectangle
	taken  []vg.Rectangle
}

// take reserves the room of a dot or a line.
func (l *labels) take(left, bottom, right, top vg.Length) {
	l.taken = append(l.taken, vg.Rectangle{Min: vg.Point{X: left, Y: bottom}, Max: vg.Point{X: right, Y: top}})
}

// put finds a place for a text near a point: beside it, or otherwise the nearest free place.
func (l *labels) put(width, x, y vg.Length, write func(x, y vg.Length)) {
	const half = fontSize/2 + 1
	for _, away := range []vg.Length{0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6, 8, -8, 10, -10} {
		for _, left := range []vg.Length{x + dotRadius + 4, x - dotRadius - 4 - width, x - width/2, l.within.Min.X,
			l.within.Max.X - width} {
			if math.Abs(float64(left+width/2-x)) > float64(width)/2+dotRadius+5 {
				continue // It would be nearer to another dot.
			}
			middle := y + away*(half+1)
			r := vg.Rectangle{Min: vg.Point{X: left, Y: middle - half},
				Max: vg.Point{X: left + width, Y: middle + half}}
			if l.free(r) {
				l.taken = append(l.taken, r)
				write(left, middle)
				return
			}
		}
	}
	write(x+dotRadius+4, y)
}

func (l *labels) free(r vg.Rectangle) bool {
	if r.Min.X < l.within.Min.X || r.Max.X > l.within.Max.X ||
		r.Min.Y < l.within.Min.Y || r.Max.Y > l.within.Max.Y+legendEach {
		return false
	}
	for _, t := range l.taken {
		if r.Min.X < t.Max.X && t.Min.X < r.Max.X && r.Min.Y < t.Max.Y && t.Min.Y < r.Max.Y {
			return false
		}
	}
	return true
}
