// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

func checkNeighbours(e *evidence.Evidence) (findings []Finding) {
	dropped, _ := e.Dropped("NEIGH_FAILED", "NEIGH_QUEUEFULL")
	var figures []Figure
	var names []string
	for _, n := range e.After.Neighbours {
		if n.State != "FAILED" && n.State != "INCOMPLETE" || !e.Wanted(n, dropped) {
			continue
		}
		name := e.After.NameOf(n.Address)
		names = append(names, name)
		figures = append(figures, Figure{Name: "neighbour " + n.State, On: name, Value: n.Since, Unit: "seconds"})
	}
	if len(figures) > 0 {
		title := fmt.Sprintf("%s does not answer ARP or NDP", names[0])
		if len(names) > 1 {
			title = fmt.Sprintf("%d neighbours do not answer ARP or NDP, such as %s", len(names), names[0])
		}
		findings = append(findings,
			finding(neighbourFailed, title,
				append(bounded(figures), nonZero(dropFigure(e, "NEIGH_FAILED"), dropFigure(e, "NEIGH_QUEUEFULL"))...)...))
	}
	full := Figure{Name: "table_fulls", Value: float64(evidence.Growth(e.After.TableFulls, e.Before.TableFulls)),
		Unit: "neighbours"}
	created := dropFigure(e, "NEIGH_CREATEFAIL")
	if created.Value > 0 || full.Value > 0 && (e.Machine || !e.Traced) {
		findings = append(findings, finding(neighbourTable, "The table of neighbours is full", nonZero(full, created)...))
	}
	return findings
}
