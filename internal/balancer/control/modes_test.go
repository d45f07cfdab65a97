// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// mode is web in another mode.
func mode(m lb.Mode) string {
	return strings.ReplaceAll(web, "port: 80", "port: 80\n    mode: "+string(m))
}

// twoLinks is a file for eth9 and eth8, and gives the world the latter.
func (w *world) twoLinks(file string) string {
	w.links = append(w.links, iface.State{Name: "eth8", Index: 8, Up: true, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 0xee},
		Subnets: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}})
	return strings.Replace(file, "interface: eth9", "interfaces: [eth9, eth8]", 1)
}

// router is a route by a router on eth9.
func router(local string) paths.Route {
	r := paths.Route{Interface: "eth9", Index: 9, Gateway: netip.MustParseAddr("192.0.2.7"), MTU: 1500}
	if local != "" {
		r.Local = netip.MustParseAddr(local)
	}
	return r
}

// TestRoutesAreChecked: a backend that its mode does not reach is a warning with its
// line, and the other one serves; one that no route would mend is refused.
func TestRoutesAreChecked(t *testing.T) {
	const later = ". Until then it gets no packets"
	const at = "f:9: services[0].backends[0].address: 192.0.2.1 "
	other := paths.Route{Fault: paths.OtherInterface, Interface: "eth5", Reason: "is reached by eth5",
		Advice: "add eth5 to interfaces"}
	tests := map[string]struct {
		mode    lb.Mode
		route   paths.Route
		want    string
		refused bool
	}{
		"l2dsr and a router": {lb.L2DSR, router("192.0.2.254"),
			at + "is behind the router 192.0.2.7, and l2dsr reaches neighbours only; use ipip or gue, or an address in a subnet of eth9 (192.0.2.0/24)" + later, false},
		"ipip and a router": {lb.IPIP, router("192.0.2.254"), "", false},
		"nat and a router":  {lb.NAT, router(""), "", false},
		"other interface":   {lb.GUE, other, at + "is reached by eth5; add eth5 to interfaces" + later, false},
		"l2dsr and another": {lb.L2DSR, other, at + "is reached by eth5; add eth5 to interfaces" + later, false},
		"no route": {lb.DSCP, paths.Route{Fault: paths.NoRoute, Reason: "has no route", Advice: "add one"},
			at + "has no route; add one" + later, false},
		"l2dsr, no route": {lb.L2DSR, paths.Route{Fault: paths.NoRoute, Reason: "has no route", Advice: "add one"},
			at + "is in no subnet of eth9 (192.0.2.0/24), and l2dsr reaches neighbours only; use an address there, or put the interface into the backend's subnet" + later, false},
		"own": {lb.NAT, paths.Route{Fault: paths.OwnAddress, Reason: "is ours", Advice: "use another"},
			at + "is ours; use another", true},
		"broadcast": {lb.NAT, paths.Route{Fault: paths.NotUnicast, Reason: "is no host", Advice: "use another"},
			at + "is no host; use another", true},
		"no source": {lb.IPIP, router(""),
			at + "cannot be sent tunnel packets: this host has no IPv4 address on eth9 to send them from; give the interface one" + later, false},
		"no good source": {lb.GUE, router("fe80::1"),
			at + "cannot be sent tunnel packets: this host has no IPv4 address on eth9 to send them from; give the interface one" + later, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.routed("192.0.2.1", test.route)
			w.found("192.0.2.1", 1)
			w.found("192.0.2.2", 2)
			c := w.controller(mode(test.mode))
			err := c.Start()
			if test.refused {
				if err == nil || err.Error() != test.want {
					t.Errorf("error %v, want %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if test.want != "" && !w.logged("WARN", test.want) {
				t.Errorf("no warning %q:\n%s", test.want, w.log.String())
			}
			wantUp := "apply web: web01=1 web02=2"
			if test.want != "" {
				wantUp = "apply web: web01=- web02=2"
			}
			if did := w.done(); !slices.Contains(did, wantUp) {
				t.Errorf("did %q, want %q", did, wantUp)
			}
		})
	}
}

// TestVIPThatTheHostAsksFrom: a VIP that is the sender of the host's ARP requests is
// refused where the backends have it, and nothing else of the host's own.
func TestVIPThatTheHostAsksFrom(t *testing.T) {
	vip, other := netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("192.0.2.254")
	near := func(asks netip.Addr) paths.Route {
		return paths.Route{Interface: "eth9", Index: 9, MTU: 1500, Local: vip, ARPSource: asks}
	}
	for _, m := range lb.PacketModes {
		for name, test := range map[string]struct {
			route   paths.Route
			refused bool
		}{
			"asks from the VIP":         {near(vip), !m.Translates()},
			"asks from another address": {near(other), false}, // the VIP is on lo, say
			"is not asked":              {near(netip.Addr{}), false},
		} {
			t.Run(string(m)+" "+name, func(t *testing.T) {
				w := newWorld(t)
				w.links[0].Addresses = append(w.links[0].Addresses, netip.PrefixFrom(vip, 24))
				file := mode(m)
				if m == lb.FullNAT {
					file = "fullnat: {addresses: [192.0.2.50]}" + file
				}
				w.routed("192.0.2.1", test.route)
				w.found("192.0.2.1", 1)
				w.found("192.0.2.2", 2)
				err := w.controller(file).Start()
				switch {
				case !test.refused && err != nil:
					t.Fatal(err)
				case test.refused && (err == nil || !strings.HasPrefix(err.Error(),
					"f:5: services[0].vip: 192.0.2.100 is the address from which this host sends its ARP requests on eth9: in "+string(m)+" its backends have the VIP, too")):
					t.Fatalf("error %v", err)
				case test.refused:
					if did := w.done(); len(did) > 0 {
						t.Errorf("did %q", did)
					}
				default:
					if did := w.done(); !slices.Contains(did, "apply web: web01=1 web02=2") {
						t.Errorf("did %q", did)
					}
				}
			})
		}
	}
}

// TestVIPBecomesTheAsker: at run time it is a condition, and a reload is refused.
func TestVIPBecomesTheAsker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := running(t, web, "192.0.2.1", "192.0.2.2")
		r := paths.Route{Interface: "eth9", Index: 9, MTU: 1500, Local: netip.MustParseAddr("192.0.2.100"),
			ARPSource: netip.MustParseAddr("192.0.2.100")}
		w.routed("192.0.2.1", r)
		w.found("192.0.2.1", 1)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=- web02=2")
		status, err := c.Status()
		if err != nil {
			t.Fatal(err)
		}
		const why = "does not answer ARP requests from the VIP 192.0.2.100, which this host asks from on eth9 and the backend has itself in l2dsr"
		if b := status.Services[0].Backends[0]; b.State != lb.NoRoute || b.Reason != why {
			t.Errorf("%s: %q, want %q", b.State, b.Reason, why)
		}
		if err := finished(t, w.reload(c, web)); err == nil ||
			!strings.HasPrefix(err.Error(), "f:5: services[0].vip: 192.0.2.100 is the address from which") {
			t.Errorf("the reload: %v", err)
		}
		w.expect()
		if err := finished(t, w.reload(c, mode(lb.NAT))); err != nil {
			t.Error(err)
		}
		stop()
	})
}

