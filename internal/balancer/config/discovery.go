// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

const (
	// longestStale is a vacation's length: a person has noticed by then.
	longestStale = 30 * 24 * time.Hour
	// maxNameServers is far more than the C library asks (MAXNS, 3).
	maxNameServers = 8
	maxDomainName  = 254
)

// unlessEmpty is a key whose value stays zero where what holds anyway is written, or nothing is.
func unlessEmpty[T any, V comparable](at func(*T) *V, scalar keytable.Scalar[V], usual V) keytable.Value[T] {
	return keytable.Computed(func(t *T) (V, bool) { return *at(t), *at(t) != *new(V) },
		func(t *T, value V) {
			if *at(t) = value; value == usual {
				*at(t) = *new(V)
			}
		}, scalar, *new(V), fmt.Sprintf("`%s`", scalar.Show(usual)))
}

// domainName is a name of the DNS.
var domainName = text("a name of the DNS",
	`^([A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?\.?$`,
	"is not a name of the DNS; write one such as web.example.com", maxDomainName)

// nameServer is the address of a name server, with its port where that is another than 53.
var nameServer = keytable.Scalar[netip.AddrPort]{
	Parse: func(text string) (netip.AddrPort, string) {
		at, err := netip.ParseAddrPort(text)
		if err != nil {
			if addr, addrErr := netip.ParseAddr(text); addrErr == nil {
				at, err = netip.AddrPortFrom(addr, 53), nil
			}
		}
		if err != nil || at.Port() == 0 || at.Addr().Is4In6() || at.Addr().IsUnspecified() || at.Addr().IsMulticast() {
			return netip.AddrPort{}, yamlfile.Quote(text) +
				" is not the address of a name server; write one such as 192.0.2.53, 192.0.2.53:5353 or [2001:db8::53]:53"
		}
		return at, ""
	},
	Show:   netip.AddrPort.String,
	Kind:   "an IP address, or an IP address and a port as ADDRESS:PORT",
	Schema: map[string]any{"type": "string", "pattern": `^(\[[0-9A-Fa-f.:%a-z]+\]:[0-9]{1,5}|[0-9A-Fa-f.:]+)$`},
}

// checkDiscovery refuses a discovery that can find nothing, and a port beside those of SRV records.
func (p *parser) checkDiscovery(i int) {
	d, field := p.cfg.Services[i].Discovery, ServiceField(i, "discover")
	if !p.Written(field) || d.On() || p.anyBadBelow(field) {
		if at := field + ".dns.port"; d.DNS.Type == "SRV" && d.DNS.Port != 0 {
			p.Fail(at, "SRV records say the port of each backend; remove the line")
		}
		return
	}
	p.Fail(field, "names no place to look in; add file, dns or docker")
}

// anyBadBelow says whether a problem was reported for a mapping, or a key of one of its mappings.
func (p *parser) anyBadBelow(field string) bool {
	for _, origin := range []string{"", ".file", ".file.path", ".dns", ".dns.name", ".docker", ".docker.socket"} {
		if p.Bad(field + origin) {
			return true
		}
	}
	return false
}
