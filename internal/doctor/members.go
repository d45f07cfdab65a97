// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"

	"github.com/jeoul/jeoul/internal/ops"
)

// judgeMembers tells of other balancers that are not reached, are told of no flows, or balance in another way, by what our own knows.
func judgeMembers(s *ops.Status) (findings []Finding) {
	if s.Members == nil {
		return nil
	}
	var unreached, untold, differing []Figure
	if s.Members.Problem != "" {
		unreached = append(unreached, Figure{Name: "members", On: s.Members.Name, Value: float64(len(s.Members.Members)), Unit: "members", Note: s.Members.Problem})
	}
	for i := range s.Members.Members {
		m := &s.Members.Members[i]
		name := cmp.Or(m.Name, m.Address)
		switch {
		case m.State == ops.MemberFailed || m.State == ops.MemberUnknown:
			unreached = append(unreached, Figure{Name: "state " + string(m.State), On: name, Value: 1, Unit: "member", Note: cmp.Or(m.Reason, "it does not answer any more")})
		case m.State == ops.MemberAlive && m.Flows != nil && !m.Flows.Telling && m.Flows.Reason != "":
			untold = append(untold, Figure{Name: "told of flows", On: name, Value: 0, Unit: "connections", Note: m.Flows.Reason})
		}
		for _, d := range m.Differs {
			if d.Lasting {
				differing = append(differing, Figure{Name: "service " + d.Service, On: name, Value: 1, Unit: "service", Note: cmp.Or(d.Detail, "its table is another")})
			}
		}
	}
	for _, of := range []struct {
		kind, title string
		figures     []Figure
	}{
		{memberUnreached, "Member %s is not reached", unreached},
		{memberUntold, "Member %s is told of no flows", untold},
		{memberDiffers, "Member %s sends new flows to other backends", differing},
	} {
		if len(of.figures) > 0 {
			findings = append(findings, finding(of.kind, fmt.Sprintf(of.title, of.figures[0].On)+": "+of.figures[0].Note, bounded(of.figures)...))
		}
	}
	return findings
}
