// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// The addresses of this host, of another one, and of VIPs.
var (
	here4      = netip.MustParseAddr("198.18.0.1")
	there4     = netip.MustParseAddr("198.18.0.2")
	vip4, vip6 = netip.MustParseAddr("198.18.0.100"), netip.MustParseAddr("2001:2::100")
)

// TestCheckVRRP: two active balancers, another group with the same VRID, and packets that arrive at a backup are found.
// Packets that a change of the role explains are not.
func TestCheckVRRP(t *testing.T) {
	begin := time.Unix(1700000000, 0)
	peer := &ops.VRRPPeer{Address: there4, Priority: 100}
	status := func(v *ops.VRRP, packets uint64) *ops.Status {
		backends := []ops.Backend{{Name: "web01", Packets: packets / 2}, {Name: "web02", Packets: packets - packets/2}}
		return &ops.Status{VRRP: v, Services: []ops.Service{{Name: "web", VIP: vip4, Backends: backends}}}
	}
	left := func(v *ops.VRRP, packets uint64) *ops.Status {
		s := status(v, 5000)
		s.Outcomes = []ops.Outcome{{Name: "passed_orphaned", Packets: 9}, {Name: "passed_backup", Packets: packets}}
		return s
	}
	active := &ops.VRRP{ID: 51, State: "active", Since: begin, Peer: peer}
	both := &ops.VRRP{ID: 51, State: "active", Since: begin, Peer: peer, Both: true}
	backup := &ops.VRRP{ID: 51, State: "backup", Since: begin, Peer: peer}
	just := &ops.VRRP{ID: 51, State: "backup", Since: begin.Add(time.Second), Peer: peer}
	foreign := &ops.VRRP{ID: 51, State: "active", Since: begin,
		Foreign: []ops.VRRPForeign{{Address: there4, VIPs: []netip.Addr{vip4}}}}
	for name, test := range map[string]struct {
		before, after *ops.Status
		want          []string
	}{
		"no VRRP":         {status(nil, 0), status(nil, 1000), nil},
		"active":          {status(active, 0), status(active, 1000), nil},
		"two active":      {status(both, 0), status(both, 1000), []string{vrrpTwoActive}},
		"two for a while": {status(both, 0), status(active, 1000), nil},
		"foreign":         {status(active, 0), status(foreign, 1000), []string{vrrpForeign}},
		"backup":          {status(backup, 5000), status(backup, 5001), nil},
		"strays":          {status(backup, 5000), status(backup, 6000), []string{vipAtBackup}},
		"strays, left":    {left(backup, 10), left(backup, 1010), []string{vipAtBackup}},
		"few, left":       {left(backup, 1010), left(backup, 1011), nil},
		"just backup":     {status(active, 5000), status(just, 6000), nil},
		"backup again":    {status(backup, 5000), status(just, 6000), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range checkVRRP(test.before, test.after) {
				got = append(got, f.Kind)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("found %v, want %v", got, test.want)
			}
		})
	}
}

// TestStaleVIP: a neighbour entry for a VIP is found if its MAC address differs from that of the host that answers, as
// on a client or router that has missed the announcements.
func TestStaleVIP(t *testing.T) {
	const stale, answers = "02:00:00:00:00:02", "02:00:00:00:00:01"
	for known, want := range map[string][]string{stale: {wrongMAC}, answers: nil, "": nil} {
		claim := evidence.Claim{Address: vip4, Interface: "eth0", VIP: true, Known: known, MACs: []string{answers}}
		e := &evidence.Evidence{Wire: evidence.Wire{Claims: []evidence.Claim{claim}}}
		var got []string
		for _, f := range checkWire(e) {
			got = append(got, f.Kind)
		}
		if !slices.Equal(got, want) {
			t.Errorf("known at %q: found %v, want %v", known, got, want)
		}
	}
	r := &evidence.Reading{Neighbours: []evidence.Neighbour{
		{Address: vip4, Interface: 2, State: "STALE", MAC: stale},
		{Address: vip4, Interface: 3, State: "STALE", MAC: answers},
		{Address: vip6, Interface: 2, State: "FAILED", MAC: stale},
	}}
	if got := r.Known(vip4, 2) + r.Known(vip6, 2) + r.Known(here4, 2); got != stale {
		t.Errorf("the neighbour table has %q, want %q for the first VIP alone", got, stale)
	}
}
