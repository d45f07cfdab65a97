// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// narrowMTU is the MTU of the link on the path: the smallest that IPv6 allows.
const narrowMTU = 1280

// The networks of a far client. The first is the client's own.
var (
	farNet4    = netip.MustParsePrefix("198.19.1.0/24")
	farNet6    = netip.MustParsePrefix("2001:2:0:1::/64")
	narrowNet4 = netip.MustParsePrefix("198.19.2.0/24")
	narrowNet6 = netip.MustParsePrefix("2001:2:0:2::/64")
)

// FarNets are the networks that the segment's hosts reach through a far client's gateway.
var FarNets = []netip.Prefix{farNet4, farNet6}

// Far is a client that is two routers away from the segment:
//
//	client --1500-- router --1280-- gateway (a host of the laboratory) --1500-- segment
//
// Neither end can see that a link between them is narrow: its routers have to report it.
type Far struct {
	*namespace.Namespace
	// Addresses are the client's addresses, of both families; each destination can be reached from another one, so that
	// no host has a cached path to it yet.
	Addresses []netip.Addr
}

// The ends of the two links.
const (
	clientEnd, routerEnd = "to-router", "to-client"
	routerUp, gatewayEnd = "to-gateway", "to-far"
)

// NewFar puts a client behind a gateway, with a number of addresses of each family. The hosts of the segment need
// routes to FarNets by the gateway.
func NewFar(tb testing.TB, gateway *lab.Host, addresses int) *Far {
	tb.Helper()
	f := &Far{Namespace: testenv.Namespace(tb)}
	router := testenv.Namespace(tb)
	far := []netip.Prefix{}
	for i := range addresses {
		far = append(far, member(farNet4, 2+i), member(farNet6, 2+i))
		f.Addresses = append(f.Addresses, far[2*i].Addr(), far[2*i+1].Addr())
	}
	testenv.Veth(tb,
		testenv.End{Namespace: f.Namespace, Name: clientEnd, Addresses: far},
		testenv.End{Namespace: router, Name: routerEnd, Addresses: []netip.Prefix{member(farNet4, 1),
			member(farNet6, 1)}})

	var gate *namespace.Namespace
	in(tb, gateway, func() (err error) {
		gate, err = namespace.Current()
		return err
	})
	tb.Cleanup(func() { gate.Close() })
	testenv.Veth(tb,
		testenv.End{Namespace: router, Name: routerUp, Addresses: []netip.Prefix{member(narrowNet4, 2),
			member(narrowNet6, 2)}},
		testenv.End{Namespace: gate, Name: gatewayEnd, Addresses: []netip.Prefix{member(narrowNet4, 1),
			member(narrowNet6, 1)}})

	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	in(tb, f, func() error { return routes(everything, member(farNet4, 1), member(farNet6, 1)) })
	in(tb, router, func() error {
		return errors.Join(forward(), narrow(routerUp),
			routes(everything, member(narrowNet4, 1), member(narrowNet6, 1)))
	})
	in(tb, gate, func() error {
		return errors.Join(forward(), narrow(gatewayEnd), routes(FarNets, member(narrowNet4, 2), member(narrowNet6, 2)))
	})
	return f
}

// member returns address n of a network, with the network's length.
func member(network netip.Prefix, n int) netip.Prefix {
	b := network.Addr().AsSlice()
	b[len(b)-1] = byte(n)
	address, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(address, network.Bits())
}

// narrow sets the MTU of an end of the narrow link. It runs inside the end's namespace.
func narrow(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetMTU(link, narrowMTU)
}

// forward makes the calling thread's namespace a router that announces no shorter routes to hosts.
func forward() error {
	return errors.Join(
		testenv.WriteSysctl("net/ipv4/ip_forward", "1"),
		testenv.WriteSysctl("net/ipv6/conf/all/forwarding", "1"),
		testenv.WriteSysctl("net/ipv4/conf/all/send_redirects", "0"),
		testenv.WriteSysctl("net/ipv4/conf/default/send_redirects", "0"))
}

// routes adds routes to networks through the router of their family. It runs inside a namespace.
func routes(to []netip.Prefix, via ...netip.Prefix) error {
	for _, network := range to {
		for _, router := range via {
			if network.Addr().Is4() != router.Addr().Is4() {
				continue
			}
			if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(network), Gw: router.Addr().AsSlice()}); err != nil {
				return fmt.Errorf("lead to %s by %s: %w", network, router.Addr(), err)
			}
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// LeadToFar adds routes to FarNets by a gateway to the calling thread's namespace, in a routing table (0 is the main
// one).
func LeadToFar(gateway *lab.Host, table int) error {
	for _, network := range FarNets {
		via := gateway.IPv4
		if network.Addr().Is6() {
			via = gateway.IPv6
		}
		if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(network), Gw: via.AsSlice(), Table: table}); err != nil {
			return fmt.Errorf("lead to %s by %s: %w", network, via, err)
		}
	}
	return nil
}
