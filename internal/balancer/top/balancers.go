// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// balancerRow is this balancer, or something that it shares its work with: a member, a router, an election.
type balancerRow struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// State is a word of the kind's own, since Since; Tone reports whether it is as it should be.
	State  string    `json:"state"`
	Since  time.Time `json:"since,omitzero"`
	Detail string    `json:"detail,omitempty"`
	tone   tone
}

// balancerRows lists them, this balancer first.
func balancerRows(s *ops.Status, now time.Time) []balancerRow {
	rows := []balancerRow{selfRow(s)}
	for i := range s.Interfaces {
		rows = append(rows, interfaceRow(&s.Interfaces[i]))
	}
	if s.VRRP != nil {
		rows = append(rows, vrrpRow(s.VRRP, now))
	}
	if s.BGP != nil {
		rows = append(rows, bgpRows(s.BGP)...)
	}
	if s.Members != nil {
		for i := range s.Members.Members {
			rows = append(rows, memberRow(&s.Members.Members[i]))
		}
	}
	if e := s.Proxy; e != nil {
		row := balancerRow{Kind: "proxy", Name: "HAProxy " + e.Version, State: "running", Since: e.Started, tone: good,
			Detail: cmp.Or(e.Problem, fmt.Sprintf("process %d, %d reloads, %d workers", e.PID, e.Reloads, e.Workers))}
		if e.PID == 0 {
			row.State, row.tone = "stopped", bad
		}
		rows = append(rows, row)
	}
	return append(rows, discoveryRows(s)...)
}

func selfRow(s *ops.Status) balancerRow {
	row := balancerRow{Kind: "balancer", Name: "this one", State: "running", Since: s.Started, tone: good,
		Detail: fmt.Sprintf("jeoul %s, process %d, generation %d, %s", s.Version, s.PID, s.Generation, s.Config)}
	if len(s.Problems) > 0 {
		row.State, row.tone, row.Detail = fmt.Sprintf("%d problems", len(s.Problems)), warn,
			strings.Join(s.Problems, "; ")
	}
	return row
}

func interfaceRow(nic *ops.Interface) balancerRow {
	row := balancerRow{Kind: "interface", Name: nic.Name, State: "up", tone: good, Detail: hookText(nic.Hook)}
	if !nic.Up {
		row.State, row.tone = "down", bad
	}
	if nic.Hook.Warning != "" {
		row.Detail, row.tone = nic.Hook.Warning, max(row.tone, warn)
	}
	return row
}

// hookText names the place in the kernel where packets are taken.
func hookText(h ops.Hook) string {
	text := string(h.Name)
	if h.Generic {
		text += " (generic)"
	}
	return strings.TrimSpace(text + ", driver " + orDash(h.Driver))
}

func vrrpRow(v *ops.VRRP, now time.Time) balancerRow {
	row := balancerRow{
		Kind:   "vrrp",
		Name:   fmt.Sprintf("%d on %s", v.ID, v.Interface),
		State:  v.State,
		Since:  v.Since,
		tone:   good,
		Detail: fmt.Sprintf("priority %d, %s", v.Priority, v.Why),
	}
	if v.Peer != nil {
		row.Detail += fmt.Sprintf(
			"; peer %s, priority %d, heard %s ago",
			v.Peer.Address,
			v.Peer.Priority,
			formatSince(v.Peer.Heard, now),
		)
	}
	if v.Drained != nil {
		row.Detail, row.tone = "drained by "+v.Drained.By, warn
	}
	if v.Both {
		row.Detail, row.tone = "another balancer is active, too: "+row.Detail, bad
	}
	if v.Problem != "" {
		row.Detail, row.tone = v.Problem, bad
	}
	return row
}

