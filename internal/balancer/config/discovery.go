// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

const (
	// maxStale is the longest time for which a stale set may be used, or a backend held that answers no longer have.
	maxStale = 30 * 24 * time.Hour
	// maxNameServers is far more than the C library uses (MAXNS, 3).
	maxNameServers = 8
	maxDomainName  = 254
)

// unlessEmpty is a key whose value stays zero if the default or nothing is written.
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

// nameServer is the address of a name server, with its port unless that is 53.
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
	if !p.Written(field) || d.On() || p.hasProblemBelow(field) {
		if at := field + ".dns.port"; d.DNS.Type == "SRV" && d.DNS.Port != 0 {
			p.Fail(at, "SRV records say the port of each backend; remove the line")
		}
		return
	}
	p.Fail(field, "names no place to look in; add file, dns or docker")
}

// hasProblemBelow reports whether a problem was reported for a mapping, or a key of one of its mappings.
func (p *parser) hasProblemBelow(field string) bool {
	for _, origin := range []string{"", ".file", ".file.path", ".dns", ".dns.name", ".docker", ".docker.socket"} {
		if p.Bad(field + origin) {
			return true
		}
	}
	return false
}

// RefusedBackend is a discovered backend that its service cannot have.
type RefusedBackend struct {
	Service string
	Origin  lb.Origin
	Backend string
	// Reason is the predicate of a sentence about the backend, as in "is the VIP of web".
	Reason string
}

// WithDiscovered returns the configuration with the discovered backends behind the configured ones, in the order of the
// origins, and the refused ones, each with the cause. Configured backends are never refused because of discovered ones.
// unsupported, which may be nil, returns a further reason to refuse a backend; "" if there is none.
func (c *Config) WithDiscovered(found []lb.Discovered, unsupported func(lb.Service, lb.Backend) string) (
	*Config, []RefusedBackend,
) {
	if !slices.ContainsFunc(c.Services, func(s lb.Service) bool { return s.Discovery.On() }) {
		return c, nil
	}
	g := discoveryMerge{vips: map[netip.Addr]string{}, endpoints: map[endpoint]string{}, unsupported: unsupported}
	g.cfg = *c
	g.cfg.Services = slices.Clone(c.Services)
	g.index(c)
	sets := map[string][]lb.Discovered{}
	for _, set := range found {
		sets[set.Service] = append(sets[set.Service], set)
	}
	for i := range g.cfg.Services {
		if s := &g.cfg.Services[i]; s.Discovery.On() {
			g.addSets(s, sets[s.Name])
		}
	}
	return &g.cfg, g.refused
}

// discoveryMerge adds discovered backends to a configuration.
type discoveryMerge struct {
	cfg         Config
	refused     []RefusedBackend
	unsupported func(lb.Service, lb.Backend) string
	// vips are the VIPs with the names of their services, and endpoints the backends to which mode nat translates.
	vips      map[netip.Addr]string
	endpoints map[endpoint]string
}

// index records the VIPs and endpoints of the configuration.
func (g *discoveryMerge) index(c *Config) {
	for _, s := range c.Services {
		claim(g.vips, s.VIP, s.Name)
		for _, b := range s.Backends {
			if s.Mode.RepliesByEndpoint() {
				claim(g.endpoints, endpointOf(s, b), s.Name+"/"+b.Name)
			}
		}
	}
}

func endpointOf(s lb.Service, b lb.Backend) endpoint {
	return endpoint{netip.AddrPortFrom(b.Address, b.Port), s.Protocol}
}

// placeOf returns the key that no two backends of a service may share: the address, and the port if ports may differ
// from the service's, except in a group of persistence.
func placeOf(s *lb.Service, b lb.Backend) netip.AddrPort {
	if !s.Mode.KeepsPort() && s.Persistence.Group == "" {
		return netip.AddrPortFrom(b.Address, b.Port)
	}
	return netip.AddrPortFrom(b.Address, 0)
}

// addSets appends discovered sets to a service's own backends. Sets that are overdue come last, and only where
// the service has none without them.
func (g *discoveryMerge) addSets(s *lb.Service, sets []lb.Discovered) {
	names, places := map[string]lb.Backend{}, map[netip.AddrPort]lb.Backend{}
	for _, b := range s.Backends {
		names[b.Name], places[placeOf(s, b)] = b, b
	}
	s.Backends = slices.Clip(s.Backends)
	for _, overdue := range []bool{false, true} {
		if overdue && len(s.Backends) > 0 {
			break
		}
		for _, origin := range s.Discovery.Origins() {
			for _, set := range sets {
				if set.Origin == origin && set.Overdue == overdue {
					g.addSet(s, set, names, places)
				}
			}
		}
	}
}

