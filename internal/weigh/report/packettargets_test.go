// SPDX-License-Identifier: Apache-2.0

package report

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// packetTrial returns a trial with the cost of one kind of packet, net of an empty program.
func packetTrial(subject string, flows int, net float64, params map[string]any) results.Trial {
	t := trial(subject, map[string]float64{results.NsPerPacket: net + 40, results.NsNetOfEmpty: net})
	t.Load = "packets"
	t.Params = map[string]any{"hook": "xdp", "flows": flows}
	if strings.HasPrefix(subject, model.OwnPrefix) {
		maps.Copy(t.Params, map[string]any{"packets": "known", "scheduler": "maglev", "family": "ipv4"})
	}
	maps.Copy(t.Params, params)
	return t
}

func with(name, value string) map[string]any { return map[string]any{name: value} }

// opens returns the parameters of packets of new flows with a scheduler.
func opens(scheduler string) map[string]any {
	return map[string]any{"scheduler": scheduler, "packets": "new"}
}

// TestTargets checks the verdict on the targets.
func TestTargets(t *testing.T) {
	const l2dsr, ipip, nat, fullnat = "jeoul-l2dsr-xdp", "jeoul-ipip-xdp", "jeoul-nat-xdp", "jeoul-fullnat-xdp"
	tests := []struct {
		name   string
		trials []results.Trial
		held   []string
		missed []string
	}{
		{name: "exactly", trials: []results.Trial{packetTrial(l2dsr, 1, 35, nil)},
			held: []string{"l2dsr ≤ 35 ns (35.0)"}},
		{name: "hardly missed", trials: []results.Trial{packetTrial(l2dsr, 1, 35.1, nil)},
			missed: []string{"l2dsr ≤ 35 ns (35.1)"}},
		{name: "the worst counts", trials: []results.Trial{packetTrial(nat, 1, 40, nil),
			packetTrial(nat, 1, 61, with("family", "ipv6"))},
			missed: []string{"nat ≤ 60 ns (40.0–61.0)"}},
		{name: "replies are apart", trials: []results.Trial{packetTrial(nat, 1, 40, with("direction", "request")),
			packetTrial(nat, 1, 90, with("direction", "reply"))},
			held: []string{"nat ≤ 60 ns (40.0)"}, missed: []string{"nat replies ≤ 60 ns (90.0)"}},
		{name: "a flow table, new flows and comparisons are not meant", trials: []results.Trial{
			packetTrial(l2dsr, 1, 20, nil), packetTrial(l2dsr, 1, 30, with("scheduler", "rr")),
			packetTrial(l2dsr, 1, 251, opens("rr")),
			packetTrial(l2dsr, 1, 98, with("packets", "new")),
			packetTrial(l2dsr, 1, 97, with("configured", "all modes"))},
			held:   []string{"l2dsr ≤ 35 ns (20.0)", "l2dsr rr known with 1 flow ≤ 60 ns (30.0)"},
			missed: []string{"l2dsr maglev new flows ≤ 1.1 × known (4.90)", "l2dsr rr new flows ≤ 250 ns (251.0)"}},
		{name: "new flows of a hash", trials: []results.Trial{
			packetTrial(nat, 1, 20, with("scheduler", "sh")), packetTrial(nat, 64, 30, with("scheduler", "sh")),
			packetTrial(nat, 1, 21, opens("sh")), packetTrial(nat, 64, 33, opens("sh")),
			packetTrial(nat, 64, 90, opens("fo"))},
			held: []string{"nat ≤ 60 ns (20.0)", "nat with 64 flows ≤ 1.5 × one flow (1.50)",
				"nat sh new flows ≤ 1.1 × known (1.05–1.10)"}},
		{name: "many remembered flows", trials: []results.Trial{
			packetTrial(l2dsr, 1, 61, with("scheduler", "lc")), packetTrial(l2dsr, 64, 250, with("scheduler", "lc")),
			packetTrial(l2dsr, 64, 250, opens("lc")),
			packetTrial(l2dsr, 64, 300, opens("random2"))},
			held:   []string{"l2dsr lc new flows ≤ 250 ns (250.0)", "l2dsr lc known with 64 flows ≤ 250 ns (250.0)"},
			missed: []string{"l2dsr lc known with 1 flow ≤ 60 ns (61.0)"}},
		{name: "a transition is no target", trials: []results.Trial{packetTrial(l2dsr, 1, 99, with("change", "pinned")),
			packetTrial(l2dsr, 64, 99, with("change", "unmoved"))}},
		{name: "growth", trials: []results.Trial{packetTrial(l2dsr, 1, 20, nil), packetTrial(l2dsr, 1024, 30, nil),
			packetTrial(nat, 1, 20, nil), packetTrial(nat, 1024, 31, nil)},
			held: []string{"l2dsr ≤ 35 ns (20.0)", "nat ≤ 60 ns (20.0)",
				"l2dsr with 1,024 flows ≤ 1.5 × one flow (1.50)"},
			missed: []string{"nat with 1,024 flows ≤ 1.5 × one flow (1.55)"}},
		{name: "full NAT may grow", trials: []results.Trial{packetTrial(fullnat, 1, 80, nil),
			packetTrial(fullnat, 1024, 500, nil)},
			held: []string{"fullnat ≤ 90 ns (80.0)"}},
		{name: "nothing to divide by", trials: []results.Trial{packetTrial(l2dsr, 1, 0, nil),
			packetTrial(l2dsr, 1024, 30, nil)},
			held: []string{"l2dsr ≤ 35 ns (0.0)"}},
		{name: "tunnels net of adjusting", trials: []results.Trial{packetTrial("adjust", 1, 20, nil),
			packetTrial(ipip, 1, 65, with("outer", "ipv4"))},
			missed: []string{"ipip ≤ 60 ns (65.0, 45.0 net of adjust)"}},
		{name: "invalid trials do not count", trials: []results.Trial{packetTrial(nat, 1, 40, nil),
			invalid(packetTrial(l2dsr, 1, 20, nil), "dropped")},
			held: []string{"nat ≤ 60 ns (40.0)"}},
		{name: "no target without one flow", trials: []results.Trial{packetTrial(l2dsr, 1024, 20, nil)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			trials := append([]results.Trial{packetTrial("empty", 1, 0, nil)}, test.trials...)
			var want []string
			if test.held != nil {
				want = append(want, "Targets that hold in XDP: "+strings.Join(test.held, "; ")+".")
			}
			if test.missed != nil {
				want = append(want, "Targets that are missed in XDP: "+strings.Join(test.missed, "; ")+".")
			}
			got := slices.DeleteFunc(model.Verdict(aggregate(trials, "")[0]), func(sentence string) bool {
				return !strings.HasPrefix(sentence, "Targets that ")
			})
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

// TestHookSheet: a row holds a kind of packet with every number of flows.
func TestHookSheet(t *testing.T) {
	s := aggregate([]results.Trial{
		packetTrial("empty", 1, 0, nil), packetTrial("empty", 64, 0, nil),
		packetTrial("jeoul-nat-xdp", 1, 40, nil), packetTrial("jeoul-nat-xdp", 64, 50, nil),
		packetTrial("jeoul-nat-xdp", 64, 70, with("family", "ipv6")),
	}, "")[0]
	sh := s.Kind.Sheets(s)[0]
	if sh.Title != "What a packet costs in XDP" || sh.Secondary {
		t.Errorf("the first table is %q", sh.Title)
	}
	var rows []string
	for _, l := range sh.Groups[0] {
		rows = append(rows, strings.Join(l.Cells, "|"))
	}
	want := []string{"empty|–|40.0|0.0|0.0|–", "jeoul-nat-xdp|IPv4|80.0|40.0|50.0|1.25",
		"jeoul-nat-xdp|IPv6|110.0|–|70.0|–"}
	if strings.Join(rows, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
}
