// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"html"
	"io"
	"slices"

	"github.com/jeoul/jeoul/internal/results"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Sizes of the picture, in pixels.
const (
	pictureWidth  = 860
	pictureMargin = 20
	pictureGutter = 28
)

// Chart writes the run's main result as one SVG picture that follows the
// reader's light or dark scheme by itself. It shows the run's first load. The
// error says that no valid trial has a figure to draw, or is w's.
func Chart(w io.Writer, run *results.Run) error {
	for _, s := range aggregate(run.Trials) {
		if figs := pictured(s); len(figs) > 0 {
			return writePicture(w, run, s, figs)
		}
	}
	return fmt.Errorf("drawing a chart of %s: no valid trial has a figure to draw", title(run))
}

// pictured returns the one or two charts that tell a load's result.
func pictured(s *section) []figure {
	colours := newPalette([]*section{s})
	if s.isPackets() {
		figs := figures(s, colours)
		return figs[:min(len(figs), 1)]
	}
	one := *s
	if g := s.fullest(); g != nil {
		one.Groups = []*group{g}
	}
	figs := []figure{rateChart(&one, colours), costChart(&one, colours)}
	return slices.DeleteFunc(figs, func(f figure) bool { return f.chart.empty() })
}

func writePicture(w io.Writer, run *results.Run, s *section, figs []figure) error {
	each := (pictureWidth - 2*pictureMargin - float64(len(figs)-1)*pictureGutter) / float64(len(figs))
	// Side by side, the charts are narrow; labels stay beside their bars.
	if len(figs) > 1 {
		each = max(each, 0)
	}
	height := 0.0
	for i := range figs {
		figs[i].chart.Title = figs[i].Title
		height = max(height, figs[i].chart.height(each))
	}
	height += 2 * pictureMargin
	body := drawing(pictureWidth, height, func(dc draw.Canvas) {
		for i, f := range figs {
			left := vg.Length(pictureMargin + float64(i)*(each+pictureGutter))
			f.chart.draw(draw.Canvas{Canvas: dc.Canvas, Rectangle: vg.Rectangle{
				Min: vg.Point{X: left, Y: vg.Length(height - pictureMargin - f.chart.height(each))},
				Max: vg.Point{X: left + vg.Length(each), Y: vg.Length(height - pictureMargin)},
			}})
		}
	})
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %g" width="%d" role="img" aria-label="%s">
<style>svg{%s}@media(prefers-color-scheme:dark){svg{%s}}text{font-family:%s;font-variant-numeric:tabular-nums}</style>
<rect width="100%%" height="100%%" rx="10" style="fill:var(--paper)"/>
%s</svg>
`, pictureWidth, height, pictureWidth, html.EscapeString(title(run)+": "+clean(s.Load)), declarations(false), declarations(true), svgFont, body)
	return err
}
