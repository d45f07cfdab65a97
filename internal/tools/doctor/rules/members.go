// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// farBehind limits the flows that a member has not acknowledged: the number of flows that begin in a tenth of a second
// at a very high rate.
const farBehind = 10_000

// checkMembers reports other balancers that are not reached, do not receive flows or receive them too slowly, have the
// same name or another version, or balance differently. It uses the status of Jeoul's balancer on this host.
func checkMembers(before, s *ops.Status) (findings []Finding) {
	if s.Members == nil {
		return nil
	}
	seen := map[string][]Figure{}
	note := func(kind string, f Figure) { seen[kind] = append(seen[kind], f) }
	if s.Members.Problem != "" {
		note(memberUnreached, Figure{Name: "members", On: s.Members.Name, Value: float64(len(s.Members.Members)),
			Unit: "members", Note: s.Members.Problem})
	}
	for i := range s.Members.Members {
		m := &s.Members.Members[i]
		name := cmp.Or(m.Name, m.Address)
		switch {
		case m.SameName != "":
			note(memberNames, Figure{Name: "name " + m.SameName, On: name, Value: 2, Unit: "members", Note: m.Reason})
		case m.State == ops.MemberFailed || m.State == ops.MemberUnknown:
			note(memberUnreached, Figure{Name: "state " + string(m.State), On: name, Value: 1, Unit: "member",
				Note: cmp.Or(m.Reason, "it does not answer any more")})
		case m.State == ops.MemberAlive:
			checkMember(before, s, m, note)
		}
		for _, d := range m.Differs {
			if d.Lasting {
				note(memberDiffers, Figure{Name: "service " + d.Service, On: name, Value: 1, Unit: "service",
					Note: cmp.Or(d.Detail, "its table is another")})
			}
		}
	}
	for _, of := range []struct{ kind, title string }{
		{memberNames, "Member %s has the name of another one"},
		{memberUnreached, "Member %s is not reached"},
		{memberUntold, "Member %s is sent no flows"},
		{memberBehind, "Member %s is behind on flows"},
		{memberVersion, "Member %s has another version"},
		{memberDiffers, "Member %s sends new flows to other backends"},
	} {
		if figures := seen[of.kind]; len(figures) > 0 {
			findings = append(findings, finding(of.kind, fmt.Sprintf(of.title, figures[0].On)+": "+figures[0].Note,
				bounded(figures)...))
		}
	}
	return findings
}

// checkMember reports the faults of a reachable member.
func checkMember(before, s *ops.Status, m *ops.Member, note func(kind string, f Figure)) {
	if m.Version != s.Version || m.Reason != "" {
		note(memberVersion, Figure{Name: "version " + m.Version, On: m.Name, Value: 1, Unit: "member",
			Note: cmp.Or(m.Reason, fmt.Sprintf("it has %s, and this one %s", m.Version, s.Version))})
	}
	f, was := m.Flows, flowsBefore(before, m)
	switch {
	case f == nil:
	case !f.Sending && f.Reason != "":
		note(memberUntold, Figure{Name: "told of flows", On: m.Name, Value: 0, Unit: "connections", Note: f.Reason})
	case was == nil:
	case f.Overflows > was.Overflows:
		note(memberBehind, Figure{Name: "overflows", On: m.Name, Value: float64(f.Overflows - was.Overflows),
			Unit: "overflows", Note: "its queue was full, and all flows are sent again"})
	case was.Behind > farBehind && f.Behind >= was.Behind:
		note(memberBehind, Figure{Name: "flows behind", On: m.Name, Value: float64(f.Behind), Unit: "flows",
			Note: fmt.Sprintf("%d flows that it has not looked at, and %d before", f.Behind, was.Behind)})
	}
}

// flowsBefore returns the earlier count of flows handed over with a member, or nil if it is not known.
func flowsBefore(before *ops.Status, m *ops.Member) *ops.MemberFlows {
	if before.Members == nil {
		return nil
	}
	for i := range before.Members.Members {
		if was := &before.Members.Members[i]; was.Name == m.Name && was.Address == m.Address {
			return was.Flows
		}
	}
	return nil
}
