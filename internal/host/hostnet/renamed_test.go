// SPDX-License-Identifier: Apache-2.0

package hostnet_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// rename gives a link another name.
func rename(t *testing.T, ns *namespace.Namespace, from, to string) {
	t.Helper()
	testenv.In(t, ns, func() error {
		link, err := netlink.LinkByName(from)
		if err != nil {
			return err
		}
		return netlink.LinkSetName(link, to)
	})
}

// TestRenamedLink: a renamed link is still the one that has the address.
func TestRenamedLink(t *testing.T) {
	ns := testenv.Namespace(t)
	testenv.Veth(t, testenv.End{Namespace: ns, Name: "eth0"}, testenv.End{Namespace: ns, Name: "eth1"})
	c := open(t, ns, t.TempDir())
	defer c.Close()
	long := hostnet.AddressOptions{Lifetime: time.Hour}
	if err := c.AddAddress("eth0", vip4, long); err != nil {
		t.Fatal(err)
	}
	rename(t, ns, "eth0", "wan0")
	if links, err := c.Links(vip4); err != nil || !cmp.Equal(links, []string{"wan0"}) {
		t.Errorf("Links = %q, %v", links, err)
	}
	if held, err := c.InstalledAddresses("wan0"); err != nil || len(held) != 1 || held[0] != vip4 {
		t.Errorf("wan0 has %v of ours: %v", held, err)
	}
	long.Lifetime = 2 * time.Hour
	if err := c.RenewAddresses("wan0", []netip.Addr{vip4}, long); err != nil {
		t.Fatal(err)
	}
	if seconds := lifetimes(t, ns, "wan0")[vip4]; seconds <= 3600 {
		t.Errorf("after it was renewed, the address stays for %d s", seconds)
	}
	if err := c.RetainAddresses("wan0", []netip.Addr{vip4}); err != nil {
		t.Fatal(err)
	}
	if _, there := lifetimes(t, ns, "wan0")[vip4]; !there {
		t.Error("the address that is to stay was removed")
	}
	if err := c.RemoveAddress("wan0", vip4); err != nil {
		t.Fatal(err)
	}
	if _, there := lifetimes(t, ns, "wan0")[vip4]; there {
		t.Error("the address was not removed")
	}
}

// TestClosedAfterRename: Close undoes changes of a link that was renamed.
func TestClosedAfterRename(t *testing.T) {
	ns := testenv.Namespace(t)
	testenv.Veth(t, testenv.End{Namespace: ns, Name: "eth0"}, testenv.End{Namespace: ns, Name: "eth1"})
	c := open(t, ns, t.TempDir())
	if err := c.AddAddress("eth0", vip4, vip); err != nil {
		t.Fatal(err)
	}
	if err := c.SetSysctl("net.ipv4.conf.eth0.send_redirects", "0"); err != nil {
		t.Fatal(err)
	}
	rename(t, ns, "eth0", "wan0")
	rename(t, ns, "eth1", "eth0")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, there := lifetimes(t, ns, "wan0")[vip4]; there {
		t.Error("the address is still there")
	}
	testenv.In(t, ns, func() error {
		value, err := testenv.Sysctl("net/ipv4/conf/wan0/send_redirects")
		if value != "1" {
			t.Errorf("send_redirects of wan0 is %q afterwards, want 1", value)
		}
		return err
	})
}

// TestForwardingAfterRename: the settings of a link stay in force under its next name, and are restored there.
func TestForwardingAfterRename(t *testing.T) {
	r := newRouter(t)
	r.set("ipv4/conf/eth1/rp_filter", "1")
	before := r.sysctls()
	c := open(t, r.host, t.TempDir())
	defer c.Close()
	enable := func(four, six bool, links ...string) {
		t.Helper()
		if err := c.EnableForwarding(links, four, six); err != nil {
			t.Fatal(err)
		}
	}
	enable(true, true, "eth0.5", "eth1")
	set := r.changed(before)
	rename(t, r.host, "eth1", "wan1")
	enable(true, true, "eth0.5", "wan1")
	rename(t, r.host, "wan1", "eth1")
	if diff := cmp.Diff(set, r.changed(before)); diff != "" {
		t.Errorf("under its next name, the link has other settings (-before +after):\n%s", diff)
	}
	rename(t, r.host, "eth1", "wan1")
	enable(false, false)
	rename(t, r.host, "wan1", "eth1")
	if left := r.changed(before); len(left) > 0 {
		t.Errorf("afterwards these differ: %v", left)
	}
}
