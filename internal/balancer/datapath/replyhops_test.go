// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// forgetNeighbour has the kernel know the MAC address of a client on the near link no more.
func forgetNeighbour(tb testing.TB, client netip.Addr) {
	tb.Helper()
	err := netlink.NeighSet(&netlink.Neigh{LinkIndex: nearLink.index, IP: client.AsSlice(), State: netlink.NUD_FAILED})
	if err != nil {
		tb.Fatal(err)
	}
}

// TestReplyHops: the next hop of replies is noted, a client or the router to it, for as long as replies go there. A
// neighbour whose MAC address the kernel does not know is noted only where it was known before, and a mere question
// notes nothing.
func TestReplyHops(t *testing.T) {
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		r := freshRig(t, hook)
		expect := func(what string, want ...lb.ReplyHop) {
			t.Helper()
			got, err := r.datapath.ReplyHops(2 * time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
				cmpopts.EquateEmpty(),
				cmpopts.SortSlices(func(a, b lb.ReplyHop) bool { return a.Address.Less(b.Address) })); diff != "" {
				t.Errorf("%s: next hops of replies (-want +got):\n%s", what, diff)
			}
		}
		for _, vip := range vips {
			client, router, unserved := clientOf(0, vip.Is6(), neighbours-3), gateway4,
				clientOf(0, vip.Is6(), neighbours+3)
			if vip.Is6() {
				router = gateway6
			}
			near := lb.ReplyHop{Interface: nearLink.index, Address: client}
			far := lb.ReplyHop{Interface: farLink.index, Address: router, Router: true}
			send := func(to netip.Addr, want uint32) {
				t.Helper()
				if action, _ := r.run(t, natReply(r.model, vip, false, to).build(t)); action != want {
					t.Errorf("%s: action %d, want %d", to, action, want)
				}
			}
			r.advance(t, time.Minute)
			expect("nothing was sent of late")
			answer, err := r.datapath.Explain(trace.Question{Source: natReply(r.model, vip, false, client).from,
				Destination: client, Protocol: lb.TCP,
				SourcePort: natReply(r.model, vip, false, client).sport, DestinationPort: 1234, Flags: []string{"ack"}})
			if err != nil || answer.Outcome != "returned" {
				t.Fatalf("%+v, %v", answer, err)
			}
			send(unserved, actions[hook].pass)
			expect("a question, and a stranger")
			send(client, actions[hook].redirect)
			send(clientOf(1, vip.Is6(), 5), actions[hook].redirect)
			expect("a client and a router", near, far)
			r.advance(t, 3*time.Second)
			expect("some seconds later")
			t.Cleanup(func() { setNeighbour(t, client, neighbourMAC(client)) })
			forgetNeighbour(t, client)
			send(client, actions[hook].pass)
			expect("a client that was known", near)
		}
	})
}

// TestReplyHopsOfNoReplies: where no mode has replies there are none, and no table.
func TestReplyHopsOfNoReplies(t *testing.T) {
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, killState(3, 1))
		if n := r.datapath.shared.ReplyHops.MaxEntries(); n != 1 {
			t.Errorf("the table has %d places", n)
		}
		if hops, err := r.datapath.ReplyHops(time.Hour); err != nil || len(hops) != 0 {
			t.Errorf("next hops %v, %v", hops, err)
		}
	})
}

// TestReplyHopByOtherFamily: an IPv4 client behind an IPv6 router (RFC 8950).
func TestReplyHopByOtherFamily(t *testing.T) {
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		r := freshRig(t, hook)
		prefix := netip.MustParsePrefix("198.51.100.0/24")
		route := netlink.Route{LinkIndex: farLink.index,
			Dst: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), 32)},
			Via: &netlink.Via{AddrFamily: unix.AF_INET6, Addr: gateway6.AsSlice()}}
		if err := netlink.RouteAdd(&route); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := netlink.RouteDel(&route); err != nil {
				t.Error(err)
			}
		})
		r.advance(t, time.Minute)
		reply := natReply(r.model, vip4, false, netip.MustParseAddr("198.51.100.7")).build(t)
		if action, _ := r.run(t, reply); action != actions[hook].redirect {
			t.Fatalf("action %d", action)
		}
		hops, err := r.datapath.ReplyHops(2 * time.Second)
		if want := (lb.ReplyHop{Interface: farLink.index, Address: gateway6, Router: true}); err != nil ||
			len(hops) != 1 || hops[0] != want {
			t.Errorf("next hops %v, %v, want %v", hops, err, want)
		}
	})
}
