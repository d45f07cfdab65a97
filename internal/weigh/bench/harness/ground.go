// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Addresses of measured services and their clients: in the ranges reserved for benchmarks (RFC 2544 section C.2.2, RFC
// 5180 section 8). No packet leaves the machine.
var (
	Client4 = netip.MustParseAddr("198.18.0.0")
	Client6 = netip.MustParseAddr("2001:2::")
	// Local4 and Local6 are the balancer's own addresses.
	Local4 = netip.MustParseAddr("198.19.255.1")
	Local6 = netip.MustParseAddr("2001:2:0:ff::1")
)

// VIP4 and VIP6 return the n-th address that a service can have.
func VIP4(n byte) netip.Addr { return netip.AddrFrom4([4]byte{198, 19, 0, n}) }

// VIP6 is described at VIP4.
func VIP6(n byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0x20, 1, 0, 2, 0, 0, 0, 1, 15: n})
}

// Addresses returns n consecutive addresses, beginning with first.
func Addresses(first netip.Addr, n int) []netip.Addr {
	list := make([]netip.Addr, 0, n)
	for address := first; len(list) < n; address = address.Next() {
		list = append(list, address)
	}
	return list
}

// Service returns a service with backends that are all up, at consecutive addresses beginning with first. Backends get
// the weights in turn; without weights, all have weight 1.
func Service(s lb.Service, first netip.Addr, backends int, weights ...uint16) lb.RoutedService {
	made := lb.RoutedService{Service: s}
	if made.Name == "" {
		made.Name = fmt.Sprintf("%s-%s-%s", s.Mode, s.Scheduler, s.Key())
	}
	for i, address := range Addresses(first, backends) {
		weight := uint16(1)
		if len(weights) > 0 {
			weight = weights[i%len(weights)]
		}
		made.Backends = append(made.Backends, lb.Backend{
			Name: fmt.Sprintf("web%02d", i+1), Address: address, Port: s.Port, Weight: weight})
		made.Paths = append(made.Paths, PathTo(address, uint32(i)))
	}
	return made
}

// PathTo returns a path to an address on the link. The MAC address of the next hop ends in number, which Seen.To then
// shows.
func PathTo(address netip.Addr, number uint32) lb.Path {
	mac := binary.BigEndian.AppendUint32(net.HardwareAddr{2, 1}, number)
	path := lb.Path{MAC: mac, Source: OwnMAC, Local: Local4}
	if address.Is6() {
		path.Local = Local6
	}
	return path
}
