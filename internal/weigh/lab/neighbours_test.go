// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// permanent counts the permanent neighbour entries of a host.
func permanent(t *testing.T, h *Host) (n int) {
	t.Helper()
	if err := h.Do(func() error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			list, err := netdump.Consistent(func() ([]netlink.Neigh, error) {
				return netlink.NeighList(0, family)
			})
			if err != nil {
				return err
			}
			for _, neighbour := range list {
				if neighbour.State == netlink.NUD_PERMANENT {
					n++
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNeighbours: in a large lab clients and servers have entries for each other, and none has one for the balancer; in
// a small lab no host has an entry for another.
func TestNeighbours(t *testing.T) {
	testenv.Root(t)
	for _, test := range []struct{ clients, servers int }{{16, 16}, {16, 17}} {
		l, err := New(t.Context(), Spec{Clients: test.clients, Servers: test.servers})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		large := 2*test.clients*test.servers > neighbourRoom
		for _, h := range []*Host{l.Clients[3], l.Servers[5], l.Balancer} {
			want := 0
			switch {
			case large && h == l.Clients[3]:
				want = 2 * test.servers
			case large && h == l.Servers[5]:
				want = 2 * test.clients
			}
			if got := permanent(t, h); got != want {
				t.Errorf("%d clients, %d servers: %s was told %d neighbours, want %d", test.clients, test.servers,
					h.Name, got, want)
			}
		}
		if noted := strings.Contains(strings.Join(l.Notes, "\n"), "know each other's MAC addresses"); noted != large {
			t.Errorf("%d clients, %d servers: noted: %t", test.clients, test.servers, noted)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
