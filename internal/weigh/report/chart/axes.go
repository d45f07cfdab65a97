// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"math"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// axes maps values to places on a canvas, which is the part of a chart that has its marks.
//
// gonum's package plot has axes too, but is linked with four other formats of pictures, TeX and twelve fonts: 5 MB.
type axes struct {
	draw.Canvas
	low, high XY
	// log: the horizontal axis is logarithmic.
	log bool
}

// axisPadding is the distance between an axis' name and its numbers, and tickGap the distance between the numbers and
// the axis, in pixels: the lowest number of the vertical axis stands beside it.
const (
	axisPadding = 3
	tickGap     = 4
)

// xAxis is the horizontal axis of a chart, which is below the marks.
type xAxis struct {
	name  string
	ticks []tick
}

func (xAxis) nameStyle() text.Style {
	s := style(tickSize, InkQuiet, false, atMiddle)
	s.YAlign = draw.YBottom
	return s
}

func (xAxis) tickStyle() text.Style {
	s := style(tickSize, InkQuiet, false, atMiddle)
	s.YAlign = draw.YTop
	return s
}

// height returns the room for the numbers and the name.
func (x xAxis) height() vg.Length {
	h := labelsHeight(x.tickStyle(), x.ticks) + tickGap
	if x.name != "" {
		h += x.nameStyle().Height(x.name) + axisPadding
	}
	return h
}

// overhang returns how far the numbers extend beyond both ends of an axis of a length.
func (x xAxis) overhang(a *axes, length vg.Length) (left, right vg.Length) {
	for _, t := range x.ticks {
		half := x.tickStyle().Width(t.Label) / 2
		at := vg.Length(a.share(t.Value))
		left, right = max(left, half-at*length), max(right, half-(1-at)*length)
	}
	return left, right
}

// under leaves room for x below the marks and beside them.
func (a *axes) under(x xAxis) {
	left, right := x.overhang(a, a.Size().X)
	a.Canvas = draw.Crop(a.Canvas, left, -right, x.height(), 0)
}

// share returns the place of a value along the horizontal axis, from 0 to 1.
func (a *axes) share(v float64) float64 {
	if a.log {
		return math.Log(v/a.low.X) / math.Log(a.high.X/a.low.X)
	}
	return (v - a.low.X) / (a.high.X - a.low.X)
}

// x returns the place of a value on the horizontal axis.
func (a *axes) x(v float64) vg.Length { return a.X(a.share(v)) }

// y returns the place of a value on the vertical axis.
func (a *axes) y(v float64) vg.Length { return a.Y((v - a.low.Y) / (a.high.Y - a.low.Y)) }

// gridLine is the style of a tick's line across the marks.
func gridLine() draw.LineStyle { return draw.LineStyle{Color: InkGrid.color(), Width: 1} }

// drawX draws the horizontal axis' numbers, its name, and a line through the marks at each number.
func (a *axes) drawX(x xAxis) {
	bottom := a.Min.Y - x.height()
	if x.name != "" {
		s := x.nameStyle()
		a.FillText(s, vg.Point{X: a.Center().X, Y: bottom + s.FontExtents().Descent}, x.name)
	}
	s := x.tickStyle()
	for _, t := range x.ticks {
		at := a.x(t.Value)
		if !a.ContainsX(at) {
			continue
		}
		a.StrokeLine2(gridLine(), at, a.Min.Y, at, a.Max.Y)
		a.FillText(s, vg.Point{X: at, Y: a.Min.Y - tickGap + s.FontExtents().Descent}, t.Label)
	}
}

// drawY does the same for the vertical axis, whose numbers end at a place left of the marks.
func (a *axes) drawY(ticks []tick, end vg.Length) {
	s := style(tickSize, InkQuiet, false, atEnd)
	for _, t := range ticks {
		at := a.y(t.Value)
		if !a.ContainsY(at) {
			continue
		}
		a.StrokeLine2(gridLine(), a.Min.X, at, a.Max.X, at)
		a.FillText(s, vg.Point{X: end, Y: at + s.FontExtents().Descent}, t.Label)
	}
}

func labelsHeight(s text.Style, ticks []tick) (h vg.Length) {
	for _, t := range ticks {
		h = max(h, s.Height(t.Label))
	}
	return h
}

func labelsWidth(s text.Style, ticks []tick) (w vg.Length) {
	for _, t := range ticks {
		w = max(w, s.Width(t.Label))
	}
	return w
}
