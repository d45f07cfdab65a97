// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// TestSilence proves that no host reaches a host that falls silent, that the others reach each other, and that it is
// reached again afterwards, with its sockets and addresses.
func TestSilence(t *testing.T) {
	l := newLab(t)
	silent, other, client := l.Servers[0], l.Servers[1], l.Clients[0]
	at, elsewhere := listen(t, silent, silent.IPv4), listen(t, other, other.IPv4)
	dial(t, client, at.Addr())
	if err := silent.Disconnect(true); err != nil {
		t.Fatal(err)
	}
	err := client.Do(func() error {
		conn, err := net.DialTimeout("tcp", at.Addr().String(), 200*time.Millisecond)
		if err == nil {
			conn.Close()
		}
		return err
	})
	if err == nil {
		t.Error("the silent host was reached")
	}
	dial(t, client, elsewhere.Addr())
	if err := silent.Disconnect(false); err != nil {
		t.Fatal(err)
	}
	dial(t, client, at.Addr())
	listenV6 := listen(t, silent, silent.IPv6)
	dial(t, client, listenV6.Addr())
}

// TestGreet proves that a greeting teaches the other host a MAC address.
func TestGreet(t *testing.T) {
	l := newLab(t)
	if err := l.Servers[0].SendDatagram(l.Balancer); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the balancer knows its neighbour", func() (known bool) {
		err := l.Balancer.Do(func() error {
			entries, err := netdump.Consistent(func() ([]netlink.Neigh, error) {
				return netlink.NeighList(0, unix.AF_INET)
			})
			for _, e := range entries {
				known = known || e.IP.Equal(l.Servers[0].IPv4.AsSlice()) &&
					e.HardwareAddr.String() == l.Servers[0].MAC.String()
			}
			return err
		})
		return err == nil && known
	})
}
