// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jeoul/jeoul/internal/balancer/maglev"
	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// The kernel's bounds of names, without the closing zero: IFNAMSIZ in <linux/if.h>, sun_path in <linux/un.h>.
const (
	maxInterfaceName = 15
	maxSocketPath    = 107
)

// maxName bounds the names of services and backends, in characters: they stand in
// tables.
const maxName = 64

func asIs(text string) string { return text }

// interfaceName is a name that a network interface can have.
var interfaceName = keytable.Scalar[string]{
	Parse: func(name string) (string, string) {
		switch {
		case name == "":
			return "", "empty; write the name of the interface that the packets arrive on, as `ip link` shows it"
		case len(name) > maxInterfaceName:
			return "", fmt.Sprintf("%s is longer than the %d bytes that the kernel allows", yamlfile.Quote(name),
				maxInterfaceName)
		case name == "." || name == ".." || strings.ContainsFunc(name, notInInterface):
			return "", yamlfile.Quote(name) + " cannot be the name of an interface; write it as `ip link` shows it"
		}
		return name, ""
	},
	Show:   asIs,
	Kind:   "the name of a network interface",
	Schema: map[string]any{"type": "string", "minLength": 1, "maxLength": maxInterfaceName, "pattern": `^[^/:\s]+$`},
}

func notInInterface(r rune) bool {
	return r == '/' || r == ':' || !unicode.IsGraphic(r) || unicode.IsSpace(r)
}

// socketPath is where a unix socket can be.
var socketPath = keytable.Scalar[string]{
	Parse: func(path string) (string, string) {
		switch {
		case !filepath.IsAbs(path) || strings.ContainsRune(path, 0):
			return "", fmt.Sprintf("%s is not an absolute path; write one such as %s", yamlfile.Quote(path),
				DefaultSocket)
		case len(path) > maxSocketPath:
			return "", fmt.Sprintf("longer than the %d bytes that the kernel allows for a unix socket", maxSocketPath)
		}
		return filepath.Clean(path), ""
	},
	Show:   asIs,
	Kind:   fmt.Sprintf("an absolute path of up to %d bytes", maxSocketPath),
	Schema: map[string]any{"type": "string", "pattern": "^/", "maxLength": maxSocketPath},
}

// label is the name of a service or a backend.
var label = keytable.Scalar[string]{
	Parse: func(name string) (string, string) {
		switch {
		case name == "":
			return "", "empty; give it a name"
		case utf8.RuneCountInString(name) > maxName:
			return "", fmt.Sprintf("longer than %d characters", maxName)
		case strings.ContainsFunc(name, notInName):
			return "", yamlfile.Quote(name) + " holds something else than letters, digits and - _ . :"
		}
		return name, ""
	},
	Show: asIs,
	Kind: fmt.Sprintf("up to %d letters, digits and `-` `_` `.` `:`", maxName),
	// A name of digits alone is a number to YAML.
	Schema: map[string]any{"type": []string{"string", "integer"}, "minLength": 1, "maxLength": maxName,
		"pattern": `^[-_.:\p{L}\p{Nd}]+$`},
}

func notInName(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.:", r)
}

// hostAddress is an address that a host can have.
var hostAddress = keytable.Scalar[netip.Addr]{
	Parse: func(text string) (netip.Addr, string) {
		addr, err := netip.ParseAddr(text)
		if message := badAddress(text, addr, err); message != "" {
			return netip.Addr{}, yamlfile.Quote(text) + " " + message
		}
		return addr, ""
	},
	Show: netip.Addr.String,
	Kind: "an IPv4 or IPv6 address",
	Schema: map[string]any{"type": "string", "anyOf": []any{map[string]any{"format": "ipv4"},
		map[string]any{"format": "ipv6"}}},
}

// listenAddress is a TCP address to listen on.
var listenAddress = keytable.Scalar[netip.AddrPort]{
	Parse: func(text string) (netip.AddrPort, string) {
		at, err := netip.ParseAddrPort(text)
		if err != nil || at.Port() == 0 || at.Addr().Is4In6() {
			return netip.AddrPort{}, yamlfile.Quote(text) +
				" is not an IP address and a port; write one such as 192.0.2.10:9533, [2001:db8::10]:9533, or 0.0.0.0:9533 for every address"
		}
		return at, ""
	},
	Show:   netip.AddrPort.String,
	Kind:   "an IP address and a port, as ADDRESS:PORT",
	Schema: map[string]any{"type": "string", "pattern": `^(\[[0-9A-Fa-f.:%a-z]+\]|[0-9.]+):[0-9]{1,5}$`},
}

