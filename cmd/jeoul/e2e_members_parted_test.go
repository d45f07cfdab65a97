// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// partitionTable is the table of a host's filter that drops everything from another member.
const partitionTable = "parted"

// TestMembersParted: two members do not reach each other, and a third reaches both, so that they stay members. Each
// notices that the other does not receive its messages and sends none, without an error of either's kernel. Once they
// reach each other, they have the connections that began during that time.
func TestMembersParted(t *testing.T) {
	t.Parallel()
	l, key, one, other, third := threeMembers(t)
	for _, m := range []*memberBalancer{one, other, third} {
		m.configureTurns(t, l, lb.HookTC, key)
		m.start(t)
		t.Cleanup(func() { stop(t, m.daemon) })
	}
	client := l.Clients[2]
	on := openThrough(t, client, l, one, other)
	reachesThird := func(flows int) {
		t.Helper()
		third.eventually(t, "the third has the flows, of whichever tells of them first", func(status *ops.Status) bool {
			of, both := handedFlows(status, one.host.Name)
			ofOther, bothOther := handedFlows(status, other.host.Name)
			return both && bothOther && of+ofOther >= uint64(flows)
		})
	}
	reachesThird(len(on))
	pairs := [][2]*memberBalancer{{one, other}, {other, one}}
	for _, pair := range pairs {
		runOn(t, pair[0].host,
			fmt.Sprintf("table ip %s { chain in { type filter hook input priority -10; ip saddr %s drop; }; }",
				partitionTable, pair[1].host.IPv4), "nft", "-f", "-")
	}
	begun := time.Now()
	for _, pair := range pairs {
		pair[0].within(t, 2*e2e.WaitLimit, "they notice that they are parted, and are members yet",
			func(status *ops.Status) bool {
				return slices.ContainsFunc(status.Members.Members, func(m ops.Member) bool {
					return m.Name == pair[1].host.Name && m.State == ops.MemberAlive && m.Flows != nil &&
						!m.Flows.Sending && !m.Flows.Receiving
				})
			})
	}
	t.Logf("noticed after %v", time.Since(begun))
	more := openSome(t, client, l)
	reachesThird(len(on) + len(more))
	for _, pair := range pairs {
		runOn(t, pair[0].host, "", "nft", "delete", "table", "ip", partitionTable)
	}
	begun = time.Now()
	other.within(t, 2*e2e.WaitLimit, "the second has the connections that began meanwhile",
		func(status *ops.Status) bool {
			flows, both := handedFlows(status, one.host.Name)
			return both && flows >= uint64(len(more))
		})
	t.Logf("mended after %v", time.Since(begun))
	sendBy(t, client, l.VIP4, other.host)
	maps.Copy(on, more)
	for connection, server := range on {
		if got, _, err := ask(connection); err != nil || got != server {
			t.Errorf("a connection to %s was answered by %q: %v", server, got, err)
		}
	}
}
