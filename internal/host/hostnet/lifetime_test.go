// SPDX-License-Identifier: Apache-2.0

package hostnet_test

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// lifetimes returns the lifetimes of the addresses of a link, in seconds.
func lifetimes(t *testing.T, ns *namespace.Namespace, name string) map[netip.Addr]int {
	t.Helper()
	found := map[netip.Addr]int{}
	testenv.In(t, ns, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		list, err := netdump.Consistent(func() ([]netlink.Addr, error) {
			return netlink.AddrList(link, netlink.FAMILY_ALL)
		})
		for _, a := range list {
			addr, _ := netip.AddrFromSlice(a.IP)
			found[addr.Unmap()] = a.ValidLft
		}
		return err
	})
	return found
}

// TestAddressesEndWithTheirProcess: the kernel removes addresses that no process renews. Addresses that another program
// has added, and permanent ones, remain.
func TestAddressesEndWithTheirProcess(t *testing.T) {
	ns := testenv.Namespace(t)
	c := open(t, ns, t.TempDir())
	defer c.Close()
	theirs := netip.MustParseAddr("198.18.0.7")
	testenv.In(t, ns, func() error {
		link, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(link, &netlink.Addr{IPNet: netlink.NewIPNet(theirs.AsSlice())})
	})
	all, short, long := []netip.Addr{vip4, vip6, theirs}, vip, vip
	short.Lifetime, long.Lifetime = time.Second, time.Hour
	expect := func(when string, ok func(lifetime int) bool) {
		t.Helper()
		for addr, lifetime := range lifetimes(t, ns, "lo") {
			if addr.IsLoopback() {
				continue
			}
			if addr == theirs && lifetime != math.MaxUint32 || addr != theirs && !ok(lifetime) {
				t.Errorf("%s: %s stays for %d s", when, addr, lifetime)
			}
		}
		if held, err := c.InstalledAddresses("lo"); err != nil || len(held) != 2 {
			t.Errorf("%s: ours are %v: %v", when, held, err)
		}
	}
	bounded, forever := func(s int) bool { return s > 3000 && s <= 3600 }, func(s int) bool {
		return s == math.MaxUint32
	}
	for _, each := range []struct {
		when string
		do   func() error
		ok   func(int) bool
	}{
		{"for good", func() error { return c.AddAddresses("lo", all, vip) }, forever},
		{"for an hour", func() error { return c.RenewAddresses("lo", all, long) }, bounded},
		{"for good again", func() error { return c.RenewAddresses("lo", all, vip) }, forever},
		{"for a second", func() error { return c.RenewAddresses("lo", all, short) }, func(s int) bool {
			return s <= 1
		}},
	} {
		if err := each.do(); err != nil {
			t.Fatalf("%s: %v", each.when, err)
		}
		if each.when != "for a second" {
			expect(each.when, each.ok)
		}
	}
	gone := func() bool {
		held, err := c.InstalledAddresses("lo")
		return err == nil && len(held) == 0
	}
	testenv.Eventually(t, testenv.WaitLimit, "the kernel has taken away what was not renewed", gone)
	if _, there := lifetimes(t, ns, "lo")[theirs]; !there {
		t.Error("another program's address is gone")
	}
	if err := c.RenewAddresses("lo", all, long); err != nil {
		t.Fatal(err)
	}
	expect("renewed too late", bounded)
	if err := c.RemoveAddresses("lo", all); err != nil || !gone() {
		t.Errorf("taking away addresses that were renewed: %v", err)
	}
	long.Lifetime = time.Second
	if err := c.AddAddresses("lo", all, long); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, testenv.WaitLimit, "the kernel has taken away what was put there for a second", gone)
}
