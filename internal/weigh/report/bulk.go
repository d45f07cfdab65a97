// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// isBulk says whether the load transferred in bulk, and made no requests.
func (s *section) isBulk() bool {
	return slices.ContainsFunc(s.trials, func(t results.Trial) bool { return t.Params[paramStreams] != nil })
}

// bulkSheets are the tables of a load that transferred in bulk.
func bulkSheets(s *section) []sheet {
	var sheets []sheet
	for _, sh := range []sheet{bulkSheet(s), partSheet(s), restSheet(s)} {
		if !sh.empty() && len(sh.Columns) > 1+len(placeFields(s)) {
			sheets = append(sheets, sh)
		}
	}
	return sheets
}

// bulkSheet shows what went through.
func bulkSheet(s *section) sheet {
	metric, title, noun := s.rate()
	fields := []field{subjectField(s)}
	fields = append(fields, placeFields(s, paramStreams)...)
	fields = append(fields,
		metricField(title, "", metric),
		ratioField("× "+s.Baseline, metric, s.Baseline, metric),
		spreadField("Spread of "+noun, metric),
		fixed(metricField("Retransmits", "", results.Retransmits), 0),
		metricField("Balancer CPU", "ms/gigabyte", results.BalancerCPUMsPerGigabyte),
		saturatedField(),
		repeatsField(),
	)
	sh := sheet{
		Title: "Throughput",
		Lead:  "Medians over the valid repeats; spreads are the lowest and the highest repeat.",
		Notes: baselineNotes(s, noun),
	}
	sh.fill(s, fields)
	return sh
}
