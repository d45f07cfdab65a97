// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/results"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Sizes of the picture, in pixels.
const (
	pictureWidth  = 860
	pictureMargin = 20
	pictureGutter = 28
	pictureFoot   = 22
)

func writeChart(w io.Writer, words *translator, run *results.Run) error {
	for _, s := range aggregate(run.Trials, run.Baseline) {
		if figs := pictured(s); len(figs) > 0 {
			return writePicture(w, words, run, s, figs)
		}
	}
	return fmt.Errorf("drawing a chart of %s: no valid trial has a figure to draw", title(run))
}

// pictured returns the one or two charts that tell a load's result.
func pictured(s *section) []figure {
	colours := newPalette([]*section{s})
	if s.isPackets() || s.kind() != nil {
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

// footing says in a line what the picture's figures are of.
func footing(run *results.Run, s *section) string {
	parts := []string{s.title()}
	if !s.isPackets() {
		if g := s.fullest(); g != nil && len(s.Varying) > 0 && !s.isLadder() {
			parts = append(parts, g.Params.only(s.Varying).text())
		}
	}
	parts = append(parts, s.Constant.text())
	repeats := 0
	for _, p := range s.points() {
		repeats = max(repeats, p.Valid)
	}
	parts = append(parts, "medians of up to "+counted("repeat")(fmt.Sprint(repeats)))
	if run.Environment.Cores > 0 {
		parts = append(parts, counted("core")(fmt.Sprint(run.Environment.Cores)))
	}
	if k := clean(run.Environment.Kernel); k != "" {
		parts = append(parts, "kernel "+k)
	}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " · ")
}

func writePicture(w io.Writer, words *translator, run *results.Run, s *section, figs []figure) error {
	figs = words.figures(figs)
	widths := []float64{pictureWidth - 2*pictureMargin}
	if len(figs) > 1 {
		// The rows are the same, so the second chart needs no labels of its own.
		figs[1].chart.Unlabelled = true
		label := float64(figs[0].chart.labelWidth())
		half := (widths[0] - pictureGutter - label) / 2
		widths = []float64{label + half, half}
	}
	height := 0.0
	for i := range figs {
		figs[i].chart.Title = figs[i].Title
		height = max(height, figs[i].chart.height(widths[i]))
	}
	height += 2*pictureMargin + pictureFoot
	body := drawing(pictureWidth, height, func(dc draw.Canvas) {
		left := vg.Length(pictureMargin)
		for i, f := range figs {
			right := left + vg.Length(widths[i])
			f.chart.draw(draw.Canvas{Canvas: dc.Canvas, Rectangle: vg.Rectangle{
				Min: vg.Point{X: left, Y: vg.Length(height - pictureMargin - f.chart.height(widths[i]))},
				Max: vg.Point{X: right, Y: vg.Length(height - pictureMargin)},
			}})
			left = right + pictureGutter
		}
		fill(dc, style(10.5, inkQuiet, false, atStart), pictureMargin, pictureMargin, words.text(footing(run, s)))
	})
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %g" width="%d" role="img" aria-label="%s">
<style>svg{%s}@media(prefers-color-scheme:dark){svg{%s}}text{font-family:%s;font-variant-numeric:tabular-nums}</style>
<rect width="100%%" height="100%%" rx="10" style="fill:var(--paper)"/>
%s</svg>
`, pictureWidth, height, pictureWidth, html.EscapeString(words.text(title(run))+": "+words.text(s.title())),
		declarations(false), declarations(true), svgFont, body)
	return err
}
