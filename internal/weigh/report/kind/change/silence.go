// SPDX-License-Identifier: Apache-2.0

package change

import (
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// never is shown where a balancer did not notice that a host was silent.
const never = "never"

// silenceSheet shows the cost of a host that falls silent, before the balancer has noticed and after it.
func silenceSheet(s *model.Section) []model.Sheet {
	noticed := model.Fixed(model.MetricField("Noticed after", "s", results.NoticedSeconds), 1)
	cell := noticed.Cell
	noticed.Cell = func(g *model.Group, p *model.Point, d int) string {
		if !p.Has(results.NoticedSeconds) && p.Has(results.SilentSeconds) {
			return never
		}
		return cell(g, p, d)
	}
	fields := []model.Field{model.SubjectField(s), noticed,
		model.Fixed(model.MetricField("Silent for", "s", results.SilentSeconds), 1),
		worstField("SYNs lost before", results.LostSYNsBefore), worstField("SYNs lost after", results.LostSYNsAfter),
		worstField("Connections failed before", results.ReusedFailedBefore),
		worstField("Connections failed after", results.ReusedFailedAfter),
		worstField("UDP unanswered before", results.UDPUnansweredBefore),
		worstField("UDP unanswered after", results.UDPUnansweredAfter),
		model.Fixed(model.MetricField("Back after", "s", results.BackSeconds), 1),
	}
	return model.WithoutBaseline(s.Tabulate(model.Sheet{
		Title: "A host that falls silent",
		Lead:  "Of clients that use their ports again: what was sent before the balancer showed that it knew, and after it; and how long it took to show that the host was back.",
		Notes: []string{"Never: it has no health check here, and does not notice by itself. A proxy answers the client's SYN itself; what it loses are the connections that it cannot make."},
	}, results.SilentSeconds, fields))
}

// worstField shows a count, the worst of the repeats.
func worstField(title, metric string) model.Field {
	f := model.Fixed(model.MetricField(title, "", metric), 0)
	f.Cell = func(_ *model.Group, p *model.Point, _ int) string { return countCell(metric)(p) }
	return f
}

// againSheet shows which backends got the connections that were opened again after a drained backend had reset them.
func againSheet(s *model.Section) []model.Sheet {
	fields := []model.Field{model.SubjectField(s),
		worstField("Reset by it", results.ResetByDrained), worstField("Came again", results.CameAgain),
		worstField("To the drained one", results.AgainToDrained),
	}
	return model.WithoutBaseline(s.Tabulate(model.Sheet{
		Title: "A drained backend that resets its connections",
		Lead:  "Its clients come again from the same port; with direct server return the balancer has not seen the resets.",
	}, results.ResetByDrained, fields))
}

// silenceVerdict names the subjects that lost something after noticing that a host was silent, and those that did not
// notice.
func silenceVerdict(rows []*changeRow) []string {
	var clear, sentences []string
	for _, r := range rows {
		p := r.at[model.EventSilent]
		if p == nil || !p.Has(results.SilentSeconds) {
			continue
		}
		worst := func(metric string) float64 { return p.Stats[metric].Max }
		counts := func(syns, failed, queries string) string {
			return fmt.Sprintf("SYNs lost %s, connections failed %s, UDP queries unanswered %s",
				wording.Decimal(worst(syns), 0), wording.Decimal(worst(failed), 0), wording.Decimal(worst(queries), 0))
		}
		label := wording.Clean(r.label)
		switch {
		case !p.Has(results.NoticedSeconds):
			sentences = append(sentences, fmt.Sprintf("%s never noticed that a host was silent for %s s: %s.", label,
				wording.Decimal(worst(results.SilentSeconds), 1), counts(results.LostSYNsBefore,
					results.ReusedFailedBefore,
					results.UDPUnansweredBefore)))
		case worst(results.LostSYNsAfter)+worst(results.ReusedFailedAfter)+worst(results.UDPUnansweredAfter) > 0:
			sentences = append(sentences,
				fmt.Sprintf("%s noticed after %s s that a host was silent, and went on to send to it: %s.", label,
					wording.Decimal(worst(results.NoticedSeconds), 1), counts(results.LostSYNsAfter,
						results.ReusedFailedAfter,
						results.UDPUnansweredAfter)))
		case !slices.Contains(r.failed, model.EventSilent):
			clear = append(clear, label)
		}
	}
	if len(clear) > 0 {
		sentences = append([]string{"Once it was noticed that a host was silent, nothing was lost through " +
			wording.List(clear) + "."}, sentences...)
	}
	return sentences
}

// againVerdict names the subjects that sent returning clients to the drained backend.
func againVerdict(rows []*changeRow) []string {
	return countedRows(rows, results.AgainToDrained, "No connection that came again went to the drained backend through",
		"sent connections that came again to the drained backend", nil)
}