// TestRouteComesLater: a service starts with the backends that there are routes to, and
// without any; the others come when their routes do.
func TestRouteComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		none := paths.Route{Fault: paths.NoRoute, Reason: "has no route", Advice: "add one"}
		for _, addr := range []string{"192.0.2.2", "2001:db8::1"} {
			w.routed(addr, none)
			w.found(addr, 0)
		}
		w.found("192.0.2.1", 1)
		c := w.controller(web + dns)
		began := time.Now()
		stop := w.run(c)
		w.expectLog("WARN", "f:9: services[0].backends[1].address: 192.0.2.2 is in no subnet of eth9")
		w.quiet()
		w.expectLog("WARN", "service dns has no backend that can take packets until that changes")
		if w.logged("WARN", "service web") || w.logged("backend web02 (192.0.2.2)") {
			t.Errorf("the log has as missing what serves, or what it has named before:\n%s", w.log.String())
		}
		status, err := c.Status()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range []ops.Backend{status.Services[0].Backends[1], status.Services[1].Backends[0]} {
			if b.State != lb.NoRoute || b.Reason != "has no route" || !b.Since.Equal(began) {
				t.Errorf("%s is %s, %q since %s; want a missing route since %s", b.Name, b.State, b.Reason,
					b.Since, began)
			}
		}
		if want := []string{"service dns has no backend that can take packets: all to it are dropped"}; !slices.Equal(status.Problems, want) {
			t.Errorf("problems %q", status.Problems)
		}
		w.unrouted("192.0.2.2")
		w.found("192.0.2.2", 2)
		w.unrouted("2001:db8::1")
		w.found("2001:db8::1", 3)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1 web02=2 dns: dns01=3")
		w.expectLog("INFO", "service dns has a backend again")
		w.routed("192.0.2.2", none)
		w.found("192.0.2.2", 0)
		time.Sleep(settleDelay)
		lost := time.Now()
		w.expect("apply web: web01=1 web02=- dns: dns01=3")
		if status, err = c.Status(); err != nil {
			t.Fatal(err)
		}
		if b := status.Services[0].Backends[1]; b.State != lb.NoRoute || !b.Since.Equal(lost) {
			t.Errorf("%s since %s, want %s since %s", b.State, b.Since, lb.NoRoute, lost)
		}
		if len(status.Problems) != 0 {
			t.Errorf("problems %q", status.Problems)
		}
		stop()
	})
}

