// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// TestNotes checks that every note of every trial is in one of the tables, and that notes which differ only in their
// numbers share a row.
func TestNotes(t *testing.T) {
	noted := func(subject string, repeat int, valid bool, notes ...string) results.Trial {
		tr := trial(subject, rps(1))
		tr.Repeat, tr.Valid, tr.Notes = repeat, valid, notes
		return tr
	}
	sections := aggregate([]results.Trial{
		noted("direct", 1, true, "saturated: none, for 40 % idled", "9 frames were dropped"),
		noted("direct", 2, true, "saturated: none, for 42 % idled", "120 frames were dropped"),
		noted("haproxy-http", 1, true, "no TLS"),
		noted("haproxy-http", 2, false, "it did not start", "no TLS", "saturated: unknown"),
		noted("haproxy-http", 3, false, "it did not start", "no TLS"),
		noted("jeoul-l2dsr-xdp", 1, false, " \n"),
	}, "")
	want := map[string][][]string{
		"invalid": {
			{"haproxy-http", "Web requests: http", wording.Missing, "2, 3", "it did not start"},
			{"jeoul-l2dsr-xdp", "Web requests: http", wording.Missing, "1", "no reason was recorded"},
		},
		"remarks": {
			{"Web requests: http", "direct, all 2", "9–120 frames were dropped"},
			{"Web requests: http", "haproxy-http, repeat 1", "no TLS"},
		},
		"evidence": {
			{"Web requests: http", "direct, repeat 1", "none, for 40 % idled"},
			{"Web requests: http", "direct, repeat 2", "none, for 42 % idled"},
		},
	}
	got := map[string][][]string{}
	for name, sh := range map[string]*model.Sheet{"invalid": invalidSheet(sections), "remarks": remarkSheet(sections),
		"evidence": evidenceSheet(sections)} {
		for _, g := range sh.Groups {
			for _, l := range g {
				got[name] = append(got[name], l.Cells)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// TestTypicalShares checks that the dots of the evenness chart are those of a trial in the middle, whatever the order
// of the trials.
func TestTypicalShares(t *testing.T) {
	var all []model.Shares
	for _, connections := range [][2]uint64{{10, 30}, {20, 20}, {15, 25}, {0, 0}} {
		if s, ok := model.NewShares([]results.Backend{{Connections: connections[0]},
			{Connections: connections[1]}}); ok {
			all = append(all, s)
		}
	}
	if diff := cmp.Diff([]float64{0.75, 1.25}, model.Typical(all)); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
}
