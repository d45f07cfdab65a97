// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
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
func pictured(s *section) []chart.Figure {
	colours := newPalette([]*section{s})
	if s.isPackets() || s.kind() != nil {
		figs := figures(s, colours)
		return figs[:min(len(figs), 1)]
	}
	one := *s
	if g := s.fullest(); g != nil {
		one.Groups = []*group{g}
	}
	figs := []chart.Figure{rateChart(&one, colours), costChart(&one, colours)}
	return slices.DeleteFunc(figs, func(f chart.Figure) bool { return f.Chart.Empty() })
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
	parts = append(parts, "medians of up to "+wording.Counted("repeat")(fmt.Sprint(repeats)))
	if run.Environment.Cores > 0 {
		parts = append(parts, wording.Counted("core")(fmt.Sprint(run.Environment.Cores)))
	}
	if k := wording.Clean(run.Environment.Kernel); k != "" {
		parts = append(parts, "kernel "+k)
	}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " · ")
}

func writePicture(w io.Writer, words *translator, run *results.Run, s *section, figs []chart.Figure) error {
	return chart.Compose(w, words.figures(figs), words.text(title(run))+": "+words.text(s.title()),
		words.text(footing(run, s)))
}
