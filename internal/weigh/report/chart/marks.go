// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"math"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// drawMarks draws a row's marks at a place of the vertical axis.
func (c *Chart) drawMarks(a *axes, r Row, y float64) {
	switch c.Kind {
	case StackedBars:
		c.drawStack(a, r, y)
		return
	case Dots:
		c.drawDots(a, r, y)
		return
	}
	for _, m := range r.Marks {
		if !c.usable(m.Value) {
			continue
		}
		bar(a, max(0, a.low.X), m.Value, y, m.Ink)
		if m.High > m.Low && c.usable(m.Low) && c.usable(m.High) {
			whisker(a, m, y)
		}
	}
}

// bar reaches from a value to another.
func bar(a *axes, from, to, y float64, i Ink) {
	left, right, middle := a.x(from), a.x(to), a.y(y)
	a.FillPolygon(i.color(), a.ClipPolygonX([]vg.Point{
		{X: left, Y: middle - barWidth/2.}, {X: left, Y: middle + barWidth/2.},
		{X: right, Y: middle + barWidth/2.}, {X: right, Y: middle - barWidth/2.},
	}))
}

// drawStack puts a row's bars end to end.
func (c *Chart) drawStack(a *axes, r Row, y float64) {
	sum := 0.0
	for _, m := range r.Marks {
		if c.usable(m.Value) && m.Value > 0 {
			bar(a, sum, sum+m.Value, y, m.Ink)
			sum += m.Value
		}
	}
}

// drawDots draws a row's dots, over a line that joins the first and the last of a
// short row.
func (c *Chart) drawDots(a *axes, r Row, y float64) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, m := range r.Marks {
		if c.usable(m.Value) {
			low, high = min(low, m.Value), max(high, m.Value)
		}
	}
	if high > low {
		line := r.Marks[0].Ink
		if r.Marks[len(r.Marks)-1].Ink != line {
			line = InkGrid
		}
		segment(a, XY{low, y}, XY{high, y}, draw.LineStyle{Color: line.color(), Width: 1.5})
	}
	for _, m := range r.Marks {
		if !c.usable(m.Value) {
			continue
		}
		dot(a, XY{m.Value, y}, m.Ink, dotRadius)
		if m.Hollow {
			dot(a, XY{m.Value, y}, InkPaper, dotRadius-1.7)
		}
	}
}

func dot(a *axes, at XY, i Ink, radius vg.Length) {
	circle(a.Canvas, i.color(), a.x(at.X), a.y(at.Y), radius)
}

func segment(a *axes, from, to XY, s draw.LineStyle) {
	a.StrokeLine2(s, a.x(from.X), a.y(from.Y), a.x(to.X), a.y(to.Y))
}

// whisker shows the lowest and highest repeat of a bar.
func whisker(a *axes, m Mark, y float64) {
	const end = 6 // how high the strokes at its ends are, in pixels
	s := draw.LineStyle{Color: InkText.color(), Width: 1.2}
	segment(a, XY{m.Low, y}, XY{m.High, y}, s)
	for _, v := range []float64{m.Low, m.High} {
		a.StrokeLine2(s, a.x(v), a.y(y)-end/2, a.x(v), a.y(y)+end/2)
	}
}
