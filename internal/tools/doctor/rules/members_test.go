// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestCheckMembers: there are findings about members that need attention, and none about those that are well or have
// left.
func TestCheckMembers(t *testing.T) {
	alive := ops.Member{Name: "lb2", State: ops.MemberAlive, Flows: &ops.MemberFlows{Sending: true, Receiving: true}}
	unsent, differs := alive, alive
	unsent.Flows = &ops.MemberFlows{Reason: "dial tcp 192.0.2.11:7947: i/o timeout"}
	differs.Differs = []ops.Difference{{Service: "web", Lasting: true}, {Service: "tls"}}
	slow, stuck, overflowing, other := alive, alive, alive, alive
	slow.Flows = &ops.MemberFlows{Sending: true, Receiving: true, Behind: farBehind}
	stuck.Flows = &ops.MemberFlows{Sending: true, Receiving: true, Behind: farBehind + 2}
	overflowing.Flows = &ops.MemberFlows{Sending: true, Receiving: true, Overflows: 1}
	other.Version = "1.2.4"
	// The earlier status is of a member that is far behind.
	before := alive
	before.Flows = &ops.MemberFlows{Sending: true, Receiving: true, Behind: farBehind + 1}
	for name, test := range map[string]struct {
		members *ops.Members
		want    []string
	}{
		"catches up": {&ops.Members{Members: []ops.Member{slow}}, nil},
		"stuck":      {&ops.Members{Members: []ops.Member{stuck}}, []string{memberBehind}},
		"overflows":  {&ops.Members{Members: []ops.Member{overflowing}}, []string{memberBehind}},
		"version":    {&ops.Members{Members: []ops.Member{other}}, []string{memberVersion}},
		"one name": {&ops.Members{Members: []ops.Member{alive,
			{Address: "192.0.2.12:7946", State: ops.MemberUnknown, SameName: "lb2", Reason: "it has the name lb2"}}},
			[]string{memberNames}},
		"no members": {nil, nil},
		"well":       {&ops.Members{Members: []ops.Member{alive, {Name: "lb3", State: ops.MemberLeft}}}, nil},
		"failed": {&ops.Members{Members: []ops.Member{{Name: "lb2", State: ops.MemberFailed}}},
			[]string{memberUnreached}},
		"another key": {&ops.Members{Members: []ops.Member{{Address: "192.0.2.11:7946", State: ops.MemberUnknown,
			Reason: "it has another key"}}}, []string{memberUnreached}},
		"cannot receive": {&ops.Members{Name: "lb1", Problem: "cannot listen", Members: []ops.Member{}},
			[]string{memberUnreached}},
		"sent no flows":  {&ops.Members{Members: []ops.Member{unsent}}, []string{memberUntold}},
		"another table":  {&ops.Members{Members: []ops.Member{differs}}, []string{memberDiffers}},
		"several faults": {&ops.Members{Members: []ops.Member{unsent, differs}}, []string{memberUntold, memberDiffers}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range checkMembers(&ops.Status{Members: &ops.Members{Members: []ops.Member{before}}},
				&ops.Status{Members: test.members}) {
				got = append(got, f.Kind)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("found %v, want %v", got, test.want)
			}
		})
	}
}
