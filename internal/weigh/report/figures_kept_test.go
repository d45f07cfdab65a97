// SPDX-License-Identifier: Apache-2.0

package report

import "testing"

// TestEveryFigureIsInATable: each metric of published results is in a table of its load, rounded as the tables round.
func TestEveryFigureIsInATable(t *testing.T) {
	t.Parallel()
	for path, run := range publishedRuns(t) {
		if len(run.Trials) > 60 {
			continue // the same kinds are in the smaller ones
		}
		for _, s := range aggregate(run.Trials, run.Baseline) {
			if rest := s.LeftOut(s.Sheets()); !rest.Empty() {
				t.Errorf("%s, %s: no table has %v", path, s.Title(), rest.Columns)
			}
		}
	}
}
