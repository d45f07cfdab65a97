// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
)

// TestSwitchForwardsPastTheBridge: the switch's program forwards frames to known addresses. Frames between hosts leave
// no trace in the bridge, which learns the addresses of those that it forwards.
func TestSwitchForwardsPastTheBridge(t *testing.T) {
	l := newLab(t)
	if l.fastPath == nil {
		t.Fatalf("the switch has no fast path: %v", l.Notes)
	}
	listener := listen(t, l.Servers[0], l.Servers[0].IPv4)
	dial(t, l.Clients[0], listener.Addr())
	forwarded := portPackets(t, l, l.Servers[0])
	if forwarded < 3 {
		t.Errorf("%d frames went to %s, and a connection takes more", forwarded, l.Servers[0].Name)
	}
	// Without the program the same frames go through the bridge.
	if err := l.fastPath.Close(); err != nil {
		t.Fatal(err)
	}
	dial(t, l.Clients[0], listener.Addr())
	// Close of the lab must accept that the fast path is gone.
	l.fastPath = nil
}

// portPackets counts the packets that the switch sent to a host.
func portPackets(t *testing.T, l *Lab, h *Host) (sent uint64) {
	t.Helper()
	err := l.Switch.Do(func() error {
		statistics, err := netdev.Statistics(h.Port)
		if err == nil {
			sent = statistics.TxPackets
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

// TestSpread makes a client connect to a VIP that both servers have.
func TestSpread(t *testing.T) {
	l := newLab(t)
	accepted := make(chan string, 100)
	for _, server := range l.Servers {
		hold := func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			return netlink.AddrAdd(lo,
				&netlink.Addr{IPNet: &net.IPNet{IP: l.VIP4.AsSlice(), Mask: net.CIDRMask(32, 32)}})
		}
		if err := server.Do(hold); err != nil {
			t.Fatal(err)
		}
		listener := listen(t, server, l.VIP4)
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				connection.Close()
				accepted <- server.Name
			}
		}()
	}
	if err := l.Spread(l.Clients, l.VIP4, l.Servers, true); err != nil {
		t.Fatal(err)
	}
	const connections = 40
	counts := map[string]int{}
	for range connections {
		dial(t, l.Clients[0], &net.TCPAddr{IP: l.VIP4.AsSlice(), Port: 80})
		select {
		case name := <-accepted:
			counts[name]++
		case <-time.After(waitTimeout):
			t.Fatal("a connection was made and the server did not accept it")
		}
	}
	// By chance alone, one server gets fewer than 5 of 40 once in ten million runs.
	for _, server := range l.Servers {
		if counts[server.Name] < 5 {
			t.Errorf("the connections were not spread: %v", counts)
		}
	}
	if err := l.Spread(l.Clients, l.VIP4, l.Servers, false); err != nil {
		t.Fatal(err)
	}
	for _, client := range l.Clients {
		if err := client.Do(func() error { return noRouteTo(l.VIP4.String()) }); err != nil {
			t.Errorf("%s: %v", client.Name, err)
		}
	}
}

// noRouteTo returns an error if there is a separate route to an address.
func noRouteTo(address string) error {
	routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
		return netlink.RouteList(nil, netlink.FAMILY_V4)
	})
	for _, route := range routes {
		if route.Dst != nil && route.Dst.String() == address+"/32" {
			err = fmt.Errorf("the route is still there: %v", route)
		}
	}
	return err
}
