// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"html"
	"io"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Sizes of a picture, in pixels.
const (
	pictureWidth  = 860
	pictureMargin = 20
	pictureGutter = 28
	pictureFoot   = 22
)

// Compose writes one chart, or two with the same rows side by side, as a self-contained SVG picture that follows the
// reader's light or dark scheme. label describes it in words; footing stands below it. The error is w's.
func Compose(w io.Writer, figs []Figure, label, footing string) error {
	widths := []float64{pictureWidth - 2*pictureMargin}
	if len(figs) > 1 {
		// The rows are the same, so the second chart needs no labels of its own.
		figs[1].Chart.Unlabelled = true
		label := float64(figs[0].Chart.labelWidth())
		half := (widths[0] - pictureGutter - label) / 2
		widths = []float64{label + half, half}
	}
	height := 0.0
	for i := range figs {
		figs[i].Chart.Title = figs[i].Title
		height = max(height, figs[i].Chart.height(widths[i]))
	}
	height += 2*pictureMargin + pictureFoot
	body := drawing(pictureWidth, height, func(dc draw.Canvas) {
		left := vg.Length(pictureMargin)
		for i, f := range figs {
			right := left + vg.Length(widths[i])
			f.Chart.draw(draw.Canvas{Canvas: dc.Canvas, Rectangle: vg.Rectangle{
				Min: vg.Point{X: left, Y: vg.Length(height - pictureMargin - f.Chart.height(widths[i]))},
				Max: vg.Point{X: right, Y: vg.Length(height - pictureMargin)},
			}})
			left = right + pictureGutter
		}
		fill(dc, style(10.5, InkQuiet, false, atStart), pictureMargin, pictureMargin, footing)
	})
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %g" width="%d" role="img" aria-label="%s">
<style>svg{%s}@media(prefers-color-scheme:dark){svg{%s}}text{font-family:%s;font-variant-numeric:tabular-nums}</style>
<rect width="100%%" height="100%%" rx="10" style="fill:var(--paper)"/>
%s</svg>
`, pictureWidth, height, pictureWidth, html.EscapeString(label),
		Declarations(false), Declarations(true), Font, body)
	return err
}