// TestReloadWithoutARoute: a backend without a route does not keep a reload from its other changes, nor an outage of
// another from reloads.
func TestReloadWithoutARoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := running(t, web, "192.0.2.1", "192.0.2.2")
		none := paths.Route{Fault: paths.NoRoute, Reason: "has no route", Advice: "add one"}
		for _, addr := range []string{"192.0.2.2", "198.51.100.3"} {
			w.routed(addr, none)
			w.found(addr, 0)
		}
		w.found("2001:db8::1", 4)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1 web02=-")
		file := web + "      - {name: web03, address: 198.51.100.3}\n" + dns
		w.mustReload(c, file)
		w.expectLog("WARN", "f:9: services[0].backends[1].address: 192.0.2.2 is in no subnet")
		w.expectLog("WARN", "f:10: services[0].backends[2].address: 198.51.100.3 is in no subnet")
		if did := w.done(); !slices.Contains(did, "apply web: web01=1 web02=- web03=- dns: dns01=4") {
			t.Errorf("did %q", did)
		}
		w.quiet()
		w.unrouted("198.51.100.3")
		w.found("198.51.100.3", 3)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1 web02=- web03=3 dns: dns01=4")
		// A backend that has left the configuration is not taken out any more: it begins again if it comes back.
		w.mustReload(c, strings.Replace(web, "      - {name: web02, address: 192.0.2.2}\n", "", 1))
		time.Sleep(time.Hour)
		again := time.Now()
		w.mustReload(c, web)
		status, err := c.Status()
		if err != nil {
			t.Fatal(err)
		}
		if b := status.Services[0].Backends[1]; !b.Since.Equal(again) {
			t.Errorf("%s is out since %s, want %s", b.Name, b.Since, again)
		}
		stop()
	})
}

// TestRoutesComeWithTheLink: a route that cannot be known yet is no reason to refuse.
func TestRoutesComeWithTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.links[0].Up = false
		w.routed("192.0.2.1", paths.Route{Fault: paths.NoRoute, Reason: "has no route"})
		w.found("192.0.2.1", 0)
		c := w.controller(web)
		stop := w.run(c)
		time.Sleep(time.Minute)
		w.expect("watch 192.0.2.1 192.0.2.2", "apply web: web01=- web02=-", "add 192.0.2.100")
		if w.logged("WARN", "web01") {
			t.Errorf("an interface that is down is not the backend's fault:\n%s", w.log.String())
		}
		status, err := c.Status()
		if err != nil {
			t.Fatal(err)
		}
		if b := status.Services[0].Backends[0]; b.State != lb.NoRoute || b.Reason != "has no route" {
			t.Errorf("backend %+v", b)
		}
		stop()
	})
}

