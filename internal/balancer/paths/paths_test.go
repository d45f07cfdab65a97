// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/neigh"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// testNetwork is a balancer with two links, each to a router with two addresses.
type testNetwork struct {
	t        *testing.T
	balancer *namespace.Namespace
	routers  [2]*namespace.Namespace
	own, far [2]net.HardwareAddr // MAC addresses of the links' ends
	paths    *Paths
	entries  map[netip.Addr]Entry // see follow
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// newTestNetwork makes it, and follows paths by the interfaces of these names.
func newTestNetwork(t *testing.T, interfaces ...string) *testNetwork {
	t.Helper()
	testenv.Program(t, "ip")
	b := &testNetwork{t: t, balancer: testenv.Namespace(t)}
	for i, net := range []string{"198.18.0", "198.18.1"} {
		b.routers[i] = testenv.Namespace(t)
		six := []string{"2001:2:0:1", "2001:2:0:2"}[i]
		prefixes := func(host string) []netip.Prefix {
			return []netip.Prefix{netip.MustParsePrefix(net + "." + host + "/24"),
				netip.MustParsePrefix(six + "::" + host + "/64")}
		}
		b.own[i], b.far[i] = testenv.Veth(t,
			testenv.End{Namespace: b.balancer, Name: []string{"eth0", "eth1"}[i], Addresses: prefixes("1")},
			testenv.End{Namespace: b.routers[i], Name: "eth0", Addresses: append(prefixes("2"), prefixes("3")...)})
	}
	testenv.In(t, b.balancer, func() (err error) {
		b.paths, err = New(t.Context(), interfaces)
		return err
	})
	t.Cleanup(func() { b.paths.Close() })
	return b
}

// ip runs the iproute2 program on the balancer.
func (b *testNetwork) ip(args string) {
	b.t.Helper()
	testenv.In(b.t, b.balancer, func() error {
		out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
		if err != nil {
			return errors.New("ip " + args + ": " + string(out))
		}
		return nil
	})
}

func (b *testNetwork) watch(addrs ...string) {
	b.t.Helper()
	var list []netip.Addr
	for _, a := range addrs {
		list = append(list, addr(a))
	}
	if err := b.paths.SetAddresses(list); err != nil {
		b.t.Fatal(err)
	}
}

// follow returns the entries as a caller has them that asks for changes only.
func (b *testNetwork) follow() map[netip.Addr]Entry {
	changed, all := b.paths.Changed()
	if all {
		b.entries = b.paths.Entries()
	}
	maps.Copy(b.entries, changed)
	return b.entries
}

// awaitEntry waits for a signal after which the entry of an address is as wanted. It
// looks only when signalled: a change without a signal fails the test.
func (b *testNetwork) awaitEntry(to, what string, ok func(Entry) bool) Entry {
	b.t.Helper()
	bound := time.After(testenv.WaitLimit)
	for {
		e := b.follow()[addr(to)]
		if ok(e) {
			return e
		}
		select {
		case <-b.paths.Changes():
		case <-bound:
			b.t.Fatalf("%s is not %s but %+v", to, what, e)
		}
	}
}

func hasMAC(mac net.HardwareAddr) func(Entry) bool {
	return func(e Entry) bool { return e.MAC.String() == mac.String() }
}

func TestPaths(t *testing.T) {
	b := newTestNetwork(t, "eth0", "eth1")
	b.ip("link set eth1 mtu 1400")
	b.ip("route add 203.0.113.0/24 via 198.18.1.2")
	b.ip("-6 route add 2001:db8::/64 via 2001:2:0:1::2 mtu 1300")
	b.ip("route add 192.0.2.1 via inet6 2001:2:0:2::3 dev eth1")
	tests := []struct {
		to, via, local string
		port, mtu      int
	}{
		{"198.18.0.3", "", "198.18.0.1", 0, 1500},
		{"2001:2:0:1::3", "", "2001:2:0:1::1", 0, 1500},
		{"198.18.1.3", "", "198.18.1.1", 1, 1400},
		{"203.0.113.9", "198.18.1.2", "198.18.1.1", 1, 1400},
		{"203.0.113.10", "198.18.1.2", "198.18.1.1", 1, 1400},
		{"2001:db8::9", "2001:2:0:1::2", "2001:2:0:1::1", 0, 1300},
		{"192.0.2.1", "2001:2:0:2::3", "198.18.1.1", 1, 1400},
	}
	var all []string
	for _, test := range tests {
		all = append(all, test.to)
	}
	b.watch(all...)
	for _, test := range tests {
		e := b.awaitEntry(test.to, "resolved", func(e Entry) bool { return e.MAC != nil })
		nic, err := interfaceIndex(b.balancer, []string{"eth0", "eth1"}[test.port])
		if err != nil {
			t.Fatal(err)
		}
		want := lb.Path{Interface: nic, MAC: b.far[test.port], Source: b.own[test.port], MTU: uint16(test.mtu),
			Local: addr(test.local)}
		if diff := cmp.Diff(want, e.Path(), compareAddrs); diff != "" {
			t.Errorf("path to %s (-want +got):\n%s", test.to, diff)
		}
		gateway := ""
		if e.Gateway.IsValid() {
			gateway = e.Gateway.String()
		}
		if gateway != test.via || e.OnLink() != (test.via == "") || e.Reason != "" {
			t.Errorf("%s is reached by %q, on the link: %t, reason %q; want %q", test.to, gateway, e.OnLink(),
				e.Reason, test.via)
		}
	}
}

// TestLinkLocalRouter: as routers announce themselves; another of our links may
// have the same address.
func TestLinkLocalRouter(t *testing.T) {
	b := newTestNetwork(t, "eth0", "eth1")
	testenv.In(t, b.routers[0], func() error {
		return exec.Command("ip", "addr", "add", "fe80::1/64", "dev", "eth0", "nodad").Run()
	})
	b.ip("addr add fe80::1/64 dev eth1 nodad")
	b.ip("-6 route add 2001:db8::/64 via fe80::1 dev eth0")
	b.watch("2001:db8::9")
	e := b.awaitEntry("2001:db8::9", "by eth0", hasMAC(b.far[0]))
	if e.Gateway != addr("fe80::1") || e.Local != addr("2001:2:0:1::1") {
		t.Errorf("entry %+v", e)
	}
}

func interfaceIndex(ns *namespace.Namespace, name string) (index int, err error) {
	err = ns.Do(func() error {
		nic, err := net.InterfaceByName(name)
		if err == nil {
			index = nic.Index
		}
		return err
	})
	return index, err
}

func TestFaults(t *testing.T) {
	b := newTestNetwork(t, "eth0")
	b.ip("route add unreachable 203.0.113.0/24")
	b.ip("route add blackhole 198.51.100.0/24")
	b.ip("-6 route add unreachable 2001:db8:1::/48")
	b.ip("-6 route add prohibit 2001:db8:3::/48")
	tests := map[string]struct {
		fault  Fault
		reason string
	}{
		"198.18.0.1":    {OwnAddress, "is an address of this host"},
		"2001:2:0:2::1": {OwnAddress, "is an address of this host"},
		"198.18.1.2": {OtherInterface,
			"is reached by eth1, which is not among this configuration's interfaces (eth0)"},
		"2001:2:0:2::2": {OtherInterface,
			"is reached by eth1, which is not among this configuration's interfaces (eth0)"},
		"192.0.2.1":     {NoRoute, "has no route"},
		"2001:db8:2::1": {NoRoute, "has no route"},
		"203.0.113.1":   {NoRoute, "has a route of the type unreachable"},
		"198.51.100.1":  {NoRoute, "has a route of the type blackhole"},
		"2001:db8:1::1": {NoRoute, "has a route of the type unreachable"},
		"2001:db8:3::1": {NoRoute, "has a route of the type prohibit"},
		"198.18.0.255": {NotUnicast,
			"is no single host to the kernel, which has a route of the type broadcast for it"},
	}
	var all []netip.Addr
	for to := range tests {
		all = append(all, addr(to))
	}
	routes, err := b.paths.Lookup(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.paths.SetAddresses(all); err != nil {
		t.Fatal(err)
	}
	for to, want := range tests {
		r := routes[addr(to)]
		if r.Fault != want.fault || r.Reason != want.reason || r.Advice == "" || r.OnLink() {
			t.Errorf("%s: %+v, want %+v", to, r, want)
		}
		e := b.paths.Entries()[addr(to)]
		if e.Reason != want.reason || e.Neighbour != neigh.Unknown || e.NextHop().IsValid() || len(e.Path().MAC) > 0 {
			t.Errorf("%s: %+v, want %+v", to, e, want)
		}
	}
}

func TestSilentHops(t *testing.T) {
	b := newTestNetwork(t, "eth0")
	b.ip("route add 203.0.113.0/24 via 198.18.0.9")
	testenv.In(t, b.balancer, func() error { return testenv.WriteSysctl("net/ipv4/neigh/eth0/retrans_time_ms", "20") })
	b.watch("203.0.113.1", "198.18.0.8")
	e := b.awaitEntry("203.0.113.1", "failed", func(e Entry) bool { return e.Neighbour == neigh.Failed })
	if want := "is behind the router 198.18.0.9, which does not answer ARP requests"; e.Reason != want {
		t.Errorf("reason %q, want %q", e.Reason, want)
	}
	e = b.awaitEntry("198.18.0.8", "failed", func(e Entry) bool { return e.Neighbour == neigh.Failed })
	if want := "does not answer ARP requests"; e.Reason != want {
		t.Errorf("reason %q, want %q", e.Reason, want)
	}
}

// TestRouteChanges: whatever changes, the path follows.
func TestRouteChanges(t *testing.T) {
	b := newTestNetwork(t, "eth0", "eth1")
	const to = "203.0.113.1"
	b.watch(to)
	b.awaitEntry(to, "without a route", func(e Entry) bool { return e.Fault == NoRoute })
	b.ip("route add 203.0.113.0/24 via 198.18.0.2")
	b.awaitEntry(to, "by eth0", hasMAC(b.far[0]))
	b.ip("route replace 203.0.113.0/24 via 198.18.1.2")
	e := b.awaitEntry(to, "by eth1", hasMAC(b.far[1]))
	if e.Source.String() != b.own[1].String() || e.Local != addr("198.18.1.1") {
		t.Errorf("entry %+v", e)
	}
	b.ip("route replace 203.0.113.0/24 via 198.18.1.2 mtu 1280")
	b.awaitEntry(to, "with the route's MTU", func(e Entry) bool { return e.Path().MTU == 1280 })
	b.ip("route replace 203.0.113.0/24 via 198.18.1.2")
	b.ip("link set eth1 mtu 1350")
	b.awaitEntry(to, "with the link's MTU", func(e Entry) bool { return e.Path().MTU == 1350 })
	b.ip("addr add 198.18.1.200/24 dev eth1")
	b.ip("route replace 203.0.113.0/24 via 198.18.1.2 src 198.18.1.200")
	b.awaitEntry(to, "from another address", func(e Entry) bool { return e.Local == addr("198.18.1.200") })
	b.ip("rule add to 203.0.113.0/24 lookup 100")
	b.ip("route add 203.0.113.0/24 via 198.18.0.3 table 100")
	b.awaitEntry(to, "by another table", func(e Entry) bool { return e.Gateway == addr("198.18.0.3") && e.MAC != nil })
	b.ip("link set eth0 address 02:00:00:00:00:aa")
	b.awaitEntry(to, "from the interface's new MAC", func(e Entry) bool { return e.Source.String() == "02:00:00:00:00:aa" })
	b.ip("route del 203.0.113.0/24 via 198.18.0.3 table 100")
	b.awaitEntry(to, "by the main table again", hasMAC(b.far[1]))
	b.ip("link set eth1 down")
	b.awaitEntry(to, "without a route", func(e Entry) bool { return e.Fault == NoRoute && e.MAC == nil })
}

// TestKnownRoutes: the routes that were looked up last are known until the kernel reports a change, and again once they
// were looked up after it; nothing that was reported is missed, however soon it is asked.
func TestKnownRoutes(t *testing.T) {
	b := newTestNetwork(t, "eth0", "eth1")
	const to = "198.18.0.3"
	b.watch(to)
	known := func() bool {
		t.Helper()
		routes, known := b.paths.KnownRoutes([]netip.Addr{addr(to)})
		if !known {
			return false
		}
		fresh, err := b.paths.Lookup([]netip.Addr{addr(to)})
		if err != nil || !maps.Equal(routes, fresh) {
			t.Fatalf("known are %+v, and the kernel has %+v (%v)", routes, fresh, err)
		}
		clear(routes) // they are the caller's
		return true
	}
	await := func() {
		t.Helper()
		testenv.Eventually(t, testenv.WaitLimit, "the routes are known", known)
	}
	await()
	if _, known := b.paths.KnownRoutes([]netip.Addr{addr("198.18.0.4")}); known {
		t.Error("the route to an address that is not watched is known")
	}
	for i := range 5 {
		b.ip(fmt.Sprintf("addr add 198.18.5.%d/32 dev eth1", i+1))
		known()
		b.ip(fmt.Sprintf("route add %s via 198.18.1.2", to))
		known()
		await()
		b.ip("route del " + to)
		known()
		await()
	}
	if err := b.paths.Close(); err != nil {
		t.Fatal(err)
	}
	if known() {
		t.Error("routes are known after the end")
	}
}

// TestOwnMAC: a neighbour with the MAC address of one of the host's own interfaces, whether
// packets leave by that or by another, is no host to send packets to.
func TestOwnMAC(t *testing.T) {
	b := newTestNetwork(t, "eth0")
	b.ip("route add 203.0.113.0/24 via 198.18.0.2")
	b.watch("198.18.0.2", "203.0.113.1")
	b.awaitEntry("203.0.113.1", "resolved", hasMAC(b.far[0]))
	for i, own := range []string{"eth0", "eth1"} {
		b.ip("neigh replace 198.18.0.2 dev eth0 nud permanent lladdr " + b.own[i].String())
		reason := fmt.Sprintf("has the MAC address %s, which is that of this host's %s", b.own[i], own)
		e := b.awaitEntry("198.18.0.2", "refused", func(e Entry) bool { return e.Reason == reason })
		if e.MAC != nil || len(e.Path().MAC) > 0 {
			t.Errorf("%v still has a way", e)
		}
		b.awaitEntry("203.0.113.1", "refused for its router", func(e Entry) bool {
			return e.MAC == nil && e.Reason == "is behind the router 198.18.0.2, which "+reason
		})
	}
	b.ip("neigh replace 198.18.0.2 dev eth0 nud permanent lladdr " + b.far[0].String())
	b.awaitEntry("198.18.0.2", "resolved again", hasMAC(b.far[0]))
}

// TestNexthopObject: a nexthop that is replaced changes routes without a word
// about them.
func TestNexthopObject(t *testing.T) {
	b := newTestNetwork(t, "eth0", "eth1")
	b.ip("nexthop add id 7 via 198.18.0.2 dev eth0")
	b.ip("route add 203.0.113.0/24 nhid 7")
	b.watch("203.0.113.1")
	b.awaitEntry("203.0.113.1", "by eth0", hasMAC(b.far[0]))
	b.ip("nexthop replace id 7 via 198.18.1.2 dev eth1")
	b.awaitEntry("203.0.113.1", "by eth1", hasMAC(b.far[1]))
}

// TestIPv6MTU: an MTU that a router announces holds for IPv6 alone.
func TestIPv6MTU(t *testing.T) {
	b := newTestNetwork(t, "eth0")
	testenv.In(t, b.balancer, func() error { return testenv.WriteSysctl("net/ipv6/conf/eth0/mtu", "1400") })
	routes, err := b.paths.Lookup([]netip.Addr{addr("198.18.0.2"), addr("2001:2:0:1::2")})
	if err != nil {
		t.Fatal(err)
	}
	if four, six := routes[addr("198.18.0.2")].MTU, routes[addr("2001:2:0:1::2")].MTU; four != 1500 || six != 1400 {
		t.Errorf("MTU %d for IPv4 and %d for IPv6, want 1500 and 1400", four, six)
	}
}

// TestWatchNarrows: addresses that are no longer watched are forgotten, and those that stay keep their entries.
func TestWatchNarrows(t *testing.T) {
	b := newTestNetwork(t, "eth0", "eth1")
	b.watch("198.18.0.2", "198.18.1.2")
	b.awaitEntry("198.18.0.2", "resolved", hasMAC(b.far[0]))
	b.awaitEntry("198.18.1.2", "resolved", hasMAC(b.far[1]))
	b.watch("198.18.1.2")
	entries := b.paths.Entries()
	if len(entries) != 1 || entries[addr("198.18.1.2")].MAC == nil {
		t.Errorf("entries %+v", entries)
	}
}

// TestUse exchanges the interfaces that paths leave by: neighbours on one that stays are known
// all the time, those on one that comes are found, and one that goes leads nowhere.
func TestUse(t *testing.T) {
	b := newTestNetwork(t, "eth0")
	b.watch("198.18.0.2", "198.18.1.2")
	b.awaitEntry("198.18.0.2", "found", func(e Entry) bool { return e.MAC != nil })
	b.awaitEntry("198.18.1.2", "elsewhere", func(e Entry) bool { return e.Fault == OtherInterface })
	if err := b.paths.SetInterfaces([]string{"eth1", "eth9"}); err == nil || !strings.Contains(err.Error(), "eth9") {
		t.Errorf("error %v, want one that names eth9", err)
	}
	if err := b.paths.SetInterfaces([]string{"eth1", "eth0"}); err != nil {
		t.Fatal(err)
	}
	if e := b.paths.Entries()[addr("198.18.0.2")]; e.MAC == nil {
		t.Errorf("a neighbour on an interface that stays was forgotten: %+v", e)
	}
	b.awaitEntry("198.18.1.2", "found", func(e Entry) bool {
		return e.MAC.String() == b.far[1].String() && e.Interface == "eth1"
	})
	if err := b.paths.SetInterfaces([]string{"eth1"}); err != nil {
		t.Fatal(err)
	}
	b.awaitEntry("198.18.0.2", "elsewhere", func(e Entry) bool {
		return e.Fault == OtherInterface && e.MAC == nil && strings.Contains(e.Reason, "(eth1)")
	})
	b.awaitEntry("198.18.1.2", "known", func(e Entry) bool { return e.MAC != nil })
}

func TestNoSuchInterface(t *testing.T) {
	ns := testenv.Namespace(t)
	err := ns.Do(func() error {
		p, err := New(t.Context(), []string{"none0"})
		if err == nil {
			p.Close()
		}
		return err
	})
	if !errors.Is(err, neigh.ErrNoLink) {
		t.Errorf("error %v, want ErrNoLink", err)
	}
}

func TestClosed(t *testing.T) {
	b := newTestNetwork(t, "eth0")
	b.watch("198.18.0.2")
	if err := b.paths.Close(); err != nil {
		t.Error(err)
	}
	if err := b.paths.SetAddresses(nil); err == nil {
		t.Error("watched after Close")
	}
	if _, err := b.paths.Lookup(nil); err == nil {
		t.Error("looked up after Close")
	}
	if len(b.paths.Entries()) != 1 {
		t.Error("the entries are gone")
	}
	if err := b.paths.Close(); err != nil {
		t.Error(err)
	}
}

// TestVLANAdvice: this kernel may have no VLANs to try it with.
func TestVLANAdvice(t *testing.T) {
	p := &Paths{ports: []*port{{name: "eth0"}}}
	got := p.viaOtherInterface(device{name: "eth0.5", vlanOn: "eth0"})
	if want := "eth0.5 is a VLAN of eth0: add it to interfaces, and set hook: tc, for XDP sees only the frames of eth0"; got.Advice != want {
		t.Errorf("advice %q, want %q", got.Advice, want)
	}
}

// TestAsker: the address that ARP requests bear is that of the request itself, as the
// neighbour sees it, and not that of the route.
func TestAsker(t *testing.T) {
	b := newTestNetwork(t, "eth0")
	b.ip("link set lo up")
	for _, step := range []struct{ name, change, want string }{
		{"one address in the subnet", "", "198.18.0.1"},
		{"a second one in the subnet", "addr add 198.18.0.200/24 dev eth0", "198.18.0.1"},
		{"a /32 of the same subnet", "addr add 198.18.0.201/32 dev eth0", "198.18.0.1"},
		{"one on lo", "addr add 198.18.0.202/32 dev lo", "198.18.0.1"},
		{"a route from that on lo", "route replace 198.18.0.0/24 dev eth0 src 198.18.0.202", "198.18.0.1"},
		{"the first taken away, and with it its second", "addr del 198.18.0.1/24 dev eth0", "198.18.0.201"},
		{"that taken away, and a route without a subnet", "addr del 198.18.0.201/32 dev eth0", ""},
		{"a route without a subnet", "route replace 198.18.0.0/24 dev eth0", "198.18.0.202"},
		{"a scope of the host's only", "addr add 198.18.0.203/32 dev eth0 scope host", "198.18.0.202"},
		{"a subnet again", "addr add 198.18.0.9/24 dev eth0 noprefixroute", "198.18.0.9"},
		{"an entry of the administrator's", "neigh replace 198.18.0.2 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
			""},
	} {
		if step.change != "" {
			b.ip(step.change)
		}
		routes, err := b.paths.Lookup([]netip.Addr{addr("198.18.0.2"), addr("2001:2:0:1::2")})
		if err != nil {
			t.Fatal(err)
		}
		got := routes[addr("198.18.0.2")].ARPSource
		if step.want == "" && got.IsValid() || step.want != "" && got != addr(step.want) {
			t.Errorf("%s: asks from %s, want %q", step.name, got, step.want)
		}
		if six := routes[addr("2001:2:0:1::2")].ARPSource; six.IsValid() {
			t.Errorf("%s: a neighbour solicitation from %s", step.name, six)
		}
		if got.IsValid() {
			b.expectRequestFrom(step.name, got)
		}
	}
}

// expectRequestFrom has the host ask for a neighbour that there is not, and looks at the request at the other end.
func (b *testNetwork) expectRequestFrom(name string, want netip.Addr) {
	b.t.Helper()
	var fd int
	testenv.In(b.t, b.routers[0], func() (err error) {
		const arp = (unix.ETH_P_ARP<<8 | unix.ETH_P_ARP>>8) & 0xffff // in network byte order
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, arp)
		return errors.Join(err, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}))
	})
	defer unix.Close(fd)
	const absent = "198.18.0.77"
	testenv.In(b.t, b.balancer, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		// As the resolver asks: without a packet that waits.
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: addr(absent).AsSlice(),
			State: netlink.NUD_NONE, Flags: netlink.NTF_USE})
	})
	for frame := make([]byte, 64); ; {
		n, _, err := unix.Recvfrom(fd, frame, 0)
		if errors.Is(err, unix.EINTR) {
			continue // as after a stop of this process: see signal(7)
		}
		if err != nil {
			b.t.Errorf("%s: no request for %s has arrived: %v", name, absent, err)
			break
		}
		// RFC 826: the sender's protocol address is at 14, the target's at 24.
		if n >= 28 && netip.AddrFrom4([4]byte(frame[24:28])) == addr(absent) {
			if got := netip.AddrFrom4([4]byte(frame[14:18])); got != want {
				b.t.Errorf("%s: the kernel asks from %s, want %s", name, got, want)
			}
			break
		}
	}
	b.ip("neigh flush to " + absent + " dev eth0 nud all")
}
