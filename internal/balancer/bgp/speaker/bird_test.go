// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

const vip4, vip6 = "198.19.0.10", "2001:2:0:ffff::10"

// TestThreeSpeakers: a router has as many ways to a VIP as speakers announce it; its routes follow when one is
// withdrawn, drained, killed and started again, or stopped.
func TestThreeSpeakers(t *testing.T) {
	t.Parallel()
	r := newBird(t)
	var all []*process
	configuration := ""
	for n := 1; n <= 3; n++ {
		all = append(all, newProcess(t, r, n))
		configuration += fmt.Sprintf(
			"protocol bgp b%d from speaker { neighbor 198.18.%d.2 as 64512; hold time 240; }\n", n, n)
	}
	r.start(t, configuration)
	for i, p := range all {
		p.apply(t, withLongHoldTime(i+1, vip4))
	}
	r.expectHops(t, "with three speakers", vip4, 3)

	all[0].apply(t, withLongHoldTime(1))
	r.expectHops(t, "with one that has withdrawn it", vip4, 2)
	all[0].apply(t, withLongHoldTime(1, vip4))
	r.expectHops(t, "with all again", vip4, 3)

	draining := withLongHoldTime(1, vip4)
	draining.Draining = true
	all[0].apply(t, draining)
	testenv.Eventually(t, testTimeout, "the route of a drained balancer is marked", func() bool {
		return strings.Contains(r.command("show route all protocol b1"), "(65535,0)")
	})
	all[0].apply(t, withLongHoldTime(1, vip4))
	testenv.Eventually(t, testTimeout, "the route is not marked any more", func() bool {
		return !strings.Contains(r.command("show route all protocol b1"), "(65535,0)")
	})

	// Not as a subtest, with which the speaker that it starts would end.
	for !expectRoutesKept(t, r, all[1]) {
		r.expectHops(t, "after a restart that took too long", vip4, 3)
	}

	if err := all[0].client.Shutdown(t.Context(), bgp.Stop); err != nil {
		t.Fatal(err)
	}
	r.expectHops(t, "with one that was stopped", vip4, 2)
}

// withLongHoldTime is wanted with a hold time that a machine which stalls does not exceed: sessions end by events, not
// by lateness.
func withLongHoldTime(n int, vips ...string) bgp.Desired {
	w := desiredVIPs(n, vips...)
	w.BGP.Peers[0].HoldTime = 240 * time.Second
	return w
}

// expectRoutesKept kills a speaker and starts it again: the router never has fewer ways. It returns false where that
// took longer than the router keeps routes, as on a machine that stalls: then there is nothing to be seen.
func expectRoutesKept(t *testing.T, r *bird, p *process) bool {
	t.Helper()
	p.peer(t, "the router keeps routes", func(peer ops.BGPPeer) bool {
		return peer.State == ops.BGPEstablished && peer.Restarts
	})
	fewest, stop, done := 3, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(20 * time.Millisecond)
		defer ticks.Stop()
		for {
			fewest = min(fewest, r.nextHops(t, vip4))
			select {
			case <-stop:
				return
			case <-ticks.C:
			}
		}
	}()
	killed := time.Now()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	p.start(t, true)
	p.apply(t, withLongHoldTime(2, vip4))
	p.peer(t, "the session is there again", func(peer ops.BGPPeer) bool { return peer.State == ops.BGPEstablished })
	took := time.Since(killed)
	testenv.Eventually(t, testTimeout, "the restart is over", func() bool {
		state := r.command("show protocols all b2")
		return strings.Contains(state, "Established") && !strings.Contains(state, "graceful restart active")
	})
	close(stop)
	<-done
	if took > (restartTime-1)*time.Second {
		t.Logf("the restart took %v, and the router keeps routes for %d s", took, restartTime)
		return false
	}
	if fewest < 3 {
		t.Errorf("over a restart, the router had %d next hops, of 3", fewest)
	}
	return true
}

