// SPDX-License-Identifier: Apache-2.0

package hostnet_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// router is a host with two links, to a client and to a server.
type router struct {
	t                    *testing.T
	host, client, server *namespace.Namespace
}

func newRouter(t *testing.T) *router {
	r := &router{t: t, host: testenv.Namespace(t), client: testenv.Namespace(t), server: testenv.Namespace(t)}
	prefix := netip.MustParsePrefix
	testenv.Veth(t,
		testenv.End{Namespace: r.host, Name: "eth0.5", Addresses: []netip.Prefix{prefix("198.18.0.1/24"),
			prefix("2001:2:0:1::1/64")}},
		testenv.End{Namespace: r.client, Name: "eth0", Addresses: []netip.Prefix{prefix("198.18.0.2/24"),
			prefix("2001:2:0:1::2/64")}})
	testenv.Veth(t,
		testenv.End{Namespace: r.host, Name: "eth1", Addresses: []netip.Prefix{prefix("198.18.1.1/24"),
			prefix("2001:2:0:2::1/64")}},
		testenv.End{Namespace: r.server, Name: "eth0", Addresses: []netip.Prefix{prefix("198.18.1.2/24"),
			prefix("2001:2:0:2::2/64")}})
	r.defaultRoutes(r.client, "198.18.0.1", "2001:2:0:1::1")
	r.defaultRoutes(r.server, "198.18.1.1", "2001:2:0:2::1")
	return r
}

func (r *router) defaultRoutes(ns *namespace.Namespace, via ...string) {
	r.t.Helper()
	testenv.In(r.t, ns, func() error {
		for _, gateway := range via {
			if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}); err != nil {
				return fmt.Errorf("default route via %s: %w", gateway, err)
			}
		}
		return nil
	})
}

// forwards reports whether a packet from the client reaches the server's kernel, which refuses the connection.
func (r *router) forwards(server string) bool {
	r.t.Helper()
	answered := false
	testenv.In(r.t, r.client, func() (err error) {
		answered, err = isRefused(netip.AddrPortFrom(netip.MustParseAddr(server), 9))
		return err
	})
	return answered
}

// isRefused reports whether a connection is refused soon. Unlike a timeout of Go's, poll(2) looks for the answer when
// its time has passed, too: the process may have stood still meanwhile.
func isRefused(to netip.AddrPort) (bool, error) {
	family, at := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(to.Port())})
	if to.Addr().Is4() {
		at.(*unix.SockaddrInet4).Addr = to.Addr().As4()
	} else {
		family, at = unix.AF_INET6, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, at); !errors.Is(err, unix.EINPROGRESS) {
		return errors.Is(err, unix.ECONNREFUSED), nil
	}
	ready := 0
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		ready, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 300)
	}
	if err != nil || ready == 0 {
		return false, err
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code == 0 {
		err = fmt.Errorf("a program listens on %v", to)
	}
	return unix.Errno(code) == unix.ECONNREFUSED, err
}

// sysctls returns all IPv4 and IPv6 settings of interfaces.
func (r *router) sysctls() map[string]string {
	r.t.Helper()
	values := map[string]string{}
	testenv.In(r.t, r.host, func() error {
		for _, pattern := range []string{"ipv4/conf/*/*", "ipv6/conf/*/*", "ipv4/ip_forward"} {
			files, err := filepath.Glob("/proc/sys/net/" + pattern)
			if err != nil {
				return err
			}
			for _, file := range files {
				if data, err := os.ReadFile(file); err == nil { // some can only be written
					values[strings.TrimPrefix(file, "/proc/sys/net/")] = strings.TrimSpace(string(data))
				}
			}
		}
		return nil
	})
	return values
}

// changed returns the sysctls that differ from before.
func (r *router) changed(before map[string]string) map[string]string {
	after := r.sysctls()
	maps.DeleteFunc(after, func(name, value string) bool { return before[name] == value })
	return after
}

func (r *router) set(name, value string) {
	r.t.Helper()
	testenv.In(r.t, r.host, func() error { return testenv.WriteSysctl("net/"+name, value) })
}

func TestForward(t *testing.T) {
	r := newRouter(t)
	r.set("ipv4/conf/all/rp_filter", "1")
	before := r.sysctls()
	if before["ipv4/conf/all/send_redirects"] != "1" || before["ipv6/conf/eth1/accept_ra"] != "1" {
		t.Fatalf("a new namespace is other than this test expects: %v", before)
	}
	c := open(t, r.host, t.TempDir())
	links := []string{"eth0.5", "eth1"}
	if err := c.EnableForwarding(links, true, false); err != nil {
		t.Fatal(err)
	}
	four := map[string]string{
		"ipv4/conf/all/send_redirects":    "0",
		"ipv4/conf/eth0.5/send_redirects": "0", "ipv4/conf/eth1/send_redirects": "0",
		"ipv4/conf/eth0.5/accept_local": "1", "ipv4/conf/eth1/accept_local": "1",
		"ipv4/conf/eth0.5/forwarding": "1", "ipv4/conf/eth1/forwarding": "1",
		"ipv4/conf/eth1/rp_filter": "2",
	}
	if diff := cmp.Diff(four, r.changed(before)); diff != "" {
		t.Errorf("for IPv4 (-want +got):\n%s", diff)
	}
	if !r.forwards("198.18.1.2") || r.forwards("2001:2:0:2::2") {
		t.Error("want IPv4 forwarded, and IPv6 not")
	}

	if err := c.EnableForwarding(links, true, true); err != nil {
		t.Fatal(err)
	}
	if !r.forwards("198.18.1.2") || !r.forwards("2001:2:0:2::2") {
		t.Error("want both families forwarded")
	}
	both := r.changed(before)
	for _, name := range []string{"ipv6/conf/eth0.5/forwarding", "ipv6/conf/eth1/forwarding"} {
		if both[name] != "1" {
			t.Errorf("%s is %q", name, both[name])
		}
	}

	if err := c.EnableForwarding(links, false, true); err != nil {
		t.Fatal(err)
	}
	if r.forwards("198.18.1.2") || !r.forwards("2001:2:0:2::2") {
		t.Error("want IPv6 forwarded, and IPv4 not")
	}
	if err := c.EnableForwarding(links, false, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{}, r.changed(before)); diff != "" {
		t.Errorf("not taken back:\n%s", diff)
	}

	if err := c.EnableForwarding(links, true, true); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{}, r.changed(before)); diff != "" {
		t.Errorf("not taken back by Close:\n%s", diff)
	}
}