func bgpRows(b *ops.BGP) (rows []balancerRow) {
	speaker := balancerRow{
		Kind:   "bgp",
		Name:   "speaker",
		State:  "running",
		tone:   good,
		Detail: fmt.Sprintf("process %d", b.SpeakerPID),
	}
	switch {
	case b.SpeakerPID == 0 || b.Problem != "":
		speaker.State, speaker.Detail, speaker.tone = "failing", cmp.Or(b.Problem, "no process announces the VIPs"), bad
	case b.Drained != nil:
		speaker.State, speaker.Since, speaker.Detail, speaker.tone = "drained", b.Drained.At, "by "+b.Drained.By, warn
	}
	rows = append(rows, speaker)
	for i := range b.Peers {
		rows = append(rows, peerRow(&b.Peers[i]))
	}
	for _, v := range b.VIPs {
		row := balancerRow{Kind: "vip", Name: v.VIP.String(), State: "announced", tone: good}
		if !v.Announced {
			row.State, row.Detail, row.tone = "withdrawn", v.Reason, warn
		}
		rows = append(rows, row)
	}
	return rows
}

func peerRow(p *ops.BGPPeer) balancerRow {
	row := balancerRow{
		Kind:   "router",
		Name:   fmt.Sprintf("%s AS%d", p.Address, p.ASN),
		State:  p.State,
		Since:  p.Since,
		tone:   good,
		Detail: fmt.Sprintf("%d sessions", p.Sessions),
	}
	if !p.Established() {
		row.Detail, row.tone = p.Reason, bad
	}
	if f := p.BFD; f != nil {
		row.Detail += fmt.Sprintf("; BFD %s, lost after %.0f ms, %d failures", f.State, 1000*f.DetectionSeconds,
			f.Failures)
		if !f.Up() {
			row.tone = max(row.tone, warn)
		}
	}
	return row
}

func memberRow(m *ops.Member) balancerRow {
	row := balancerRow{
		Kind:   "member",
		Name:   cmp.Or(m.Name, m.Address),
		State:  string(m.State),
		Since:  m.Since,
		tone:   good,
		Detail: m.Reason,
	}
	switch {
	case m.State == ops.MemberFailed:
		row.tone = bad
	case m.State != ops.MemberAlive:
		row.tone = warn
	case m.Drained:
		row.State, row.tone = "drained", warn
	}
	var parts []string
	if m.Reason != "" {
		parts = append(parts, m.Reason)
	}
	if len(m.Differs) > 0 {
		parts, row.tone = append(parts, fmt.Sprintf("%d services differ", len(m.Differs))), max(row.tone, warn)
	}
	if f := m.Flows; f != nil {
		refused := uint64(0)
		for _, n := range f.Refused {
			refused += n
		}
		parts = append(
			parts,
			fmt.Sprintf(
				"flows: told %s, behind %s, taken %s, refused %s",
				formatCount(f.Sent),
				formatCount(f.Behind),
				formatCount(f.Added),
				formatCount(refused),
			),
		)
		if m.State == ops.MemberAlive && !(f.Sending && f.Receiving) {
			row.tone = max(row.tone, warn)
		}
	}
	row.Detail = strings.Join(parts, "; ")
	return row
}

func discoveryRows(s *ops.Status) (rows []balancerRow) {
	for i := range s.Services {
		for _, d := range s.Services[i].Discovered {
			row := balancerRow{
				Kind:   "discovery",
				Name:   s.Services[i].Name + ": " + d.From,
				State:  "current",
				Since:  d.Taken,
				tone:   good,
				Detail: fmt.Sprintf("%d backends", d.Backends),
			}
			if d.Problem != "" {
				row.State, row.Since, row.Detail, row.tone = "failing", d.Since, d.Problem, bad
			}
			if len(d.Refused) > 0 {
				count := max(d.RefusedCount, len(d.Refused)) // older daemons do not count them
				row.Detail += fmt.Sprintf("; %d refused: %s", count, d.Refused[0])
				row.tone = max(row.tone, warn)
			}
			rows = append(rows, row)
		}
	}
	return rows
}
