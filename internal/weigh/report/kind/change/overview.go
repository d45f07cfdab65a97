// SPDX-License-Identifier: Apache-2.0

package change

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// changeLosses are the kinds of losses that a change can cause, each with its ink in the picture.
var changeLosses = []struct {
	metric, title, noun string
	ink                 chart.Ink
}{
	{results.Broken, "Broken", "connections broken", chart.InkVermillion},
	{results.NewFailed, "New failed", "new connections failed", chart.InkOrange},
	{results.NewToLeft, "To one that left", "new connections to a backend that left", chart.InkYellow},
	{results.LostSYNs, "SYNs lost", "SYNs lost", chart.InkPurple},
	{results.UDPUnanswered, "UDP lost", "UDP queries unanswered", chart.InkBlue},
	{results.UDPMoved, "UDP moved", "UDP flows moved", chart.InkSky},
	{results.NumberedMissing, "Packets lost", "packets lost", chart.InkGreen},
}

// changeTotal has the losses of a row over all events.
type changeTotal struct {
	label string
	// counts has a number for each of changeLosses; −1 where it was not counted.
	counts []float64
	total  float64
	// failure states in which events the row failed; failed is their number.
	failure string
	failed  int
}

// whole reports whether nothing was lost in any event.
func (t changeTotal) whole() bool { return t.total == 0 && t.failed == 0 }

// byLoss compares rows: those that failed lost more than all others.
func (t changeTotal) byLoss(o changeTotal) int {
	return cmp.Or(cmp.Compare(t.failed, o.failed), cmp.Compare(t.total, o.total))
}

// changeTotals sums up each row's losses: those of the worst repeat of every event.
func changeTotals(s *model.Section) []changeTotal {
	rows, _ := changeRows(s)
	var all []changeTotal
	for _, r := range rows {
		t := changeTotal{label: wording.Clean(r.label), failed: len(r.failed)}
		if t.failed > 0 {
			t.failure = r.failure()
		}
		counted := t.failed > 0
		for _, loss := range changeLosses {
			n := -1.0
			for _, p := range r.at {
				if p.Has(loss.metric) {
					n = max(n, 0) + p.Stats[loss.metric].Max
				}
			}
			t.counts = append(t.counts, n)
			t.total += max(n, 0)
			counted = counted || n >= 0
		}
		if counted {
			all = append(all, t)
		}
	}
	return all
}

// text lists the losses, the most first.
func (t changeTotal) text() string {
	order := make([]int, len(changeLosses))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.counts[b], t.counts[a]) })
	var parts []string
	for _, i := range order {
		if n := t.counts[i]; n > 0 {
			parts = append(parts, changeLosses[i].noun+" "+wording.Decimal(n, 0))
		}
	}
	return fmt.Sprintf("%s: %s", t.label, strings.Join(parts, ", "))
}

// changeAnswer names the subjects that lose nothing, those that lose most, and those that failed.
func changeAnswer(s *model.Section) []string {
	totals := changeTotals(s)
	var whole, failed []string
	var lossy []changeTotal
	for _, t := range totals {
		switch {
		case t.whole():
			whole = append(whole, t.label)
		case t.failed > 0:
			failed = append(failed, t.failure)
		default:
			lossy = append(lossy, t)
		}
	}
	slices.SortStableFunc(lossy, changeTotal.byLoss)
	if len(totals) == 0 {
		return model.Brief(changeVerdict(s), "")
	}
	return append(changeLeast(whole, lossy, len(totals)), failed...)
}

// changeLeast names the subjects that lose nothing or least, and the one that loses most, of those that came through
// every event.
func changeLeast(whole []string, lossy []changeTotal, all int) (out []string) {
	switch {
	case len(whole) == all && len(whole) > model.MaxListed+1:
		return []string{fmt.Sprintf("Nothing breaks, fails or moves in any event through all %d.", len(whole))}
	case len(whole) > 0:
		out = append(out, fmt.Sprintf("Nothing breaks, fails or moves in any event through %s.",
			wording.List(model.AtMost(whole, model.MaxListed))))
	case len(lossy) > 0:
		out = append(out, fmt.Sprintf("Least is lost through %s.", lossy[0].text()))
	}
	if last := len(lossy) - 1; last > 0 || last == 0 && len(whole) > 0 {
		out = append(out, fmt.Sprintf("Most is lost through %s.", lossy[last].text()))
	}
	return out
}

// changeSure states how often each event was repeated: counts of losses have no interval.
func changeSure(s *model.Section) string {
	repeats := 0
	for _, p := range s.Points() {
		repeats = max(repeats, p.Valid)
	}
	if repeats < 2 {
		return "Every event was met once, so a small difference may be chance: repeats would tell."
	}
	return fmt.Sprintf("Counts are those of the worst of %d repeats of each event; who lost nothing lost nothing in any of them.", repeats)
}

// changeOverview has a row for each balancer with all that it lost.
func changeOverview(s *model.Section) *model.Sheet {
	sh := &model.Sheet{Columns: []model.Column{{Title: "Subject"}},
		Lead: "Over all events, of each the worst repeat. Grey: nothing lost."}
	totals := changeTotals(s)
	for _, loss := range changeLosses {
		sh.Columns = append(sh.Columns, model.Column{Title: loss.title, Numeric: true})
	}
	some := slices.ContainsFunc(totals, func(t changeTotal) bool { return t.failed > 0 })
	if some {
		sh.Columns = append(sh.Columns, model.Column{Title: "Failed events", Numeric: true})
	}
	var lines []model.Line
	for _, t := range totals {
		l := model.Line{Quiet: t.whole(), Cells: []string{t.label}}
		for _, n := range t.counts {
			if n < 0 {
				l.Cells = append(l.Cells, wording.Missing)
			} else {
				l.Cells = append(l.Cells, wording.Decimal(n, 0))
			}
		}
		if some {
			l.Cells = append(l.Cells, wording.Decimal(float64(t.failed), 0))
		}
		lines = append(lines, l)
	}
	sh.Group(lines)
	sh.DropBlankColumns()
	return sh.Clipped(model.OverviewRows+4, len(sh.Columns))
}

// changePicture shows the losses of the balancers that lost most.
func changePicture(s *model.Section) *chart.Figure {
	totals := slices.DeleteFunc(changeTotals(s), changeTotal.whole)
	if len(totals) == 0 {
		return &changeFigures(s, nil)[0]
	}
	slices.SortStableFunc(totals, func(a, b changeTotal) int { return b.byLoss(a) })
	c := &chart.Chart{Axis: "connections, queries, flows and packets", Kind: chart.StackedBars}
	used := make([]bool, len(changeLosses))
	for _, t := range totals {
		row := chart.Row{Label: t.label, Value: wording.Decimal(t.total, 0)}
		if t.failed > 0 {
			row.Value += ", then failed"
		}
		for i, n := range t.counts {
			if n > 0 {
				used[i] = true
				row.Marks = append(row.Marks, chart.Mark{Value: n, Ink: changeLosses[i].ink})
			}
		}
		c.Rows = append(c.Rows, row)
	}
	for i, loss := range changeLosses {
		if used[i] {
			c.Legend = append(c.Legend, chart.LegendEntry{Name: loss.title, Ink: loss.ink})
		}
	}
	return chart.Figure{Title: "What was lost through each",
		Caption: "Less is better; over all events, the most first. Who lost nothing has no bar.", Chart: c}.Fitted()
}
