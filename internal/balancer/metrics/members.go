// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// The families of members are there where the configuration has some.
var (
	membersRefused = metric[*ops.Members]{family{"jeoul_members_refused_total",
		"Packets and connections to the members' port that were refused: of addresses that are no peer's, or by another key.", counter, nil},
		always(func(m *ops.Members) float64 { return float64(m.Refused) })}
	memberFamilies = []metric[*ops.Member]{
		{family{"jeoul_member_up", "1 where the other balancer is reached.", gauge, []string{"member"}},
			always(func(m *ops.Member) float64 { return boolValue(m.State == ops.MemberAlive) })},
		{family{"jeoul_member_services_differing",
			"Services whose new flows the other balancer sends to other backends, for longer than a change takes.",
			gauge, []string{"member"}},
			always(func(m *ops.Member) float64 { return float64(lasting(m)) })},
	}
)

// memberFlowFamilies are the families of the handover, of members that flows are handed over with.
var memberFlowFamilies = []metric[*ops.Member]{
	{family{"jeoul_member_flows_told_total", "Flows that were sent to the other balancer over the present connection.",
		counter, []string{"member"}},
		always(func(m *ops.Member) float64 { return float64(m.Flows.Sent) })},
	{family{"jeoul_member_flows_behind",
		"Flows that wait for the other balancer, or that it has not acknowledged.", gauge,
		[]string{"member"}},
		always(func(m *ops.Member) float64 { return float64(m.Flows.Behind) })},
	{family{"jeoul_member_flows_taken_total",
		"Flows of the other balancer that were taken over, and were not known, since it connected.", counter,
		[]string{"member"}},
		always(func(m *ops.Member) float64 { return float64(m.Flows.Added) })},
	{family{"jeoul_member_flows_refused_total", "Flows of the other balancer that were refused, since it connected.",
		counter, []string{"member"}},
		always(func(m *ops.Member) float64 { return float64(sumOf(m.Flows.Refused)) })},
	{family{"jeoul_member_flows_overflows_total",
		"How often the queue of flows to the other balancer was full, and all were sent again.", counter,
		[]string{"member"}},
		always(func(m *ops.Member) float64 { return float64(m.Flows.Overflows) })},
	{family{"jeoul_member_flows_connected", "1 where flows are sent to the other balancer and received from it.", gauge,
		[]string{"member"}},
		always(func(m *ops.Member) float64 { return boolValue(m.Flows.Sending && m.Flows.Receiving) })},
}

func sumOf(counts map[string]uint64) (sum uint64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

func lasting(m *ops.Member) (n int) {
	for _, d := range m.Differs {
		if d.Lasting {
			n++
		}
	}
	return n
}

// memberMetrics makes the families of the other balancers. One that was never heard has no name yet.
func memberMetrics(all *ops.Members) []metricFamily {
	if all == nil {
		return nil
	}
	families := series([]metric[*ops.Members]{membersRefused}, []*ops.Members{all}, func(*ops.Members) []string {
		return nil
	})
	name := func(m *ops.Member) []string { return []string{cmp.Or(m.Name, m.Address)} }
	families = append(families, series(memberFamilies, pointers(all.Members), name)...)
	handing := slices.DeleteFunc(pointers(all.Members), func(m *ops.Member) bool { return m.Flows == nil })
	return append(families, series(memberFlowFamilies, handing, name)...)
}
