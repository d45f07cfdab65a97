// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// plotters returns what draws a row's marks.
func (c *chart) plotters(r chartRow, y float64) []plot.Plotter {
	switch c.Kind {
	case stackedBars:
		return c.stack(r, y)
	case dots:
		return c.dots(r, y)
	}
	var out []plot.Plotter
	for _, m := range r.Marks {
		if !c.usable(m.Value) {
			continue
		}
		out = append(out, bar(m, y))
		if m.High > m.Low && c.usable(m.Low) && c.usable(m.High) {
			out = append(out, whisker(m, y))
		}
	}
	return out
}

func bar(m mark, y float64) *plotter.BarChart {
	return &plotter.BarChart{
		Values:     plotter.Values{m.Value},
		Width:      barWidth,
		Color:      m.Ink.color(),
		XMin:       y,
		Horizontal: true,
	}
}

// stack puts a row's bars end to end.
func (c *chart) stack(r chartRow, y float64) []plot.Plotter {
	var out []plot.Plotter
	var last *plotter.BarChart
	for _, m := range r.Marks {
		if !c.usable(m.Value) || m.Value <= 0 {
			continue
		}
		b := bar(m, y)
		if last != nil {
			b.StackOn(last)
		}
		out, last = append(out, b), b
	}
	return out
}

// dots draws a row's dots, over a line that joins the first and the last of a
// short row.
func (c *chart) dots(r chartRow, y float64) []plot.Plotter {
	var out, on []plot.Plotter
	low, high := math.Inf(1), math.Inf(-1)
	for _, m := range r.Marks {
		if !c.usable(m.Value) {
			continue
		}
		low, high = min(low, m.Value), max(high, m.Value)
		on = append(on, dot(m.Value, y, m.Ink, dotRadius))
		if m.Hollow {
			on = append(on, dot(m.Value, y, inkPaper, dotRadius-1.7))
		}
	}
	if high > low {
		line := r.Marks[0].Ink
		if r.Marks[len(r.Marks)-1].Ink != line {
			line = inkGrid
		}
		out = append(out, segment(low, y, high, y, line, 1.5))
	}
	return append(out, on...)
}

func dot(x, y float64, i ink, radius vg.Length) plot.Plotter {
	return &plotter.Scatter{
		XYs:        plotter.XYs{{X: x, Y: y}},
		GlyphStyle: draw.GlyphStyle{Color: i.color(), Radius: radius, Shape: draw.CircleGlyph{}},
	}
}

func segment(x0, y0, x1, y1 float64, i ink, width vg.Length) plot.Plotter {
	return &plotter.Line{
		XYs:       plotter.XYs{{X: x0, Y: y0}, {X: x1, Y: y1}},
		LineStyle: draw.LineStyle{Color: i.color(), Width: width},
	}
}

// whisker shows the lowest and highest repeat of a bar.
func whisker(m mark, y float64) plot.Plotter {
	return &plotter.XErrorBars{
		XYs:       plotter.XYs{{X: m.Value, Y: y}},
		XErrors:   plotter.XErrors{{Low: m.Low - m.Value, High: m.High - m.Value}},
		LineStyle: draw.LineStyle{Color: inkText.color(), Width: 1.2},
		CapWidth:  6,
	}
}
