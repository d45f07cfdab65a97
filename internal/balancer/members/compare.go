// SPDX-License-Identifier: Apache-2.0

package members

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// compare finds services that other members balance differently, and logs a difference that lasts, and its end.
func (m *Membership) compare(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.nodes {
		if m.isPeer(n) {
			m.compareWith(n, now)
		}
	}
}

// compareWith compares the own tables with a member's; if the member's are no longer known, the differences stay.
func (m *Membership) compareWith(n *node, now time.Time) {
	if n.state == ops.MemberLeft {
		clear(n.differences)
	}
	if n.state != ops.MemberAlive || n.lastState == nil {
		return
	}
	present := map[string]bool{}
	for _, d := range differences(m.own.Tables, n.lastState) {
		present[d.service] = true
		status := n.differences[d.service]
		if status == nil {
			status = &differing{since: now}
			n.differences[d.service] = status
		}
		status.difference = d
		if !status.warned && now.Sub(status.since) >= m.opt.tolerance {
			status.warned = true
			m.opt.Log.Warn(fmt.Sprintf("member %s sends new flows of service %s to other backends%s", n.name, d.name,
				orNone(": ", d.detail)), logAttrs(d.name)...)
		}
	}
	for service, status := range n.differences {
		if present[service] {
			continue
		}
		delete(n.differences, service)
		if status.warned {
			m.opt.Log.Info(fmt.Sprintf("member %s sends new flows of service %s to the same backends again", n.name,
				status.name), logAttrs(status.name)...)
		}
	}
}

func orNone(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// Status returns the state of the members. It may be called from any goroutine.
func (m *Membership) Status() ops.Members {
	m.mu.Lock()
	defer m.mu.Unlock()
	status := ops.Members{Name: m.opt.Name, Address: m.opt.Listen.String(), Configuration: m.own.Configuration,
		Keys: m.Keys().fingerprints(), Problem: m.problem,
		Refused: m.logFilter.count(), Members: []ops.Member{}}
	received := map[netip.Addr]bool{}
	for _, n := range m.nodes {
		if !m.isPeer(n) {
			continue
		}
		received[n.address.Addr()] = true
		status.Members = append(status.Members, m.member(n))
	}
	for peer, s := range m.unreached {
		if !received[peer] {
			status.Members = append(status.Members,
				ops.Member{Address: netip.AddrPortFrom(peer, m.opt.Listen.Port()).String(),
					State: ops.MemberUnknown, Since: s.since, Reason: s.reason, SameName: s.sameName})
		}
	}
	slices.SortFunc(status.Members, func(a, b ops.Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address))
	})
	return status
}

func (m *Membership) member(n *node) ops.Member {
	status := ops.Member{Name: n.name, Address: n.address.String(), State: n.state, Since: n.since,
		Version: n.greeting.Version, Reason: n.problem}
	if n.lastState != nil {
		status.Configuration, status.Keys, status.Ready, status.Drained = n.lastState.Configuration, n.lastState.Keys,
			n.lastState.Ready,
			n.lastState.Drained
	}
	for _, d := range n.differences {
		status.Differs = append(status.Differs, ops.Difference{Service: d.name, Detail: d.detail, Since: d.since,
			Lasting: d.warned})
	}
	slices.SortFunc(status.Differs, func(a, b ops.Difference) int { return cmp.Compare(a.Service, b.Service) })
	return status
}

// Problems returns the faults in a status that need a person's attention, a line each.
func Problems(s ops.Members) (problems []string) {
	if s.Problem != "" {
		problems = append(problems, s.Problem)
	}
	for _, one := range s.Members {
		name := cmp.Or(one.Name, "at "+one.Address)
		switch one.State {
		case ops.MemberFailed, ops.MemberUnknown:
			problems = append(problems, fmt.Sprintf("member %s is not reached%s", name, orNone(": ", one.Reason)))
		case ops.MemberAlive:
			if one.Reason != "" {
				problems = append(problems, fmt.Sprintf("member %s: %s", name, one.Reason))
			}
		}
		for _, d := range one.Differs {
			if d.Lasting {
				problems = append(problems, fmt.Sprintf("member %s sends new flows of service %s to other backends%s",
					name, d.Service, orNone(": ", d.Detail)))
			}
		}
	}
	return problems
}