func TestTunnelsTooNarrow(t *testing.T) {
	file := strings.ReplaceAll(dns, "port: 53", "port: 53\n    mode: gue")
	for mtu, want := range map[int]string{
		1328: "",
		1327: "the path to 2001:db8::1 through eth9 has an MTU of 1327 bytes, of which gue leaves 1279, and IPv6 clients need not send packets smaller than 1280; raise the MTU to 1328",
	} {
		w := newWorld(t)
		w.routed("2001:db8::1", paths.Route{Interface: "eth9", Index: 9, MTU: mtu,
			Local: netip.MustParseAddr("2001:db8::254")})
		if err := w.controller(web + file).Start(); err != nil {
			t.Fatal(err)
		}
		if got := w.logged("the path to"); got != (want != "") || want != "" &&
			!w.logged("services[1].backends[0].address: "+want) {
			t.Errorf("MTU %d: want the warning %q:\n%s", mtu, want, w.log.String())
		}
	}
}

func TestForwarding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.found("192.0.2.1", 1)
		w.found("192.0.2.2", 2)
		w.found("2001:db8::1", 3)
		c := w.controller(w.twoLinks(mode(lb.NAT)))
		stop := w.run(c)
		w.expect("watch 192.0.2.1 192.0.2.2", "apply web: web01=1 web02=2", "add 192.0.2.100",
			"forward IPv4 on eth9 eth8", "announce 192.0.2.100 on eth9")
		w.quiet()
		both := mode(lb.NAT) + strings.ReplaceAll(dns, "port: 53", "port: 53\n    mode: nat")
		for name, test := range map[string]struct {
			fail func(error)
			want []string
		}{
			"forward": {func(err error) { w.forwardErr = err },
				[]string{"watch 192.0.2.1 192.0.2.2 2001:db8::1", "fail to forward IPv4 and IPv6",
					"watch 192.0.2.1 192.0.2.2"}},
			"apply": {w.failApply, []string{"watch 192.0.2.1 192.0.2.2 2001:db8::1",
				"forward IPv4 and IPv6 on eth9 eth8", "add 2001:db8::53",
				"fail to apply web: web01=1 web02=2 dns: dns01=3", "remove 2001:db8::53", "forward IPv4 on eth9 eth8",
				"watch 192.0.2.1 192.0.2.2"}},
		} {
			test.fail(errors.New("refused"))
			err := finished(t, w.reload(c, strings.Replace(both, "interface: eth9", "interfaces: [eth9, eth8]", 1)))
			if err == nil || err.Error() != "refused" {
				t.Errorf("%s: error %v", name, err)
			}
			w.expect(test.want...)
			test.fail(nil)
		}
		// Without the mode, and in one step.
		w.mustReload(c, strings.Replace(mode(lb.GUE), "interface: eth9", "interfaces: [eth9, eth8]", 1))
		w.expect("watch 192.0.2.1 192.0.2.2", "apply web: web01=1 web02=2", "forward nothing",
			"watch 192.0.2.1 192.0.2.2", "announce 192.0.2.100 on eth9")
		stop()
	})
}

func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.controller("fullnat: {addresses: [192.0.2.9, 192.0.2.254], ports: 30000-33000}" + mode(lb.FullNAT))
		stop := w.run(c)
		time.Sleep(10 * time.Millisecond)
		w.expect("watch 192.0.2.1 192.0.2.2", "apply web: web01=- web02=-",
			"add 192.0.2.100", "add 192.0.2.9", "add 192.0.2.254", "forward IPv4 on eth9",
			"announce 192.0.2.100 on eth9", "announce 192.0.2.9 on eth9", "announce 192.0.2.254 on eth9")
		want := lb.Pool{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("192.0.2.254")},
			FirstPort: 30000, LastPort: 33000}
		if diff := cmp.Diff(want, w.pool, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("pool (-want +got):\n%s", diff)
		}
		w.expectLog("WARN",
			"fullnat.addresses[1]: 192.0.2.254 is an address of this host already, whose own connections take ports 32768-60999")
		if w.logged("fullnat.addresses[0]") {
			t.Error("a warning for an address that is the pool's alone")
		}
		// Addresses that are ours by now are no reason to warn, and a mode less is a pool less.
		w.mu.Lock()
		w.log.Reset()
		w.mu.Unlock()
		w.quiet()
		w.mustReload(c, "fullnat: {addresses: [192.0.2.9, 192.0.2.254], ports: 30000-40000}"+mode(lb.FullNAT))
		if w.logged("is an address of this host already") || w.pool.LastPort != 40000 {
			t.Errorf("pool %+v, log:\n%s", w.pool, w.log.String())
		}
		w.quiet()
		w.mustReload(c, mode(lb.NAT))
		w.expect("watch 192.0.2.1 192.0.2.2", "apply web: web01=- web02=-", "remove 192.0.2.9", "remove 192.0.2.254",
			"watch 192.0.2.1 192.0.2.2", "announce 192.0.2.100 on eth9")
		if len(w.pool.Addresses) > 0 {
			t.Errorf("pool %+v", w.pool)
		}
		stop()
	})
}

func TestSecondLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		file := w.twoLinks(mode(lb.IPIP))
		w.routed("192.0.2.2", paths.Route{Interface: "eth8", Index: 8, MTU: 1400,
			Gateway: netip.MustParseAddr("198.51.100.7"), Local: netip.MustParseAddr("198.51.100.1")})
		w.found("192.0.2.1", 1)
		w.found("192.0.2.2", 2)
		c := w.controller(file)
		stop := w.run(c)
		synctest.Wait()
		w.expectLog("balancing on eth9, eth8 in tc")
		w.expectLog("web02", "is at 02:00:00:00:00:02 (the router 198.51.100.7) on eth8")
		status, err := c.Status()
		if err != nil {
			t.Fatal(err)
		}
		b := status.Services[0].Backends[1]
		if b.Interface != "eth8" || b.NextHop != netip.MustParseAddr("198.51.100.7") || b.MTU != 1400 ||
			b.State != lb.Up {
			t.Errorf("backend %+v", b)
		}
		if len(status.Interfaces) != 2 || status.Interfaces[1].Name != "eth8" || status.Interface != "eth9" {
			t.Errorf("interfaces %+v", status.Interfaces)
		}
		w.quiet()

		w.changeLink(func() { w.links[1].MAC = net.HardwareAddr{2, 0, 0, 0, 0, 0xed} })
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1 web02=2") // which is stale; and the VIPs are where they were
		w.expectLog("interface eth8 has a new MAC address")

		w.changeLink(func() { w.links[1].Up = false })
		time.Sleep(settleDelay)
		w.expect()
		w.expectLog("WARN", "interface eth8 is down")
		expectProblems(t, c, "eth8 is down")
		stop()
	})
}

// TestRouteMoves: a route that was checked at the start need not stay, and one mode may reach a backend that another
// cannot.
func TestRouteMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		file := web + strings.NewReplacer("name: web\n", "name: tunnel\n", "port: 80",
			"port: 81\n    mode: gue").Replace(strings.SplitAfter(web, "services:\n")[1])
		for _, addr := range []string{"192.0.2.1", "192.0.2.2"} {
			w.found(addr, addr[len(addr)-1]-'0')
		}
		c := w.controller(file)
		stop := w.run(c)
		w.quiet()
		w.routed("192.0.2.1", router("192.0.2.254"))
		w.found("192.0.2.1", 7)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=- web02=2 tunnel: web01=7 web02=2")
		w.expectLog("WARN",
			"backend web01 (192.0.2.1) of web is behind the router 192.0.2.7, and l2dsr reaches neighbours only: no packets until that changes")
		w.expectLog("backend web01 (192.0.2.1) of tunnel has moved from 02:00:00:00:00:01 to 02:00:00:00:00:07 (the router 192.0.2.7)")
		status, err := c.Status()
		if err != nil {
			t.Fatal(err)
		}
		if one, two := status.Services[0].Backends[0], status.Services[1].Backends[0]; one.State != lb.NoRoute ||
			one.Reason == "" || two.State != lb.Up || two.Reason != "" {
			t.Errorf("backends %+v and %+v", one, two)
		}

		w.routed("192.0.2.1", paths.Route{Interface: "eth9", Index: 9, MTU: 1400,
			Local: netip.MustParseAddr("192.0.2.254")})
		w.found("192.0.2.1", 1)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1 web02=2 tunnel: web01=1 web02=2")
		w.routed("192.0.2.1", paths.Route{Interface: "eth9", Index: 9, MTU: 1500,
			Local: netip.MustParseAddr("192.0.2.254")})
		w.found("192.0.2.1", 1)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1 web02=2 tunnel: web01=1 web02=2") // for the MTU
		stop()
	})
}
