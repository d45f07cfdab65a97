// SPDX-License-Identifier: Apache-2.0

package hostnet_test

import (
	"net/netip"
	"testing"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestInherit continues with the changes of a process that ended, by a kill or regularly. All of them remain, and the
// last process's Close undoes them.
func TestInherit(t *testing.T) {
	ns, dir := testenv.Namespace(t), t.TempDir()
	before := readSettings(t, ns)
	kill(t, ns, dir)
	changed := readSettings(t, ns)
	inherit := func() (c *hostnet.Changes) {
		t.Helper()
		testenv.In(t, ns, func() (err error) {
			c, err = hostnet.Adopt(dir, "test")
			return err
		})
		return c
	}
	for range 2 {
		c := inherit()
		same(t, "taken over", changed, readSettings(t, ns))
		if err := c.AddAddresses("lo", []netip.Addr{vip4, vip6}, vip); err != nil {
			t.Fatal(err)
		}
		same(t, "what was done", []string(nil), texts(c.Events()))
		c.Detach()
		same(t, "left", changed, readSettings(t, ns))
	}
	c := inherit()
	if err := c.RetainAddresses("lo", []netip.Addr{vip6}); err != nil {
		t.Fatal(err)
	}
	same(t, "what was not wanted any more", []string{"198.18.0.100/32 on lo: present → absent"}, texts(c.Events()))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "taken back", before, readSettings(t, ns))
	empty(t, dir)
}

// TestInheritForwarding adopts half of the settings for forwarding, and undoes all of them.
func TestInheritForwarding(t *testing.T) {
	r := newRouter(t)
	before, dir := r.sysctls(), t.TempDir()
	links := []string{"eth0.5", "eth1"}
	testenv.In(t, r.host, func() error {
		c, err := hostnet.Open(dir, "test")
		if err != nil {
			return err
		}
		if err := c.EnableForwarding(links, true, true); err != nil {
			return err
		}
		whole := r.changed(before)
		// As if the process had been killed before it set the last one.
		r.set("ipv4/conf/eth1/forwarding", "0")
		c.Detach()
		if c, err = hostnet.Adopt(dir, "test"); err != nil {
			return err
		}
		if err := c.EnableForwarding(links, true, true); err != nil {
			return err
		}
		same(t, "forwarding again", whole, r.changed(before))
		if err := c.EnableForwarding(links, false, false); err != nil {
			return err
		}
		same(t, "no more", map[string]string{}, r.changed(before))
		return c.Close()
	})
}

// TestKeepAddressesOfOneLink removes addresses from other links, left by a process that was killed while it moved its
// addresses.
func TestKeepAddressesOfOneLink(t *testing.T) {
	r := newRouter(t)
	testenv.In(t, r.host, func() error {
		c, err := hostnet.Open(t.TempDir(), "test")
		if err != nil {
			return err
		}
		defer c.Close()
		for _, link := range []string{"eth0.5", "eth1"} {
			if err := c.AddAddresses(link, []netip.Addr{vip4, vip6}, vip); err != nil {
				return err
			}
		}
		c.Events()
		if err := c.RetainAddresses("eth1", []netip.Addr{vip4}); err != nil {
			return err
		}
		same(t, "what was not wanted any more", []string{"198.18.0.100/32 on eth0.5: present → absent",
			"2001:2::100/128 on eth0.5: present → absent", "2001:2::100/128 on eth1: present → absent"},
			texts(c.Events()))
		for _, vip := range []netip.Addr{vip4, vip6} {
			links, err := c.Links(vip)
			if err != nil || len(links) != 1-vip.BitLen()/128 {
				t.Errorf("%s is on %q, %v", vip, links, err)
			}
		}
		return nil
	})
}
