// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"math"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// draw draws the chart into dc.
func (c *Chart) draw(dc draw.Canvas) {
	if c.Title != "" {
		dc.FillText(style(14, InkText, true, atStart), vg.Point{X: dc.Min.X, Y: dc.Max.Y - titleHeight/2 + 3}, c.Title)
		dc.Max.Y -= titleHeight
	}
	switch c.Kind {
	case Lines:
		c.drawLines(dc)
		return
	case Scatter:
		c.drawScatter(dc)
		return
	}
	width := float64(dc.Size().X)
	c.drawLegend(dc)
	dc.Max.Y -= c.legendHeight(width)
	left, right := c.margins(width)
	area := draw.Crop(dc, left, -right, 0, 0)
	c.drawRows(area, dc, width)
}

// height returns how high the chart is at a width.
func (c *Chart) height(width float64) float64 {
	h := float64(axisHeight)
	if c.Title != "" {
		h += titleHeight
	}
	if c.Kind == Lines {
		return h - axisHeight + c.linesTall(width)
	}
	h += float64(c.legendHeight(width))
	if c.Kind == Scatter {
		return h + scatterHeight
	}
	for _, r := range c.Rows {
		h += c.rowHeight(r, width)
	}
	return h
}

// margins returns the room for the labels and for the values behind the marks.
func (c *Chart) margins(width float64) (left, right vg.Length) {
	if !c.Unlabelled && !c.above(width) {
		left = c.labelWidth()
	}
	// A value stands behind its own marks, so only a row that ends far to the
	// right needs room: share*(room-right) + value <= room.
	room := vg.Length(width) - left
	s := style(fontSize, InkText, false, atStart)
	for _, r := range c.Rows {
		if share := vg.Length(c.share(c.end(r))); share > 0 && r.Value != "" {
			value := s.Width(r.Value)*labelSlack + gap
			right = max(right, room-(room-value)/share)
		}
	}
	return left, min(right, room*0.6)
}

// drawRows draws the axis and the marks into area, and the texts beside them into whole.
func (c *Chart) drawRows(area, whole draw.Canvas, width float64) {
	at, total := c.positions(width)
	low, high := c.bounds()
	a := &axes{Canvas: area, low: XY{low, -total}, high: XY{high, 0}, log: c.Log}
	axis := xAxis{c.Axis, ticks{log: c.Log, percent: c.Percent, room: c.axisWidth(width)}.on(low, high)}
	a.under(axis)
	a.drawX(axis)
	if c.HasReference {
		segment(a, XY{c.Reference, -total}, XY{c.Reference, 0}, draw.LineStyle{Color: InkQuiet.color(), Width: 1})
	}
	for i, r := range c.Rows {
		c.drawMarks(a, r, at[i])
	}
	c.drawLabels(whole, a, width)
}

// drawLabels writes the rows' labels and the values behind their marks.
func (c *Chart) drawLabels(whole draw.Canvas, a *axes, width float64) {
	at, _ := c.positions(width)
	for i, r := range c.Rows {
		top := a.y(at[i])
		switch {
		case r.Head && c.Unlabelled:
			continue
		case r.Head:
			fill(whole, style(fontSize, InkText, true, atStart), whole.Min.X, top-3, r.Label)
			continue
		case c.Unlabelled:
		case c.above(width):
			fill(whole, style(fontSize, InkText, false, atStart), whole.Min.X, top+rowHeight/2+
				labelHeight/2-2.5, r.Label)
		default:
			fill(whole, style(fontSize, InkText, false, atEnd), a.Min.X-gap, top, r.Label)
		}
		value := style(fontSize, InkText, false, atStart)
		if len(r.Marks) == 0 {
			value = style(fontSize, InkQuiet, false, atStart)
		}
		fill(whole, value, a.x(c.end(r))+gap, top, r.Value)
	}
}

// drawLegend explains the inks above the rows.
func (c *Chart) drawLegend(dc draw.Canvas) {
	s := style(fontSize, InkQuiet, false, atStart)
	places, _ := c.legendPlaces(float64(dc.Size().X))
	for i, e := range c.Legend {
		x, y := dc.Min.X+places[i].x, dc.Max.Y-places[i].y-legendEach/2
		if c.Kind == Dots {
			circle(dc, e.Ink.color(), x+5, y, dotRadius)
			if e.Hollow {
				circle(dc, InkPaper.color(), x+5, y, dotRadius-1.7)
			}
		} else {
			dc.SetColor(e.Ink.color())
			dc.Fill(vg.Rectangle{Min: vg.Point{X: x, Y: y - 5}, Max: vg.Point{X: x + 10, Y: y + 5}}.Path())
		}
		fill(dc, s, x+legendMark, y, e.Name)
	}
}

