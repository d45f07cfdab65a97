// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

type getMembersCmd struct {
	getFlags
	Names  []string          `arg:"" optional:"" name:"member" help:"Members by name or address; all where none is named."`
	States []ops.MemberState `name:"state" enum:"${memberStates}" placeholder:"STATE" help:"Only members in these states: ${enum}."`
}

// Run prints members.
func (c *getMembersCmd) Run(ctx context.Context) error {
	return show(ctx, os.Stdout, c.getFlags, memberKind, query[ops.Member]{c.Names, func(m ops.Member) bool {
		return len(c.States) == 0 || slices.Contains(c.States, m.State)
	}})
}

var memberKind = kind[ops.Member]{
	noun: "member", list: func(client *api.Client, ctx context.Context, _ ...string) ([]ops.Member, error) {
		all, err := client.Members(ctx)
		return all.Members, err
	},
	name:    func(m ops.Member) string { return cmp.Or(m.Name, m.Address) },
	stable:  stableMember,
	matches: ops.Member.Matches,
	columns: []getColumn[ops.Member]{
		{name: "name", value: func(m ops.Member) any { return cmdkit.OrDash(m.Name) }},
		{name: "address", value: func(m ops.Member) any { return m.Address }},
		{name: "state", showsRemoval: true, value: func(m ops.Member) any { return m.State }},
		{name: "since", value: func(m ops.Member) any { return cmdkit.TimeText(m.Since) }},
		{name: "version", value: func(m ops.Member) any { return cmdkit.OrDash(m.Version) }},
		{name: "differs", value: func(m ops.Member) any { return cmdkit.OrDash(differsText(m)) }},
		{name: "configuration", wide: true, value: func(m ops.Member) any { return cmdkit.OrDash(m.Configuration) }},
		{name: "keys", wide: true, value: func(m ops.Member) any { return cmdkit.OrDash(strings.Join(m.Keys, ",")) }},
		{name: "drained", wide: true, value: func(m ops.Member) any { return m.Drained }},
		{name: "told", wide: true, value: func(m ops.Member) any {
			return ofFlows(m, func(f *ops.MemberFlows) uint64 { return f.Sent })
		}},
		{name: "taken", wide: true, value: func(m ops.Member) any {
			return ofFlows(m, func(f *ops.MemberFlows) uint64 { return f.Added })
		}},
		{name: "refused", wide: true, value: func(m ops.Member) any { return cmdkit.OrDash(refusedText(m)) }},
		{name: "whole", wide: true, value: func(m ops.Member) any { return cmdkit.OrDash(wholeText(m)) }},
		{name: "behind", wide: true, value: func(m ops.Member) any {
			return ofFlows(m, func(f *ops.MemberFlows) uint64 { return f.Behind })
		}},
		{name: "reason", value: func(m ops.Member) any { return cmdkit.OrDash(m.Reason) }},
	},
}

// stableMember leaves out the fields that change with each flow.
func stableMember(m ops.Member) ops.Member {
	if f := m.Flows; f != nil {
		m.Flows = &ops.MemberFlows{Sending: f.Sending, Reason: f.Reason, Receiving: f.Receiving, Synced: f.Synced}
	}
	return m
}

// ofFlows returns a count of handed-over flows; a dash where none are handed over.
func ofFlows(m ops.Member, count func(*ops.MemberFlows) uint64) any {
	if m.Flows == nil {
		return "-"
	}
	return count(m.Flows)
}

// refusedText counts the refused flows of a member, by reason.
func refusedText(m ops.Member) string {
	if m.Flows == nil {
		return ""
	}
	var counts []string
	for _, reason := range slices.Sorted(maps.Keys(m.Flows.Refused)) {
		counts = append(counts, fmt.Sprintf("%s: %d", reason, m.Flows.Refused[reason]))
	}
	return strings.Join(counts, ", ")
}

// wholeText reports whether a member has sent all flows that it had when it connected.
func wholeText(m ops.Member) string {
	switch {
	case m.Flows == nil:
		return ""
	case m.Flows.Receiving && m.Flows.Synced:
		return "yes"
	}
	return "no"
}
