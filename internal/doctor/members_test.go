// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/ops"
)

// TestJudgeMembers: what a person should look at, and nothing of members that are well or have left.
func TestJudgeMembers(t *testing.T) {
	alive := ops.Member{Name: "lb2", State: ops.MemberAlive, Flows: &ops.MemberFlows{Telling: true, Heard: true}}
	untold, differs := alive, alive
	untold.Flows = &ops.MemberFlows{Reason: "dial tcp 192.0.2.11:7947: i/o timeout"}
	differs.Differs = []ops.Difference{{Service: "web", Lasting: true}, {Service: "tls"}}
	for name, test := range map[string]struct {
		members *ops.Members
		want    []string
	}{
		"no members":     {nil, nil},
		"well":           {&ops.Members{Members: []ops.Member{alive, {Name: "lb3", State: ops.MemberLeft}}}, nil},
		"failed":         {&ops.Members{Members: []ops.Member{{Name: "lb2", State: ops.MemberFailed}}}, []string{memberUnreached}},
		"another key":    {&ops.Members{Members: []ops.Member{{Address: "192.0.2.11:7946", State: ops.MemberUnknown, Reason: "it has another key"}}}, []string{memberUnreached}},
		"does not hear":  {&ops.Members{Name: "lb1", Problem: "cannot listen", Members: []ops.Member{}}, []string{memberUnreached}},
		"told no flows":  {&ops.Members{Members: []ops.Member{untold}}, []string{memberUntold}},
		"another table":  {&ops.Members{Members: []ops.Member{differs}}, []string{memberDiffers}},
		"several faults": {&ops.Members{Members: []ops.Member{untold, differs}}, []string{memberUntold, memberDiffers}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range judgeMembers(&ops.Status{Members: test.members}) {
				got = append(got, f.Kind)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("found %v, want %v", got, test.want)
			}
		})
	}
}