// TestAttributes: a route has the configured attributes, in both families, and a change of them is sent within the same
// session.
func TestAttributes(t *testing.T) {
	t.Parallel()
	r := newBird(t)
	p := newProcess(t, r, 1)
	secret := filepath.Join(r.dir, "secret")
	if err := os.WriteFile(secret, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start(t,
		`protocol bgp b1 from speaker { neighbor 198.18.1.2 as 64512; password "sesame"; ttl security on; ipv6 { import all; export none; }; }
protocol bgp b2 { local as 64512; neighbor 2001:2:0:1::2 as 64512; passive on; connect delay time 1; error wait time 1,
	2; ipv4 { import all; export none; extended next hop on; }; ipv6 { import all; export none; }; }
`)
	// Sessions that a late speaker lost would be counted.
	w := withLongHoldTime(1, vip4, vip6)
	med, preference := uint32(0), uint32(50)
	outer := &w.BGP.Peers[0]
	outer.PasswordFile, outer.TTLSecurity, outer.Families = secret, true, []lb.Family{lb.IPv4, lb.IPv6}
	outer.Communities, outer.MED, outer.Prepend = []lb.Community{"64512:100", "64512:1:2"}, &med, 2
	outer.NextHops = []netip.Addr{netip.MustParseAddr("2001:2:0:1::2")}
	w.BGP.Peers = append(w.BGP.Peers, lb.BGPPeer{Address: netip.MustParseAddr("2001:2:0:1::1"), ASN: speakerAS,
		Port: 179, HoldTime: outer.HoldTime,
		Families: []lb.Family{lb.IPv4, lb.IPv6}, LocalPreference: &preference,
		LocalAddress: netip.MustParseAddr("2001:2:0:1::2"), AddPath: true})
	p.apply(t, w)
	expect := func(when, protocol string, says ...string) {
		t.Helper()
		for _, one := range says {
			testenv.Eventually(t, testTimeout, fmt.Sprintf("%s, the routes of %s have %q", when, protocol, one),
				func() bool {
					return strings.Contains(r.command("show route all protocol "+protocol), one)
				})
		}
	}
	expect("at first", "b1", vip4+"/32", vip6+"/128", "BGP.as_path: 64512 64512 64512", "BGP.next_hop: 198.18.1.2",
		"BGP.next_hop: 2001:2:0:1::2", "BGP.med: 0",
		"BGP.community: (64512,100)", "BGP.large_community: (64512, 1, 2)")
	expect("at first", "b2", vip4+"/32", vip6+"/128", "BGP.local_pref: 50", "BGP.next_hop: 2001:2:0:1::2")

	sessions := func() (n uint64) {
		state, err := p.client.State(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, peer := range state.Peers {
			n += peer.Sessions
		}
		return n
	}
	before := sessions()
	w.BGP.Peers[0].Communities = []lb.Community{"64512:200"}
	p.apply(t, w)
	expect("after a change", "b1", "BGP.community: (64512,200)")
	if after := sessions(); after != before || before != 2 {
		t.Errorf("there were %d sessions, and after a change of attributes %d", before, after)
	}
	w.Draining = true
	p.apply(t, w)
	expect("when drained", "b1", "(65535,0)", "BGP.med: 4294967295")
	expect("when drained", "b2", "(65535,0)", "BGP.local_pref: 1\n")
	// Addresses of full NAT are not drained, and those of others are the last choice.
	own, others := netip.MustParseAddr("198.18.99.1"), netip.MustParseAddr("198.18.99.2")
	w.VIPs, w.Pool, w.Backup = nil, []netip.Addr{own}, []netip.Addr{others}
	p.apply(t, w)
	for _, route := range []struct {
		protocol string
		to       netip.Addr
		says     string
	}{
		{"b1", own, "BGP.as_path: 64512 64512 64512\n"},
		{"b1", others, "BGP.as_path: 64512 64512 64512 64512 64512 64512\n"},
		{"b2", own, "BGP.local_pref: 50\n"}, {"b2", others, "BGP.local_pref: 25\n"},
	} {
		testenv.Eventually(t, testTimeout, fmt.Sprintf("the route of %s to %s has %q", route.protocol, route.to,
			route.says), func() bool {
			said := r.command(fmt.Sprintf("show route %s/32 all protocol %s", route.to, route.protocol))
			return strings.Contains(said, strings.TrimSpace(route.says)+"\n") && !strings.Contains(said, "(65535,0)")
		})
	}
}

// TestWrongPeers: a router that was configured wrong is named with the reason, and its session comes about when
// that is put right.
func TestWrongPeers(t *testing.T) {
	t.Parallel()
	r := newBird(t)
	p := newProcess(t, r, 1)
	right := "protocol bgp b1 from speaker { neighbor 198.18.1.2 as 64512; }\n"
	r.start(t, strings.Replace(right, "as 64512;", "as 64599;", 1))
	reason := func(what, says string) {
		t.Helper()
		p.peer(t, what+" is named", func(peer ops.BGPPeer) bool {
			return peer.State != ops.BGPEstablished && strings.Contains(peer.Reason, says)
		})
	}
	p.apply(t, desiredVIPs(1, vip4))
	reason("another AS than the router expects", "it refused this balancer: are the AS")

	r.configure(t, right)
	r.command("configure")
	w := desiredVIPs(1, vip4)
	w.BGP.Peers[0].ASN = 64598
	p.apply(t, w)
	reason("another AS than was configured", "this balancer refused it: the AS is another than the configuration has")

	w = desiredVIPs(1, vip4)
	w.BGP.Peers[0].Password = "wrong"
	p.apply(t, w)
	reason("a password that the router has not", "has it the same password")

	w.BGP.Peers[0].Password = ""
	p.apply(t, w)
	p.peer(t, "the session is there", func(peer ops.BGPPeer) bool {
		return peer.State == ops.BGPEstablished && peer.Reason == ""
	})
	r.expectHops(t, "with all put right", vip4, 1)
}

// TestFlood: routes that a router announces are refused, and counted; one that announces a whole table is cut
// off before that takes memory.
func TestFlood(t *testing.T) {
	t.Parallel()
	r := newBird(t)
	p := newProcess(t, r, 1)
	table := func(n int) string {
		var text strings.Builder
		text.WriteString("protocol static flood { ipv4; \n")
		for i := range n {
			fmt.Fprintf(&text, "route 10.%d.%d.0/24 blackhole;\n", i>>8, i&255)
		}
		text.WriteString(
			"}\nprotocol bgp b1 from speaker { neighbor 198.18.1.2 as 64512; ipv4 { import all; export all; }; }\n")
		return text.String()
	}
	r.start(t, table(10))
	p.apply(t, desiredVIPs(1, vip4))
	p.peer(t, "ten routes are counted", func(peer ops.BGPPeer) bool {
		return peer.State == ops.BGPEstablished && peer.Received == 10
	})
	r.configure(t, table(maxReceived+1000))
	r.command("configure")
	p.peer(t, "too many routes are named", func(peer ops.BGPPeer) bool {
		return peer.State != ops.BGPEstablished && strings.Contains(peer.Reason, "announces more than 20000 routes")
	})
}

// TestOrphan: routes are withdrawn when no balancer has made a request for long enough, and announced after one.
func TestOrphan(t *testing.T) {
	t.Parallel()
	r := newBird(t)
	p := newProcess(t, r, 1)
	r.start(t, "protocol bgp b1 from speaker { neighbor 198.18.1.2 as 64512; }\n")
	w := desiredVIPs(1, vip4)
	w.OrphanTimeout = 2 * time.Second
	p.apply(t, w)
	announced := func() bool { return r.nextHops(t, vip4) == 1 }
	testenv.Eventually(t, testTimeout, "the VIP is announced while a balancer makes requests", func() bool {
		state, err := p.client.State(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if state.Orphaned { // this test was kept from making requests
			p.apply(t, w)
		}
		return announced()
	})
	r.expectHops(t, "without a balancer", vip4, 0)
	testenv.Eventually(t, testTimeout, "the speaker is orphaned, and its session is established", func() bool {
		state, err := p.client.State(t.Context(), 0)
		return err == nil && state.Orphaned && len(state.Peers) == 1 && state.Peers[0].State == ops.BGPEstablished
	})
	// A balancer that makes one request only is gone again after OrphanTimeout, maybe before the router has the route.
	testenv.Eventually(t, testTimeout, "the VIP is announced with a balancer again", func() bool {
		p.apply(t, w)
		return announced()
	})
}