// network is a prefix of addresses.
var network = keytable.Scalar[netip.Prefix]{
	Parse: func(text string) (netip.Prefix, string) {
		prefix, err := netip.ParsePrefix(text)
		addr, addrErr := netip.ParseAddr(text)
		switch {
		case addrErr == nil && addr.Zone() == "" && !addr.Is4In6():
			return netip.Prefix{}, fmt.Sprintf("%s is an address; write the network, or for this host alone %s",
				yamlfile.Quote(text), netip.PrefixFrom(addr, addr.BitLen()))
		case err != nil || prefix.Addr().Is4In6():
			return netip.Prefix{}, yamlfile.Quote(text) +
				" is not a network; write one such as 192.0.2.0/24 or 2001:db8::/32"
		case prefix != prefix.Masked():
			return netip.Prefix{}, fmt.Sprintf("%s has bits beyond its length; write %s", yamlfile.Quote(text),
				prefix.Masked())
		}
		return prefix, ""
	},
	Show:   netip.Prefix.String,
	Kind:   "an IPv4 or IPv6 network as ADDRESS/LENGTH",
	Schema: map[string]any{"type": "string", "pattern": `^[0-9A-Fa-f.:]+/[0-9]{1,3}$`},
}

// badAddress returns the reason why an address cannot be that of a service or a backend, and names the remedy; "" if it
// can.
func badAddress(text string, addr netip.Addr, err error) string {
	if prefix, prefixErr := netip.ParsePrefix(text); prefixErr == nil {
		return "is a prefix; write the address alone, " + prefix.Addr().String()
	}
	switch {
	case err != nil:
		return "is not an IP address; write one such as 192.0.2.1 or 2001:db8::1"
	case addr.Zone() != "":
		return "has a zone; write " + addr.WithZone("").String() + ", the zone is that of the interface"
	case addr.Is4In6():
		return "is an IPv4-mapped IPv6 address; write " + addr.Unmap().String()
	case addr.IsUnspecified():
		return "is the unspecified address; write the one that clients or the balancer reach"
	case addr.IsMulticast():
		return "is a multicast address; use a unicast one"
	case addr.IsLoopback():
		return "is a loopback address, which never leaves its host; use another"
	case addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "is the broadcast address; use a unicast one"
	}
	return ""
}

// tableSize is the number of slots of a hash table.
var tableSize = keytable.Scalar[uint32]{
	Parse: func(text string) (uint32, string) {
		size, ok := keytable.Decimal(text, maglev.MaxSize)
		if !ok {
			return 0, fmt.Sprintf("%s is not a whole number up to %d; use a prime such as %d", yamlfile.Quote(text),
				maglev.MaxSize, maglev.DefaultSize)
		}
		if err := maglev.CheckSize(uint32(size)); err != nil {
			return 0, err.Error()
		}
		return uint32(size), ""
	},
	Show:   func(size uint32) string { return strconv.FormatUint(uint64(size), 10) },
	Kind:   fmt.Sprintf("a prime number up to %d", maglev.MaxSize),
	Schema: map[string]any{"type": "integer", "minimum": 2, "maximum": maglev.MaxSize},
	Tag:    "!!int",
}

// Bounds of the ports of full NAT. A flow needs a port that no other flow to the
// same backend has, so the ports, times the addresses, are the most connections
// that a backend can have at a time.
const (
	minPoolPort  = 1024 // those below are for services
	fewPoolPorts = 64   // fewer are hardly meant
)

// portRange is the ports of full NAT, both included.
type portRange struct{ first, last uint16 }

// defaultPorts are the default ports of full NAT.
var defaultPorts = portRange{DefaultFirstPort, DefaultLastPort}

// ports is a range of ports, as FIRST-LAST.
var ports = keytable.Scalar[portRange]{
	Parse: func(text string) (portRange, string) {
		from, to, _ := strings.Cut(text, "-")
		first, firstOK := keytable.Decimal(strings.TrimSpace(from), 65535)
		last, lastOK := keytable.Decimal(strings.TrimSpace(to), 65535)
		switch quoted := yamlfile.Quote(text); {
		case !firstOK || !lastOK:
			return portRange{}, fmt.Sprintf("%s is not a range of ports; write one such as %d-%d", quoted,
				DefaultFirstPort, DefaultLastPort)
		case first > last:
			return portRange{}, fmt.Sprintf("%s begins after it ends; write %d-%d", quoted, last, first)
		case first < minPoolPort:
			return portRange{}, fmt.Sprintf("%s has ports below %d, which are for services; write one such as %d-%d",
				quoted, minPoolPort, DefaultFirstPort, DefaultLastPort)
		case last-first+1 < fewPoolPorts:
			return portRange{},
				fmt.Sprintf("%s is %d ports, and a backend has at most that many connections from each address; use at least %d",
					quoted, last-first+1, fewPoolPorts)
		}
		return portRange{uint16(first), uint16(last)}, ""
	},
	Show:   func(r portRange) string { return fmt.Sprintf("%d-%d", r.first, r.last) },
	Kind:   fmt.Sprintf("FIRST-LAST, at least %d ports from %d to 65535", fewPoolPorts, minPoolPort),
	Schema: map[string]any{"type": "string", "pattern": `^\s*[0-9]+\s*-\s*[0-9]+\s*$`},
}
