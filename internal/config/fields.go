// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/lb"
)

// What the kernel leaves room for, without the closing zero: IFNAMSIZ in
// <linux/if.h>, sun_path in <linux/un.h>.
const (
	maxInterfaceName = 15
	maxSocketPath    = 107
)

// What an MSS option may be set to: every IPv4 host takes segments of 536 bytes
// (RFC 9293 section 3.7.1), and the largest IPv4 packet has room for 65,495.
const (
	minMSS = 536
	maxMSS = 65495
)

// maxInterfaces is how many the data plane has room for.
const maxInterfaces = 16

// MaxServices is how many services a configuration can have, and MaxBackends how
// many backends one of them: a slot of a table names a backend by 15 bits.
const (
	MaxServices = 65536
	MaxBackends = 32767
)

// maxName bounds the names of services and backends, which stand in tables.
const maxName = 64

// root reads the whole file.
func (p *parser) root(node *yaml.Node) {
	several := hasKey(node, "interfaces")
	p.mapping(node, "", []key{
		{"interface", !several, p.oneInterface},
		{"interfaces", false, p.interfaces},
		{"hook", false, p.text(&p.cfg.Hook)},
		{"socket", false, p.socket},
		{"table_size", false, p.tableSize(&p.cfg.TableSize)},
		{"flows", false, p.flows},
		{"transition", false, p.transition},
		{"fullnat", false, p.fullNAT},
		{"services", true, p.services},
	})
	if several && hasKey(node, "interface") {
		p.fail("interfaces", "written beside interface; keep one of the two")
	}
}

// hasKey says whether a mapping has a key.
func hasKey(node *yaml.Node, name string) bool {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Kind == yaml.MappingNode && node.Content[i].Value == name {
			return true
		}
	}
	return false
}

func (p *parser) oneInterface(node *yaml.Node, field string) {
	if name, ok := p.interfaceName(node, field); ok {
		p.cfg.Interfaces = []string{name}
	}
}

func (p *parser) interfaces(node *yaml.Node, field string) {
	seen := map[string]string{}
	p.cfg.Interfaces = nil
	p.sequence(node, field, func(_ int, item *yaml.Node, field string) {
		name, ok := p.interfaceName(item, field)
		if !ok {
			return
		}
		if first, again := claim(seen, name, field); again {
			p.fail(field, "%s is already %s; name each interface once", name, p.place(first))
			return
		}
		p.cfg.Interfaces = append(p.cfg.Interfaces, name)
	})
	switch {
	case len(node.Content) == 0 && node.Kind == yaml.SequenceNode:
		p.fail(field, "empty; name at least one interface")
	case len(p.cfg.Interfaces) > maxInterfaces:
		p.fail(field, "%d are more than the %d that a balancer can have; split the services between two", len(p.cfg.Interfaces), maxInterfaces)
	}
}

func (p *parser) services(node *yaml.Node, field string) {
	var s lb.Service
	keys := []key{
		{"name", true, p.name(&s.Name)},
		{"vip", true, p.address(&s.VIP)},
		{"port", true, number(p, &s.Port, 1, 65535)},
		{"protocol", false, p.text(&s.Protocol)},
		{"mode", false, p.text(&s.Mode)},
		{"dscp", false, number(p, &s.DSCP, 1, lastDSCP)},
		{"mss", false, number(p, &s.MSS, minMSS, maxMSS)},
		{"scheduler", false, p.text(&s.Scheduler)},
		{"hash", false, p.text(&s.Hash)},
		{"table_size", false, p.tableSize(&s.TableSize)},
		{"persistence", false, p.readPersistence(&s.Persistence)},
		{"limits", false, p.readLimits(&s.Limits)},
		{"backends", true, p.backends(&s.Backends)},
	}
	p.sequence(node, field, func(i int, item *yaml.Node, field string) {
		s = lb.Service{Protocol: lb.TCP, Mode: lb.L2DSR, Scheduler: lb.Maglev}
		p.mapping(item, field, keys)
		for j := range s.Backends { // the service's port may stand below them
			if s.Backends[j].Port == 0 && !p.isBad(i, j, "port") {
				s.Backends[j].Port = s.Port
			}
		}
		p.cfg.Services = append(p.cfg.Services, s)
	})
	switch {
	case len(node.Content) == 0 && node.Kind == yaml.SequenceNode:
		p.fail(field, "empty; add at least one service")
	case len(p.cfg.Services) > MaxServices:
		p.fail(field, "%d are more than the %d that a balancer can hold; split them between two", len(p.cfg.Services), MaxServices)
	}
}

