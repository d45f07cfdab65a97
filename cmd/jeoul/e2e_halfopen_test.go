// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// halfOpenPorts is the smallest number of ports of a pool of full NAT.
const halfOpenPorts = 64

// halfOpenClients are clients that do not exist (RFC 5737).
var halfOpenClients = &net.IPNet{IP: net.IPv4(203, 0, 113, 0), Mask: net.CIDRMask(24, 32)}

// TestFullNATAmongHalfOpen: clients that only ever send a SYN occupy all ports of the pool, and the backend has their
// half-open connections. Others are still served: they take such ports over, and the backend's kernel and theirs
// resolve the conflict.
func TestFullNATAmongHalfOpen(t *testing.T) {
	testenv.Target(t, matrixTarget)
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		l := newLab(t, lab.Spec{Clients: 1, Servers: 1})
		b := newBalancer(t, l.Balancer)
		vip := netip.MustParseAddrPort("198.18.0.105:80")
		b.configure(t, hook, entry{
			"services": []entry{{"name": "web", "vip": vip.Addr().String(), "port": vip.Port(), "mode": "fullnat",
				"backends": []entry{{"name": "server", "address": l.Servers[0].IPv4.String(), "port": 8080}}}},
			"fullnat": entry{"addresses": []string{"198.18.0.99"},
				"ports": fmt.Sprintf("%d-%d", firstPoolPort, firstPoolPort+halfOpenPorts-1)}})
		// Replies to clients that do not exist are lost at the real client. ICMP unreachable, as without a route, would
		// end their connections.
		if err := l.Balancer.Do(func() error {
			return netlink.RouteAdd(&netlink.Route{Dst: halfOpenClients, Gw: l.Clients[0].IPv4.AsSlice()})
		}); err != nil {
			t.Fatal(err)
		}
		e2e.StartWeb(t, l.Servers[0], e2e.MakeFiles(t, l.Dir), 8080)
		b.start(t)
		halfOpen(t, l, vip, 10*halfOpenPorts)
		for i := range 10 {
			began := time.Now()
			if _, err := e2e.NewBrowser(l.Clients[0]).Who(bounded(t), vip); err != nil {
				t.Fatalf("connection %d after %v: %v", i, time.Since(began), err)
			}
			// Some ms if the backend reports immediately that it has another connection.
			t.Logf("connection %d took %v", i, time.Since(began))
		}
	})
}

// halfOpen sends SYNs of a number of clients that do not exist.
func halfOpen(t *testing.T, l *lab.Lab, vip netip.AddrPort, n int) {
	t.Helper()
	client := l.Clients[0]
	var ns *namespace.Namespace
	if err := client.Do(func() (err error) { ns, err = namespace.Current(); return err }); err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	wire := testenv.OpenWire(t, ns, client.Interface)
	for i := range n {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP,
			SrcIP: append(halfOpenClients.IP.To4()[:3:3], byte(i)), DstIP: vip.Addr().AsSlice()}
		tcp := &layers.TCP{SrcPort: layers.TCPPort(1024 + i), DstPort: layers.TCPPort(vip.Port()), Seq: rand.Uint32(),
			SYN: true, Window: 65535}
		if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
			t.Fatal(err)
		}
		wire.Send(&layers.Ethernet{SrcMAC: client.MAC, DstMAC: l.Balancer.MAC, EthernetType: layers.EthernetTypeIPv4},
			ip, tcp)
	}
}
