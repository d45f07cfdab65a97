// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
)

// maxPerRole keeps device names ("p-client99-1a2b") within the kernel's 15
// characters (IFNAMSIZ less the terminating zero).
const maxPerRole = 99

// Prefix lengths of the one segment.
const (
	prefix4 = 16
	prefix6 = 64
)

// The VIPs of the address plan.
var (
	vip4 = netip.MustParseAddr("198.18.0.100")
	vip6 = netip.MustParseAddr("2001:2::100")
)

// role is what a host is for.
type role uint8

const (
	roleBalancer role = iota
	roleClient
	roleServer
	roleSwitch
	roleAttacker
	roleRouter
)

func (r role) String() string {
	return [...]string{"balancer", "client", "web", "switch", "attacker", "router"}[r]
}

// hostName returns "balancer", "switch", "attacker", "router", "client01" or "web01"; of several
// balancers the second is "lb02".
func hostName(r role, n int) string {
	switch {
	case r == roleBalancer && n > 1:
		return fmt.Sprintf("lb%02d", n)
	case r == roleBalancer || r == roleSwitch || r == roleAttacker || r == roleRouter:
		return r.String()
	}
	return fmt.Sprintf("%s%02d", r, n)
}

// hostAddresses returns the addresses of host n (from 1) of a role. The last
// group of the IPv6 address reads like the host's number: client12 has ::1:12.
func hostAddresses(r role, n int) (v4, v6 netip.Addr) {
	if r == roleBalancer {
		n = max(n, 1)
		return netip.AddrFrom4([4]byte{198, 18, 0, byte(n)}),
			netip.AddrFrom16([16]byte{0x20, 0x01, 0x00, 0x02, 15: bcd(n)})
	}
	v4 = netip.AddrFrom4([4]byte{198, 18, byte(r), byte(n)})
	v6 = netip.AddrFrom16([16]byte{0x20, 0x01, 0x00, 0x02, 13: byte(r), 15: bcd(n)})
	return v4, v6
}

// roleRange is the range that holds the IPv4 addresses of all hosts of a role.
func roleRange(r role) netip.Prefix {
	v4, _ := hostAddresses(r, 0)
	return netip.PrefixFrom(v4, 24)
}

// hostMAC returns 02:00:12:00:00:01 for the balancer, 02:00:12:01:00:NN for
// clientNN and 02:00:12:02:00:NN for webNN (locally administered, unicast).
func hostMAC(r role, n int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x00, 0x12, byte(r), 0x00, bcd(n)}
}

// portMAC returns the MAC address of the switch's port to a host: the host's,
// with 0xff in the fifth byte.
func portMAC(r role, n int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x00, 0x12, byte(r), 0xff, bcd(n)}
}

// bcd writes a number below 100 so that it reads in hexadecimal as in decimal.
func bcd(n int) byte { return byte(n/10<<4 | n%10) }

// deviceName and portName are the two ends of a host's link. They carry the
// lab's ID, so that one that is seen outside of its namespace shows whose it is.
func deviceName(host, id string) string { return host + "-" + id }
func portName(host, id string) string   { return "p-" + host + "-" + id }
