// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/namespace"
)

// fakeRoles is a map of addresses whose next update fails.
type fakeRoles struct {
	entries map[any]any
	fails   error
}

func (m *fakeRoles) update() (err error) {
	err, m.fails = m.fails, nil
	return err
}

func (m *fakeRoles) Put(key, value any) error {
	if err := m.update(); err != nil {
		return err
	}
	m.entries[key] = value
	return nil
}

func (m *fakeRoles) Delete(key any) error {
	if err := m.update(); err != nil {
		return err
	}
	delete(m.entries, key)
	return nil
}

// TestFailedUpdateOfAddresses: each pass of Watch updates the addresses, also without an event, and reports an update
// that failed.
func TestFailedUpdateOfAddresses(t *testing.T) {
	changes, err := hostnet.Open(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Close()
	ns, err := namespace.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	roles := &fakeRoles{entries: map[any]any{}}
	first, second := netip.MustParseAddr("198.18.9.1"), netip.MustParseAddr("198.18.9.2")
	f := &follower{vips: []netip.Addr{first}, roles: roles, handle: handle, notified: map[netip.Addr]tcAgentRole{}}
	if err := f.refresh(); err != nil {
		t.Fatal(err)
	}
	a := &Agent{ns: ns, changes: changes, follower: f}
	f.vips = []netip.Addr{first, second}
	for _, step := range []struct {
		vips   []netip.Addr
		fails  error
		report string
	}{
		{[]netip.Addr{first, second}, unix.ENOMEM,
			"tell the eBPF program of address 198.18.9.2: cannot allocate memory"},
		{[]netip.Addr{first, second}, nil, ""},
		{[]netip.Addr{second}, unix.EBUSY,
			"tell the eBPF program that address 198.18.9.1 is gone: device or resource busy"},
		{[]netip.Addr{second}, nil, ""},
	} {
		f.vips, roles.fails = step.vips, step.fails
		problems := a.reconcile(slog.New(slog.DiscardHandler))
		if roles.fails != nil {
			t.Errorf("no update, which %q would fail", step.fails)
		}
		if step.fails != nil {
			if !slices.Contains(problems, step.report) {
				t.Errorf("reported %q, want %q", problems, step.report)
			}
			continue
		}
		for _, vip := range []netip.Addr{first, second} {
			if _, there := roles.entries[vip.As16()]; there != slices.Contains(step.vips, vip) {
				t.Errorf("with the VIPs %s, %s is in the map: %v", step.vips, vip, there)
			}
		}
	}
}