// legendHeight is the room of the legend of the inks above the rows.
func (c *Chart) legendHeight(width float64) vg.Length {
	if len(c.Legend) == 0 {
		return 0
	}
	_, height := c.legendPlaces(width)
	return height
}

// positions returns each row's place on the vertical axis, in pixels below the
// top, and the height of all.
func (c *Chart) positions(width float64) (at []float64, total float64) {
	for _, r := range c.Rows {
		h := c.rowHeight(r, width)
		y := total + h/2
		if !r.Head && c.above(width) {
			y = total + h - rowHeight/2
		}
		at = append(at, -y)
		total += h
	}
	return at, total
}

// axisWidth returns the length of the axis.
func (c *Chart) axisWidth(width float64) vg.Length {
	left, right := c.margins(width)
	return vg.Length(width) - left - right
}

// share returns the place of a value along the axis, from 0 to 1.
func (c *Chart) share(v float64) float64 {
	low, high := c.bounds()
	if c.Log {
		v = max(v, low)
	}
	return (&axes{low: XY{X: low}, high: XY{X: high}, log: c.Log}).share(v)
}

// above reports whether labels stand above their bars, because there is no room beside them.
func (c *Chart) above(width float64) bool {
	return !c.Unlabelled && (width < narrow || float64(c.labelWidth()) > width*widestLabel)
}

// labelWidth returns the room that the longest label needs.
func (c *Chart) labelWidth() vg.Length {
	var w vg.Length
	s := style(fontSize, InkText, false, atStart)
	for _, r := range c.Rows {
		if !r.Head {
			w = max(w, s.Width(r.Label)*labelSlack+gap)
		}
	}
	return w
}

func (c *Chart) rowHeight(r Row, width float64) float64 {
	switch {
	case r.Head:
		return headHeight
	case c.above(width):
		return rowHeight + labelHeight
	}
	return rowHeight
}

// end returns the value at which a row's marks end on the axis.
func (c *Chart) end(r Row) float64 {
	low, _ := c.bounds()
	end, sum := low, 0.0
	if c.Kind != Dots {
		end = max(low, 0)
	}
	for _, m := range r.Marks {
		sum += m.Value
		for _, v := range m.values() {
			if c.usable(v) {
				end = max(end, v)
			}
		}
	}
	if c.Kind == StackedBars {
		return sum
	}
	return end
}

// bounds returns the range of the axis. Bars begin at zero, so that their lengths compare; dots need not.
func (c *Chart) bounds() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, r := range c.Rows {
		sum := 0.0
		for _, m := range r.Marks {
			sum += m.Value
			for _, v := range m.values() {
				if c.usable(v) {
					low, high = min(low, v), max(high, v)
				}
			}
		}
		if c.Kind == StackedBars {
			high = max(high, sum)
		}
	}
	if c.HasReference {
		low, high = min(low, c.Reference), max(high, c.Reference)
	}
	switch {
	case low > high && c.Log:
		return 1, 10
	case low > high:
		return 0, 1
	case c.Log:
		return logFloor(low), logCeil(high)
	case c.Kind == Dots && c.HasReference:
		margin := max((high-low)*0.08, (minimumSpan-(high-low))/2)
		return low - margin, high + margin
	}
	low, high = min(low, 0), max(high, 0)
	if low == high {
		high = 1
	}
	return low, high
}

// Figure is a chart with its title and caption.
type Figure struct {
	Title, Caption string
	Chart          *Chart
}

// Fitted leaves out the last rows for which the first screen has no room.
func (f Figure) Fitted() *Figure {
	short := *f.Chart
	for short.height(WideWidth) > overviewHeight && len(short.Rows) > 1 {
		short.Rows = short.Rows[:len(short.Rows)-1]
	}
	f.Chart = &short
	return &f
}

// overviewHeight is the greatest height of the first screen's picture, in pixels.
const overviewHeight = 440
