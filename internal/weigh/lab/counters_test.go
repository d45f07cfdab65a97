// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestSockets(t *testing.T) {
	l := newLab(t)
	client, server := l.Clients[0], l.Servers[0]
	for _, addr := range []netip.Addr{server.IPv4, server.IPv6} {
		listener := listen(t, server, addr)
		// The end that closes first keeps the socket in TIME-WAIT.
		c := dial(t, client, listener.Addr())
		s := accept(t, listener)
		c.Close()
		if _, err := s.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("the server reads %v, want the connection's end", err)
		}
		s.Close()
		dial(t, client, listener.Addr())
		accept(t, listener)
	}
	var got SocketCount
	eventually(t, "both closed connections are in TIME-WAIT", func() bool {
		got = sockets(t, client)
		return got.TimeWait == 2
	})
	if diff := cmp.Diff(SocketCount{Total: 4, Established: 2, TimeWait: 2}, got); diff != "" {
		t.Errorf("client (-want +got):\n%s", diff)
	}
	if got := sockets(t, server); got.Listening != 2 || got.Open() != 2 {
		t.Errorf("server has %+v, want two listening and two open", got)
	}
	for _, h := range []*Host{client, server} {
		if err := h.DestroySockets(); err != nil {
			t.Fatal(err)
		}
		if got := sockets(t, h); got.Open() != 0 {
			t.Errorf("%s still has %+v", h.Name, got)
		}
	}
	if got := sockets(t, server); got.Listening != 2 {
		t.Errorf("the listening sockets went too: %+v", got)
	}
	if n, err := client.Conntrack(); n != 0 || err != nil {
		t.Errorf("Conntrack = %d, %v; nothing tracks connections in this lab", n, err)
	}
}

func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func sockets(t *testing.T, h *Host) SocketCount {
	t.Helper()
	count, err := h.Sockets()
	if err != nil {
		t.Fatal(err)
	}
	return count
}

func TestNetStat(t *testing.T) {
	l := newLab(t)
	before := map[string]uint64{}
	for _, h := range l.Hosts() {
		d, err := h.DeviceDrops()
		if err != nil {
			t.Fatal(err)
		}
		before[h.Name] = d.Total()
	}
	listener := listen(t, l.Servers[0], l.Servers[0].IPv4)
	const connections = 20
	for range connections {
		dial(t, l.Clients[0], listener.Addr())
		accept(t, listener)
	}
	got, err := l.Servers[0].NetStat("TcpPassiveOpens", "TcpExtListenDrops", "TcpExtListenOverflows")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{"TcpPassiveOpens": connections, "TcpExtListenDrops": 0, "TcpExtListenOverflows": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	all, err := l.Clients[0].NetStat()
	if err != nil {
		t.Fatal(err)
	}
	if all["TcpActiveOpens"] != connections {
		t.Errorf("the client opened %d connections, want %d", all["TcpActiveOpens"], connections)
	}
	if _, err := l.Clients[0].NetStat("TcpNoSuch"); err == nil || !strings.Contains(err.Error(), "TcpNoSuch") {
		t.Errorf("an unknown counter gives %v; want an error that names it", err)
	}
	// The kernels' own multicasts may meet an end that is not up, or a full queue; each connection takes several
	// frames.
	for _, h := range l.Hosts() {
		d, err := h.DeviceDrops()
		if err != nil || d.Total() >= before[h.Name]+connections {
			t.Errorf("%s: drops %+v, %v, and %d before; nothing was loaded", h.Name, d, err, before[h.Name])
		}
	}
}

// TestDropsOfAQueueingDiscipline: frames that a device's queueing discipline drops are counted, although the device
// does not count them.
func TestDropsOfAQueueingDiscipline(t *testing.T) {
	l := newLab(t)
	client := l.Clients[0]
	before, err := client.DeviceDrops()
	if err != nil {
		t.Fatal(err)
	}
	const datagrams = 5
	err = client.Do(func() error {
		link, err := netlink.LinkByName(client.Interface)
		if err != nil {
			return err
		}
		// It drops all.
		if err := netlink.QdiscReplace(&netlink.GenericQdisc{QdiscType: "blackhole",
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_ROOT,
				Handle: netlink.MakeHandle(2, 0)}}); err != nil {
			return err
		}
		// Otherwise they would wait for the address resolution.
		if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: l.Servers[0].IPv4.AsSlice(), HardwareAddr: l.Servers[0].MAC}); err != nil {
			return err
		}
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(l.Servers[0].IPv4, 7000)))
		if err != nil {
			return err
		}
		defer conn.Close()
		for range datagrams {
			// The sender may get an error for the dropped frame.
			if _, err := conn.Write([]byte("?")); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// A host's own multicasts are dropped, too.
	if d, err := client.DeviceDrops(); err != nil || d.Sub(before).HostTransmit < datagrams {
		t.Errorf("drops %+v since %+v, %v; want those of %d datagrams", d, before, err, datagrams)
	}
}