// TestForwardKeepsRouters: the default route that a router has announced on an unrelated interface survives.
func TestForwardKeepsRouters(t *testing.T) {
	r := newRouter(t)
	mac, ip := linkLocal(t, r.client)
	wire := testenv.OpenWire(t, r.client, "eth0")
	testenv.Eventually(t, testenv.WaitLimit, "the announced router is the default", func() bool {
		advertise(t, wire, mac, ip) // again, as routers do: one may be dropped on its way
		return r.hasDefault6()
	})
	c := open(t, r.host, t.TempDir())
	if err := c.EnableForwarding([]string{"eth1"}, true, true); err != nil {
		t.Fatal(err)
	}
	if !r.hasDefault6() {
		t.Error("the default route is gone while forwarding")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if !r.hasDefault6() {
		t.Error("the default route is gone afterwards")
	}
}

func (r *router) hasDefault6() (found bool) {
	r.t.Helper()
	testenv.In(r.t, r.host, func() error {
		routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
			return netlink.RouteList(nil, netlink.FAMILY_V6)
		})
		for _, route := range routes {
			ones := 0
			if route.Dst != nil {
				ones, _ = route.Dst.Mask.Size()
			}
			found = found || route.Gw != nil && ones == 0
		}
		return err
	})
	return found
}

// linkLocal returns the MAC and the link-local address of eth0.
func linkLocal(t *testing.T, ns *namespace.Namespace) (mac net.HardwareAddr, ip net.IP) {
	t.Helper()
	testenv.In(t, ns, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addrs, err := netdump.Consistent(func() ([]netlink.Addr, error) {
			return netlink.AddrList(link, netlink.FAMILY_V6)
		})
		for _, a := range addrs {
			if a.IP.IsLinkLocalUnicast() {
				mac, ip = link.Attrs().HardwareAddr, a.IP
			}
		}
		return err
	})
	return mac, ip
}

// advertise sends a router advertisement of mac to the link.
func advertise(t *testing.T, wire *testenv.Wire, mac net.HardwareAddr, ip net.IP) {
	t.Helper()
	all := net.ParseIP("ff02::1")
	header := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: 255, SrcIP: ip, DstIP: all}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeRouterAdvertisement, 0)}
	if err := icmp.SetNetworkLayerForChecksum(header); err != nil {
		t.Fatal(err)
	}
	wire.Send(&layers.Ethernet{SrcMAC: mac, DstMAC: net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1},
		EthernetType: layers.EthernetTypeIPv6},
		header, icmp, &layers.ICMPv6RouterAdvertisement{HopLimit: 64, RouterLifetime: 1800})
}

// TestForwardRefused: if one sysctl cannot be set, the others stay unchanged.
func TestForwardRefused(t *testing.T) {
	r := newRouter(t)
	before := r.sysctls()
	c := open(t, r.host, t.TempDir())
	if err := c.EnableForwarding([]string{"eth0.5", "nothere"}, true, true); err == nil {
		t.Error("an interface that does not exist forwards")
	}
	if diff := cmp.Diff(map[string]string{}, r.changed(before)); diff != "" {
		t.Errorf("changed all the same:\n%s", diff)
	}
}

// TestForwardElsewhere changes the links on which a host forwards. The settings follow, including those of links other
// than the first.
func TestForwardElsewhere(t *testing.T) {
	r := newRouter(t)
	r.set("ipv4/conf/all/rp_filter", "1")
	before := r.sysctls()
	testenv.In(t, r.host, func() error {
		// The settings for each list of links when it is requested first.
		want := map[string]map[string]string{}
		lists := [][]string{{"eth0.5"}, {"eth0.5", "eth1"}, {"eth1", "eth0.5"}, {"eth1"}}
		for _, links := range lists {
			c, err := hostnet.Open(t.TempDir(), "test")
			if err != nil {
				return err
			}
			if err := c.EnableForwarding(links, true, true); err != nil {
				return err
			}
			want[fmt.Sprint(links)] = r.changed(before)
			if err := c.Close(); err != nil {
				return err
			}
		}
		dir := t.TempDir()
		c, err := hostnet.Open(dir, "test")
		if err != nil {
			return err
		}
		for _, links := range append(lists, lists[0], lists[3], lists[1], lists[0]) {
			if err := c.EnableForwarding(links, true, true); err != nil {
				return err
			}
			same(t, fmt.Sprint(links), want[fmt.Sprint(links)], r.changed(before))
		}
		// Another process continues with other links.
		c.Detach()
		if c, err = hostnet.Adopt(dir, "test"); err != nil {
			return err
		}
		if err := c.EnableForwarding(lists[3], true, true); err != nil {
			return err
		}
		same(t, "by another process", want[fmt.Sprint(lists[3])], r.changed(before))
		if err := c.Close(); err != nil {
			return err
		}
		same(t, "taken back", map[string]string{}, r.changed(before))
		return nil
	})
}
