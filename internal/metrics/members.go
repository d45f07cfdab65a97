// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"

	dto "github.com/prometheus/client_model/go"

	"github.com/jeoul/jeoul/internal/ops"
)

// The families of members are there where the configuration has some.
var (
	membersRefused = of[*ops.Members]{family{"jeoul_members_refused_total", "Packets and connections to the members' port that were refused: of addresses that are no peer's, or by another key.", counter, nil},
		always(func(m *ops.Members) float64 { return float64(m.Refused) })}
	memberFamilies = []of[*ops.Member]{
		{family{"jeoul_member_up", "1 where the other balancer is reached.", gauge, []string{"member"}},
			always(func(m *ops.Member) float64 { return truth(m.State == ops.MemberAlive) })},
		{family{"jeoul_member_services_differing", "Services whose new flows the other balancer sends to other backends, for longer than a change takes.", gauge, []string{"member"}},
			always(func(m *ops.Member) float64 { return float64(lasting(m)) })},
	}
)

func lasting(m *ops.Member) (n int) {
	for _, d := range m.Differs {
		if d.Lasting {
			n++
		}
	}
	return n
}

// members makes the families of the other balancers. One that was never heard has no name yet.
func members(all *ops.Members) []*dto.MetricFamily {
	if all == nil {
		return nil
	}
	made := series([]of[*ops.Members]{membersRefused}, []*ops.Members{all}, func(*ops.Members) []string { return nil })
	return append(made, series(memberFamilies, pointers(all.Members), func(m *ops.Member) []string { return []string{cmp.Or(m.Name, m.Address)} })...)
}
