// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

func writeChart(w io.Writer, words *translator, run *results.Run) error {
	for _, s := range aggregate(run.Trials, run.Baseline) {
		if figs := drawnOf(s); len(figs) > 0 {
			return writePicture(w, words, run, s, figs)
		}
	}
	return fmt.Errorf("drawing a chart of %s: no valid trial has a figure to draw", title(run))
}

// drawnOf returns the one or two charts that show a load's result.
func drawnOf(s *model.Section) []chart.Figure {
	colours := model.NewPalette([]*model.Section{s})
	if s.Kind.Drawn == nil {
		figs := model.Figures(s, colours)
		return figs[:min(len(figs), 1)]
	}
	return slices.DeleteFunc(s.Kind.Drawn(s.Pictured(), colours), func(f chart.Figure) bool { return f.Chart.Empty() })
}

// footing returns a line with the load and the parameters of the picture's figures.
func footing(run *results.Run, s *model.Section) string {
	parts := []string{s.Title()}
	if g := s.Fullest(); g != nil && s.Kind.OnePoint {
		parts = append(parts, g.Params.Only(s.Varying).Text())
	}
	parts = append(parts, s.Constant.Text())
	repeats := 0
	for _, p := range s.Points() {
		repeats = max(repeats, p.Valid)
	}
	parts = append(parts, "medians of up to "+wording.Counted("repeat")(fmt.Sprint(repeats)))
	if run.Environment.Cores > 0 {
		parts = append(parts, wording.Counted("core")(fmt.Sprint(run.Environment.Cores)))
	}
	if k := wording.Clean(run.Environment.Kernel); k != "" {
		parts = append(parts, "kernel "+k)
	}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " · ")
}

func writePicture(w io.Writer, words *translator, run *results.Run, s *model.Section, figs []chart.Figure) error {
	return chart.Compose(w, words.figures(figs), words.text(title(run))+": "+words.text(s.Title()),
		words.text(footing(run, s)))
}
