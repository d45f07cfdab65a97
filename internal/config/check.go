// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/maglev"
)

// slotsPerBackend is how many slots a backend needs on average for a fair
// share: below that, rounding alone moves shares by a per cent ("M > 100 × N",
// NSDI 2016, section 3.4).
const slotsPerBackend = 100

// check looks at what only several fields together can tell. Values that were
// refused before are zero by now, and left out.
func (p *parser) check() {
	names, keys, vips := map[string]string{}, map[lb.ServiceKey]string{}, map[netip.Addr]string{}
	for i, s := range p.cfg.Services {
		field := ServiceField(i, "name")
		if first, again := claim(names, s.Name, field); again && s.Name != "" {
			p.fail(field, "%s is already the name of %s; give each service its own", s.Name, p.place(first))
		}
		field = ServiceField(i, "vip")
		if !s.VIP.IsValid() {
			continue
		}
		claim(vips, s.VIP, field)
		if first, again := claim(keys, s.Key(), field); again && s.Port != 0 && !p.bad[ServiceField(i, "protocol")] {
			p.fail(field, "%s is already taken by %s; join the two services or change the vip, port or protocol",
				s.Key(), p.place(first))
		}
	}
	p.assignDSCP()
	for i := range p.cfg.Services {
		if !p.bad[ServiceField(i, "mode")] { // what is right depends on it
			p.checkBackends(i, vips)
		}
		p.checkWeights(i)
		p.checkMSS(i)
	}
	p.checkEndpoints()
	p.checkPool(vips)
}

// claim notes the field that first has a value; again is true, with that field,
// where another has it too.
func claim[K comparable](seen map[K]string, value K, field string) (first string, again bool) {
	if first, again = seen[value]; !again {
		seen[value] = field
	}
	return first, again
}

// place names a field and its line, for a message about another field.
func (p *parser) place(field string) string {
	return fmt.Sprintf("%s (line %d)", field, lineOf(p.cfg.lines, field))
}

func (p *parser) checkBackends(i int, vips map[netip.Addr]string) {
	s := p.cfg.Services[i]
	names, addresses := map[string]string{}, map[netip.AddrPort]string{}
	for j, b := range s.Backends {
		field := BackendField(i, j, "name")
		if first, again := claim(names, b.Name, field); again && b.Name != "" {
			p.fail(field, "%s is already the name of %s; give each backend of a service its own", b.Name, p.place(first))
		}
		if field = BackendField(i, j, "port"); s.Mode.KeepsPort() && b.Port != s.Port && b.Port != 0 && s.Port != 0 {
			p.fail(field, "%d is not the service's port %d, and %s leaves ports as they are; remove the line and let the backend listen on %d, or use %s or %s",
				b.Port, s.Port, s.Mode, s.Port, lb.NAT, lb.FullNAT)
		}
		if b.Address.IsValid() {
			p.checkAddress(s, b, BackendField(i, j, "address"), addresses, vips)
		}
	}
}

// checkAddress looks at a backend's address among the others of its service and
// the VIPs. Where ports are translated, two on one host differ by theirs.
func (p *parser) checkAddress(s lb.Service, b lb.Backend, field string, addresses map[netip.AddrPort]string, vips map[netip.Addr]string) {
	place := netip.AddrPortFrom(b.Address, 0)
	if s.Mode.Translates() {
		place = netip.AddrPortFrom(b.Address, b.Port)
	}
	first, again := claim(addresses, place, field)
	vip, isVIP := vips[b.Address]
	switch {
	case again:
		p.fail(field, "%s is already %s; a backend stands once in a service, give it a weight instead", b.Address, p.place(first))
	case isVIP:
		p.fail(field, "%s is the VIP of %s; write the backend's own address", b.Address, p.place(vip))
	default:
		p.checkFamily(s, b, field)
	}
}

func family(addr netip.Addr) string {
	if addr.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// checkWeights looks at the weights of a service as a whole.
func (p *parser) checkWeights(i int) {
	s, usable, uneven, refused := p.cfg.Services[i], 0, "", false
	var weight uint16
	for j, b := range s.Backends {
		field := BackendField(i, j, "weight")
		refused = refused || p.bad[field]
		if b.Weight == 0 || p.bad[field] {
			continue
		}
		usable++
		if weight == 0 {
			weight = b.Weight
		}
		if b.Weight != weight && uneven == "" {
			uneven = field
		}
	}
	switch {
	case len(s.Backends) > 0 && usable == 0 && !refused:
		p.fail(ServiceField(i, "backends"), "every backend has weight 0, so the service would drop all packets; give one a weight of 1 or more")
	case s.Scheduler == lb.RoundRobin && uneven != "":
		p.warn(uneven, "differs from the others, but the scheduler %s gives each backend the same share (only 0 counts); use %s for weights",
			lb.RoundRobin, lb.Maglev)
	case s.Scheduler == lb.Maglev && usable > int(p.cfg.TableSize):
		p.fail("table_size", "%d slots cannot hold the %d backends of %s; use %d", p.cfg.TableSize, usable, ServiceField(i, ""), maglev.DefaultSize)
	case s.Scheduler == lb.Maglev && usable*slotsPerBackend > int(p.cfg.TableSize):
		p.warn("table_size", "%d slots are fewer than %d for each of the %d backends of %s, so their shares are uneven; use a larger prime",
			p.cfg.TableSize, slotsPerBackend, usable, ServiceField(i, ""))
	}
}

// warn reports what works but is hardly meant.
func (p *parser) warn(field, format string, args ...any) {
	p.cfg.Warnings = append(p.cfg.Warnings, p.cfg.At(field, format, args...))
}
