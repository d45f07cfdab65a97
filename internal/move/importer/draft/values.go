// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// errNoResolver means that a host name is given but names are not looked up.
var errNoResolver = errors.New("is the name of a host; write its address, or give --resolve")

// Address reads an address, or a host name if names are looked up. An IPv6 address may be in brackets.
func (d *Draft) Address(text string) (netip.Addr, error) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inner, "]")
	}
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Unmap(), nil
	}
	switch {
	case text == "":
		return netip.Addr{}, errors.New("an address is missing")
	case strings.ContainsAny(text, "$`"):
		return netip.Addr{}, fmt.Errorf("%q is a variable; write its value", text)
	case !hostName(text):
		return netip.Addr{}, fmt.Errorf("%q is not an address", text)
	case d.Resolve == nil:
		return netip.Addr{}, fmt.Errorf("%s %w", text, errNoResolver)
	}
	addrs, err := d.Resolve(text)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("look up %s: %w", text, err)
	}
	if len(addrs) == 0 {
		return netip.Addr{}, fmt.Errorf("%s has no address", text)
	}
	return addrs[0].Unmap(), nil
}

// hostName reports whether a text can be a host name.
func hostName(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r != '-' && r != '.' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// SplitPort splits "HOST:PORT" and "[HOST]:PORT". "HOST" and an IPv6 address without brackets have no port.
func SplitPort(text string) (host, port string) {
	if host, port, err := net.SplitHostPort(text); err == nil {
		return host, port
	}
	return strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), ""
}

// Port reads a port number, or a service name from /etc/services.
func Port(network, text string) (uint16, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err == nil && port > 0 {
		return uint16(port), nil
	}
	if text == "" || text[0] >= '0' && text[0] <= '9' || strings.ContainsAny(text, "$`") {
		return 0, fmt.Errorf("%q is not a port", text)
	}
	named, err := net.LookupPort(network, text)
	if err != nil || named == 0 {
		return 0, fmt.Errorf("%q is not a port that /etc/services has; write its number", text)
	}
	return uint16(named), nil
}

// Number reads an unsigned integer. A number above most becomes most, and cut is true.
func Number(text string, most uint64) (n uint64, cut bool, err error) {
	n, err = strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("%q is not a whole number", text)
	}
	return min(n, most), n > most, nil
}

// Time reads a duration with an optional unit (us, ms, s, m, h, d). A number without a unit counts in unit.
func Time(text string, unit time.Duration) (time.Duration, error) {
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz")
	switch text[len(digits):] {
	case "":
	case "us":
		unit = time.Microsecond
	case "ms":
		unit = time.Millisecond
	case "s":
		unit = time.Second
	case "m":
		unit = time.Minute
	case "h":
		unit = time.Hour
	case "d":
		unit = 24 * time.Hour
	default:
		return 0, fmt.Errorf("%q is not a length of time", text)
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsNaN(n) || n < 0 || n*float64(unit) > float64(365*24*time.Hour) {
		return 0, fmt.Errorf("%q is not a length of time", text)
	}
	return time.Duration(n * float64(unit)), nil
}

// Network reads a network. An address becomes the network of that address alone.
func Network(text string) (netip.Prefix, bool) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" && !addr.Is4In6() {
		return netip.PrefixFrom(addr, addr.BitLen()), true
	}
	if host, mask, ok := strings.Cut(text, "/"); ok && strings.Contains(mask, ".") {
		text = host + "/" + strconv.Itoa(MaskLength(mask))
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().Is4In6() {
		return netip.Prefix{}, false
	}
	return prefix.Masked(), true
}

// MaskLength returns the prefix length of a netmask such as 255.255.0.0, or -1.
func MaskLength(mask string) int {
	addr, err := netip.ParseAddr(mask)
	if err != nil || !addr.Is4() {
		return -1
	}
	b := addr.As4()
	value := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	ones := bits.LeadingZeros32(^value)
	if value<<ones != 0 {
		return -1
	}
	return ones
}

// OfFamily returns the networks of an address's family, without duplicates.
func OfFamily(list []netip.Prefix, addr netip.Addr) []netip.Prefix {
	var own []netip.Prefix
	for _, prefix := range list {
		if prefix.Addr().Is4() == addr.Is4() && !slices.Contains(own, prefix) {
			own = append(own, prefix)
		}
	}
	return own
}
