// SPDX-License-Identifier: Apache-2.0

package change

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// faultEvents are the events in which a backend's service dies or hangs.
var faultEvents = []string{"dies", "hangs"}

// faultSheet shows the cost of a backend whose service dies or hangs, before the balancer has noticed and after it.
func faultSheet(s *model.Section) []model.Sheet {
	sh := model.Sheet{
		Title: "A backend that dies or hangs",
		Lead:  "New connections that failed, by when they had begun: before the fault, from then until the balancer showed that it knew, and later; and when the last of them had begun.",
		Notes: []string{"Never: it showed nothing of the kind while the fault lasted, or cannot show it. What failed later is then counted with what failed before it knew."},
		Columns: []model.Column{{Title: "Subject"}, {Title: "Event"}, {Title: "Noticed after, s", Numeric: true},
			{Title: "Begun before", Numeric: true}, {Title: "Until noticed", Numeric: true},
			{Title: "Later", Numeric: true},
			{Title: "The last after, s", Numeric: true}, {Title: "UDP queries unanswered", Numeric: true},
			{Title: "Lasted, s", Numeric: true}, {Title: "Back after, s", Numeric: true}},
	}
	rows, _ := changeRows(s)
	for _, r := range rows {
		var lines []model.Line
		for _, event := range faultEvents {
			if p := r.at[event]; p != nil && p.Has(results.FaultSeconds) {
				lines = append(lines, model.Line{Cells: faultCells(r, event, p)})
			}
		}
		sh.Group(lines)
	}
	return sh.List()
}

// faultCells returns a line of the table, with the worst of the repeats.
func faultCells(r *changeRow, event string, p *model.Point) []string {
	seconds := func(metric, without string) string {
		if !p.Has(metric) {
			return without
		}
		return wording.Decimal(p.Stats[metric].Max, 1)
	}
	count := func(metric string) string { return countCell(metric)(p) }
	return []string{wording.Clean(r.label), model.EventText(event), seconds(results.NoticedSeconds, never),
		count(results.InFlight), count(results.NewFailedBefore), count(results.NewFailedAfter),
		seconds(results.LastFailedSeconds, wording.Missing), count(results.UDPUnanswered),
		seconds(results.FaultSeconds, wording.Missing), seconds(results.BackSeconds, wording.Missing)}
}

// faultVerdict counts the failures through each balancer, until it noticed the fault and later.
func faultVerdict(rows []*changeRow) (sentences []string) {
	for _, r := range rows {
		for _, event := range faultEvents {
			p := r.at[event]
			if p == nil || !p.Has(results.FaultSeconds) {
				continue
			}
			worst := func(metric string) float64 { return p.Stats[metric].Max }
			failed := worst(results.InFlight) + worst(results.NewFailedBefore)
			label := wording.Clean(r.label)
			if !p.Has(results.NoticedSeconds) {
				sentences = append(sentences,
					fmt.Sprintf("%s showed for %s s nothing of a backend that %s: new connections failed %s.", label,
						wording.Decimal(worst(results.FaultSeconds), 1), event,
						wording.Decimal(failed+worst(results.NewFailedAfter), 0)))
				continue
			}
			sentences = append(sentences,
				fmt.Sprintf("%s noticed a backend that %s after %s s: new connections failed %s until then, %s later.",
					label, event,
					wording.Decimal(worst(results.NoticedSeconds), 1), wording.Decimal(failed, 0),
					wording.Decimal(worst(results.NewFailedAfter), 0)))
		}
	}
	return sentences
}
