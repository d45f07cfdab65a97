// SPDX-License-Identifier: Apache-2.0

package replyroutes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// mac is a MAC address; zeros are none.
type mac [lb.MACLength]byte

// neighbour names a router on an interface.
type neighbour struct {
	index   int // of the interface; 0 is no neighbour
	address netip.Addr
}

// validStates are the states in which the kernel sends to a neighbour (NUD_VALID of include/net/neighbour.h).
const validStates = unix.NUD_PERMANENT | unix.NUD_NOARP | unix.NUD_REACHABLE | unix.NUD_PROBE | unix.NUD_STALE |
	unix.NUD_DELAY

// route is a route of the table main.
type route struct {
	prefix netip.Prefix
	// router is its next hop; the zero value where the kernel is to be asked.
	router neighbour
}

// table has the routes and rules of a family.
type table struct {
	family uint8
	main   []route
	local  []netip.Prefix
	// reducedMTU: the kernel has learned of paths with a smaller MTU.
	reducedMTU bool
	// kernelReason says why the kernel is asked of all of it; "" where it is not.
	kernelReason string
}

// errShort: a message is cut short.
var errShort = errors.New("a message of the kernel is cut short")

// read reads a family's routes. Errors: errTooMany, errPolicyRouting.
func (t *table) read() error {
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: t.family}})
	var failed error
	err := request.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE, func(m []byte) bool {
		if failed = t.addRoute(m); failed == nil && len(t.main)+len(t.local) > maxRoutes {
			failed = errTooMany
		}
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("read the kernel's routes: %w", err)
	}
	return nil
}

// addRoute adds a route from a message of the kernel. Errors: errPolicyRouting, errShort.
func (t *table) addRoute(m []byte) error {
	if len(m) < unix.SizeofRtMsg {
		return errShort
	}
	head := nl.DeserializeRtMsg(m)
	attributes, err := nl.ParseRouteAttr(m[unix.SizeofRtMsg:])
	if err != nil {
		return fmt.Errorf("%w: %w", errShort, err)
	}
	if head.Flags&unix.RTM_F_CLONED != 0 {
		t.reducedMTU = true
		return nil
	}
	if head.Src_len != 0 {
		return errPolicyRouting
	}
	number, destination, one := uint32(head.Table), netip.IPv4Unspecified(), route{}
	if t.family == unix.AF_INET6 {
		destination = netip.IPv6Unspecified()
	}
	certain := head.Type == unix.RTN_UNICAST && head.Tos == 0 && head.Flags&^unix.RTNH_F_ONLINK == 0
	for _, a := range attributes {
		switch value := a.Value; a.Attr.Type {
		case unix.RTA_TABLE:
			number = readUint32(value)
		case unix.RTA_DST:
			destination, _ = netip.AddrFromSlice(value)
		case unix.RTA_GATEWAY:
			one.router.address, _ = netip.AddrFromSlice(value)
		case unix.RTA_OIF:
			one.router.index = int(readUint32(value))
		case unix.RTA_PRIORITY, unix.RTA_PREFSRC, unix.RTA_PREF, unix.RTA_FLOW:
		case unix.RTA_CACHEINFO:
			certain = certain && !hasLifetime(value)
		case unix.RTA_METRICS:
			certain = certain && !setsMTU(value)
		default:
			certain = false
		}
	}
	one.prefix = netip.PrefixFrom(destination, int(head.Dst_len))
	if !one.prefix.IsValid() || destination.Is6() != (t.family == unix.AF_INET6) {
		return fmt.Errorf("%w: a route to %v", errShort, one.prefix)
	}
	if !certain || !one.router.address.IsValid() {
		one.router = neighbour{}
	}
	switch number {
	case unix.RT_TABLE_LOCAL:
		t.local = append(t.local, one.prefix)
	case unix.RT_TABLE_MAIN:
		t.main = append(t.main, one)
	}
	return nil
}

// readUint32 is a number of the kernel's; 0 where it is cut short.
func readUint32(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(value)
}

// hasLifetime reports whether a route has a lifetime, by its struct rta_cacheinfo.
func hasLifetime(value []byte) bool {
	const at = 8 // rta_expires, the third word
	return len(value) < at+4 || readUint32(value[at:]) != 0
}

// setsMTU reports whether a route's metrics set an MTU, or lock one.
func setsMTU(value []byte) bool {
	metrics, err := nl.ParseRouteAttr(value)
	if err != nil {
		return true
	}
	for _, m := range metrics {
		if m.Attr.Type == unix.RTAX_MTU || m.Attr.Type == unix.RTAX_LOCK {
			return true
		}
	}
	return false
}

// defaultRules are the tables of the rules that the kernel begins with, by the rules' priorities.
var defaultRules = map[uint32]uint32{0: unix.RT_TABLE_LOCAL, 32766: unix.RT_TABLE_MAIN, 32767: unix.RT_TABLE_DEFAULT}

// defaultRule returns the table of one of defaultRules, and RT_TABLE_UNSPEC of any other rule.
func defaultRule(m []byte) uint32 {
	if len(m) < unix.SizeofRtMsg {
		return unix.RT_TABLE_UNSPEC
	}
	head := nl.DeserializeRtMsg(m)
	attributes, err := nl.ParseRouteAttr(m[unix.SizeofRtMsg:])
	if err != nil || head.Src_len != 0 || head.Dst_len != 0 || head.Tos != 0 || head.Flags != 0 ||
		head.Type != unix.RTN_UNICAST {
		return unix.RT_TABLE_UNSPEC
	}
	number, priority := uint32(head.Table), uint32(0)
	for _, a := range attributes {
		switch a.Attr.Type {
		case unix.FRA_TABLE:
			number = readUint32(a.Value)
		case unix.FRA_PRIORITY:
			priority = readUint32(a.Value)
		case unix.FRA_PROTOCOL:
		case unix.FRA_SUPPRESS_PREFIXLEN:
			if readUint32(a.Value) != 1<<32-1 {
				return unix.RT_TABLE_UNSPEC
			}
		default:
			return unix.RT_TABLE_UNSPEC
		}
	}
	if defaultRules[priority] != number {
		return unix.RT_TABLE_UNSPEC
	}
	return number
}

// parseNeighbour parses a message of the kernel about a neighbour: its MAC address, and whether packets are sent there.
// Errors: errShort.
func parseNeighbour(m []byte) (n neighbour, address mac, valid bool, err error) {
	const length = 12 // struct ndmsg: family, interface, state
	if len(m) < length {
		return n, address, false, errShort
	}
	n.index = int(readUint32(m[4:]))
	state := binary.NativeEndian.Uint16(m[8:])
	attributes, err := nl.ParseRouteAttr(m[length:])
	if err != nil {
		return n, address, false, fmt.Errorf("%w: %w", errShort, err)
	}
	for _, a := range attributes {
		switch a.Attr.Type {
		case unix.NDA_DST:
			n.address, _ = netip.AddrFromSlice(a.Value)
		case unix.NDA_LLADDR:
			if len(a.Value) == lb.MACLength {
				address = mac(a.Value)
			}
		}
	}
	return n, address, state&validStates != 0 && address != mac{}, nil
}
