// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

func TestParse(t *testing.T) {
	got, problems := Parse(map[string]string{
		Addresses: "192.0.2.10, 2001:db8::10", Pool: "public", Mode: "ipip", Backends: "nodes", Scheduler: "wlc",
		Check:   "none",
		OnEmpty: "withdraw", OnDown: "reset", SlowStart: " 30s ", "example.com/other": "x",
	})
	want := Settings{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")},
		Pool: "public",
		Mode: lb.IPIP, Backends: Nodes, Scheduler: lb.WeightedLeastConnections, Check: CheckNone,
		OnEmpty: lb.WithdrawVIP,
		OnDown:  lb.ResetFlows, SlowStart: 30 * time.Second}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" || problems != nil {
		t.Errorf("problems %v, wishes (-want +got):\n%s", problems, diff)
	}
}

// TestParseRefuses: a value that cannot be is named with its field, and leaves the other annotations as they are.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{Mode, "dscp", `"dscp" is not one of l2dsr, ipip, gue, nat, fullnat`},
		{Mode, "", "empty; give it a value, or remove the annotation"},
		{Mode, strings.Repeat("x", 256<<10), "262144 bytes are more than the 1024 that a value may have"},
		{Backends, "pod", `"pod" is not one of nodes, pods`},
		{Scheduler, "fo", `"fo" is not one of rr, wrr, lc, wlc, sh, maglev, random2`},
		{Check, "http", `"http" is not one of auto, none, tcp, tcp-vip, icmp`},
		{OnEmpty, "drop", `"drop" is not one of keep, withdraw`},
		{OnDown, "no\nway", `"no\nway" is not one of keep, reset, move`},
		{SlowStart, "30", `"30" is not a length of time from 1s to 1h0m0s; write one such as 30s`},
		{SlowStart, "2h", `"2h" is not a length of time from 1s to 1h0m0s; write one such as 30s`},
		{Addresses, "192.0.2.10,192.0.2.11", "more than one address of a family; a Service has at most one of each"},
		{Addresses, "192.0.2.300",
			`"192.0.2.300" is not an IP address; write one such as 192.0.2.10, or 192.0.2.10,2001:db8::10`},
		{Addresses, "fe80::1%eth0",
			`"fe80::1%eth0" is not an IP address; write one such as 192.0.2.10, or 192.0.2.10,2001:db8::10`},
		{Addresses, "::ffff:192.0.2.1", "::ffff:192.0.2.1 is an IPv4-mapped IPv6 address; write 192.0.2.1"},
		{Addresses, "127.0.0.1", "127.0.0.1 is not a unicast address that a router would send on; use another"},
		{Addresses, "224.0.0.1", "224.0.0.1 is not a unicast address that a router would send on; use another"},
		{Prefix + "shceduler", "rr", "unknown annotation; did you mean jeoul.io/scheduler?"},
		{Prefix + "x", "1", "unknown annotation; use one of " + strings.Join(Names(), ", ")},
	} {
		got, problems := Parse(map[string]string{c.name: c.value, Pool: "public"})
		want := []Problem{{"metadata.annotations[" + c.name + "]", c.want}}
		if diff := cmp.Diff(want, problems); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if diff := cmp.Diff(Settings{Pool: "public"}, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s took a bad value (-want +got):\n%s", c.name, diff)
		}
	}
}

// FuzzParse: no annotation makes the parser fail otherwise than by a short problem, and a bad one asks for nothing.
func FuzzParse(f *testing.F) {
	for _, name := range append(Names(), Prefix+"other", "example.com/mode") {
		for _, value := range []string{"", "l2dsr", "192.0.2.10,2001:db8::10", "30s", "pods", "\x00",
			strings.Repeat("9", 2000)} {
			f.Add(name, value)
		}
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		settings, problems := Parse(map[string]string{name: value})
		if !strings.HasPrefix(name, Prefix) &&
			(len(problems) > 0 || !cmp.Equal(settings, Settings{}, cmpopts.EquateComparable(netip.Addr{}))) {
			t.Fatalf("an annotation of another prefix is read: %v %v", settings, problems)
		}
		if len(problems) > 1 {
			t.Fatalf("%d problems of one annotation", len(problems))
		}
		for _, p := range problems {
			if len(p.Message) > 1024 {
				t.Fatalf("a message of %d bytes does not fit into an Event", len(p.Message))
			}
			if !cmp.Equal(settings, Settings{}, cmpopts.EquateComparable(netip.Addr{})) {
				t.Fatalf("a bad value was taken: %v", settings)
			}
		}
	})
}
