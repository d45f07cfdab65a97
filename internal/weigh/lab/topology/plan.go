// SPDX-License-Identifier: Apache-2.0

// Package topology holds the plan of a laboratory: the roles of hosts, their names, addresses and MAC addresses, and
// the settings that a host of each role gets.
package topology

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
)

// MaxPerRole keeps device names ("p-client99-1a2b") within the kernel's 15
// characters (IFNAMSIZ less the terminating zero).
const MaxPerRole = 99

// Prefix lengths of the one segment.
const (
	Prefix4 = 16
	Prefix6 = 64
)

// The VIPs of the address plan.
var (
	VIP4 = netip.MustParseAddr("198.18.0.100")
	VIP6 = netip.MustParseAddr("2001:2::100")
)

// Role is the part that a host has in a laboratory.
type Role uint8

// The roles.
const (
	Balancer Role = iota
	Client
	Server
	Switch
	Attacker
	Router
)

// String returns the beginning of the names of hosts of the role.
func (r Role) String() string {
	return [...]string{"balancer", "client", "web", "switch", "attacker", "router"}[r]
}

// HostName returns "balancer", "switch", "attacker", "router", "client01" or "web01"; the second of several balancers
// is "lb02".
func HostName(r Role, n int) string {
	switch {
	case r == Balancer && n > 1:
		return fmt.Sprintf("lb%02d", n)
	case r == Balancer || r == Switch || r == Attacker || r == Router:
		return r.String()
	}
	return fmt.Sprintf("%s%02d", r, n)
}

// Addresses returns the addresses of host n (from 1) of a role. The last
// group of the IPv6 address reads like the host's number: client12 has ::1:12.
func Addresses(r Role, n int) (v4, v6 netip.Addr) {
	if r == Balancer {
		n = max(n, 1)
		return netip.AddrFrom4([4]byte{198, 18, 0, byte(n)}),
			netip.AddrFrom16([16]byte{0x20, 0x01, 0x00, 0x02, 15: bcd(n)})
	}
	v4 = netip.AddrFrom4([4]byte{198, 18, byte(r), byte(n)})
	v6 = netip.AddrFrom16([16]byte{0x20, 0x01, 0x00, 0x02, 13: byte(r), 15: bcd(n)})
	return v4, v6
}

// Range is the range that holds the IPv4 addresses of all hosts of a role.
func Range(r Role) netip.Prefix {
	v4, _ := Addresses(r, 0)
	return netip.PrefixFrom(v4, 24)
}

// MAC returns 02:00:12:00:00:01 for the balancer, 02:00:12:01:00:NN for
// clientNN and 02:00:12:02:00:NN for webNN (locally administered, unicast).
func MAC(r Role, n int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x00, 0x12, byte(r), 0x00, bcd(n)}
}

// PortMAC returns the MAC address of the switch's port to a host: the host's MAC address, with 0xff in the fifth byte.
func PortMAC(r Role, n int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x00, 0x12, byte(r), 0xff, bcd(n)}
}

// bcd returns the byte whose hexadecimal digits are the decimal digits of a number below 100.
func bcd(n int) byte { return byte(n/10<<4 | n%10) }

// DeviceName and PortName are the two ends of a host's link. They include the lab's ID, so that a device outside of its
// namespace shows to which lab it belongs.
func DeviceName(host, id string) string { return host + "-" + id }

// PortName is the far end: see [DeviceName].
func PortName(host, id string) string { return "p-" + host + "-" + id }

// ContainerBridge is the bridge's address, and ContainerBridge6 its IPv6 address. Server NN has 198.19.2.NN and
// 2001:2:0:1::2:NN.
var (
	ContainerBridge  = netip.MustParseAddr("198.19.0.1")
	ContainerBridge6 = netip.MustParseAddr("2001:2:0:1::1")
)

// ContainerAddresses returns the addresses of server n (from 1) behind the bridge.
func ContainerAddresses(n int) (v4, v6 netip.Addr) {
	v4 = netip.AddrFrom4([4]byte{198, 19, byte(Server), byte(n)})
	v6 = netip.AddrFrom16([16]byte{0x20, 0x01, 0x00, 0x02, 7: 1, 13: byte(Server), 15: bcd(n)})
	return v4, v6
}

// MACWord returns a MAC address as eBPF programs read it: the first six bytes of a word.
func MACWord(mac net.HardwareAddr) uint64 {
	var b [8]byte
	copy(b[:], mac)
	return binary.NativeEndian.Uint64(b[:])
}