// backends returns a reader of a service's backends.
func (p *parser) backends(to *[]lb.Backend) func(*yaml.Node, string) {
	var b lb.Backend
	keys := []key{
		{"name", true, p.name(&b.Name)},
		{"address", true, p.address(&b.Address)},
		{"port", false, number(p, &b.Port, 1, 65535)},
		{"weight", false, number(p, &b.Weight, 0, 65535)},
		{"upper", false, p.bound(&b.Upper, maxConnections)},
		{"lower", false, number(p, &b.Lower, 1, maxConnections)},
		{"drain", false, p.boolean(&b.Draining)},
	}
	return func(node *yaml.Node, field string) {
		p.sequence(node, field, func(_ int, item *yaml.Node, field string) {
			b = lb.Backend{Weight: 1}
			p.mapping(item, field, keys)
			*to = append(*to, b)
		})
		switch {
		case len(node.Content) == 0 && node.Kind == yaml.SequenceNode:
			p.fail(field, "empty; add at least one backend")
		case len(*to) > MaxBackends:
			p.fail(field, "%d are more than the %d that a service can have; split them between two services", len(*to), MaxBackends)
		}
	}
}

func (p *parser) interfaceName(node *yaml.Node, field string) (string, bool) {
	name, ok := p.scalar(node, field)
	switch {
	case !ok:
		return "", false
	case name == "":
		p.fail(field, "empty; write the name of the interface that the packets arrive on, as `ip link` shows it")
	case len(name) > maxInterfaceName:
		p.fail(field, "%s is longer than the %d bytes that the kernel allows", quote(name), maxInterfaceName)
	case name == "." || name == ".." || strings.ContainsFunc(name, func(r rune) bool {
		return r == '/' || r == ':' || !unicode.IsGraphic(r) || unicode.IsSpace(r)
	}):
		p.fail(field, "%s cannot be the name of an interface; write it as `ip link` shows it", quote(name))
	default:
		return name, true
	}
	return "", false
}

func (p *parser) socket(node *yaml.Node, field string) {
	path, ok := p.scalar(node, field)
	switch {
	case !ok:
	case !filepath.IsAbs(path) || strings.ContainsRune(path, 0):
		p.fail(field, "%s is not an absolute path; write one such as %s", quote(path), DefaultSocket)
	case len(path) > maxSocketPath:
		p.fail(field, "longer than the %d bytes that the kernel allows for a unix socket", maxSocketPath)
	default:
		p.cfg.Socket = filepath.Clean(path)
	}
}

// name returns a reader of a service's or backend's name.
func (p *parser) name(to *string) func(*yaml.Node, string) {
	return func(node *yaml.Node, field string) {
		name, ok := p.scalar(node, field)
		switch {
		case !ok:
		case name == "":
			p.fail(field, "empty; give it a name")
		case utf8.RuneCountInString(name) > maxName:
			p.fail(field, "longer than %d characters", maxName)
		case strings.ContainsFunc(name, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.:", r)
		}):
			p.fail(field, "%s holds something else than letters, digits and - _ . :", quote(name))
		default:
			*to = name
		}
	}
}

// text returns a reader of a value that knows its own spelling.
func (p *parser) text(to encoding.TextUnmarshaler) func(*yaml.Node, string) {
	return func(node *yaml.Node, field string) {
		text, ok := p.scalar(node, field)
		if !ok {
			return
		}
		if err := to.UnmarshalText([]byte(text)); err != nil {
			p.fail(field, "%v", err)
		}
	}
}

// number returns a reader of a whole number from low to high.
func number[N uint8 | uint16 | uint32](p *parser, to *N, low, high uint64) func(*yaml.Node, string) {
	return func(node *yaml.Node, field string) {
		if n, ok := p.whole(node, field, low, high); ok {
			*to = N(n)
		}
	}
}

// boolean returns a reader of what is or is not. YAML's other spellings (yes, on)
// are left out: its versions differ over them.
func (p *parser) boolean(to *bool) func(*yaml.Node, string) {
	return func(node *yaml.Node, field string) {
		switch text, ok := p.scalar(node, field); {
		case !ok:
		case text == "true" || text == "false":
			*to = text == "true"
		default:
			p.fail(field, "%s is neither true nor false", quote(text))
		}
	}
}

// whole reads a whole number from low to high.
func (p *parser) whole(node *yaml.Node, field string, low, high uint64) (uint64, bool) {
	text, ok := p.scalar(node, field)
	if !ok {
		return 0, false
	}
	n, ok := decimal(text, high)
	if !ok || n < low {
		p.fail(field, "%s is not a whole number from %d to %d", quote(text), low, high)
		return 0, false
	}
	return n, true
}

// decimal parses plain decimal digits up to limit. The other spellings of
// YAML's numbers are left out: 010 is 8 there, and 1e3 a fraction.
func decimal(text string, limit uint64) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil && n <= limit && strconv.FormatUint(n, 10) == text
}

// address returns a reader of an address that a host can have.
func (p *parser) address(to *netip.Addr) func(*yaml.Node, string) {
	return func(node *yaml.Node, field string) {
		text, ok := p.scalar(node, field)
		if !ok {
			return
		}
		addr, err := netip.ParseAddr(text)
		if message := badAddress(text, addr, err); message != "" {
			p.fail(field, "%s %s", quote(text), message)
			return
		}
		*to = addr
	}
}

// badAddress says why an address cannot be that of a service or a backend, and
// what to write instead; "" if it can.
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
		return "is an IPv4 address in IPv6 clothing; write " + addr.Unmap().String()
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