// addSet appends a discovered set to the backends of a service.
func (g *discoveryMerge) addSet(s *lb.Service, set lb.Discovered, names map[string]lb.Backend,
	places map[netip.AddrPort]lb.Backend) {
	for _, b := range set.Backends {
		b.Origin = set.Origin
		if b.Port == 0 {
			b.Port = s.Port
		}
		named, duplicateName := names[b.Name]
		placed, duplicate := places[placeOf(s, b)]
		why := ""
		switch {
		case duplicate:
			why = fmt.Sprintf("has the address of %s%s, which keeps it", placed.Name, originText(placed))
		case duplicateName:
			why = fmt.Sprintf("has the name of another backend, %s%s, which keeps it", named.Address, originText(named))
		default:
			why = g.refusalReason(s, b)
		}
		if why != "" {
			g.refused = append(g.refused, RefusedBackend{s.Name, set.Origin, b.Name, why})
			continue
		}
		names[b.Name], places[placeOf(s, b)] = b, b
		if s.Mode.RepliesByEndpoint() {
			claim(g.endpoints, endpointOf(*s, b), s.Name+"/"+b.Name)
		}
		s.Backends = append(s.Backends, b)
	}
}

// originText names the origin of a backend.
func originText(b lb.Backend) string {
	if b.Origin == "" {
		return " of the configuration"
	}
	return fmt.Sprintf(" (%s)", b.Origin)
}

// refusalReason returns why a service cannot have a backend, whatever its other backends are; ""
// if there is none.
func (g *discoveryMerge) refusalReason(s *lb.Service, b lb.Backend) string {
	vip, isVIP := g.vips[b.Address]
	of, claimed := g.endpoints[endpointOf(*s, b)]
	switch {
	case badAddress("", b.Address, nil) != "":
		return badAddress("", b.Address, nil)
	case isVIP:
		return fmt.Sprintf("is at %s, the VIP of %s", b.Address, vip)
	case slices.ContainsFunc(g.cfg.FullNAT.Addresses, func(a PoolAddress) bool { return a.Address == b.Address }):
		return fmt.Sprintf("is at %s, an address of the balancer (%s)", b.Address, fieldPool)
	case !s.Mode.CrossesFamilies() && s.VIP.Is4() != b.Address.Is4():
		return fmt.Sprintf("is at %s, which is %s, and the VIP %s is %s, which only the modes %s, %s and %s can cross",
			b.Address, family(b.Address), s.VIP, family(s.VIP), lb.IPIP, lb.GUE, lb.ModeProxy)
	case g.cfg.Local.On && !s.Mode.Proxied() && s.VIP.Is4() != b.Address.Is4(): // see checkLocal
		return fmt.Sprintf(
			"is at %s, which is %s, and a socket that a client on this host (local) has opened to the VIP %s cannot reach it",
			b.Address, family(b.Address), s.VIP)
	case s.Mode.KeepsPort() && b.Port != s.Port:
		return fmt.Sprintf("has port %d, and %s leaves the service's port %d as it is; use %s or %s", b.Port, s.Mode,
			s.Port, lb.NAT, lb.FullNAT)
	case s.Mode.RepliesByEndpoint() && claimed:
		return fmt.Sprintf(
			"is at %s, as %s is, and with %s their replies would be ambiguous; use %s for one of the services",
			netip.AddrPortFrom(b.Address, b.Port), of, s.Mode, lb.FullNAT)
	case b.Backup && s.Scheduler.InOrder():
		return fmt.Sprintf("is a backup, and the scheduler %s has each backend wait for those before it", s.Scheduler)
	case s.TableSize != 0 && !s.Scheduler.InOrder() && len(s.Backends) >= int(s.TableSize),
		len(s.Backends) >= MaxBackends:
		return fmt.Sprintf("is more than the %d backends that the service has room for (table_size)", len(s.Backends))
	case g.unsupported != nil:
		return g.unsupported(*s, b)
	}
	return ""
}
