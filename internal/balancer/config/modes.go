// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// maxDSCP is the greatest of the 63 values that can stand for a VIP: six bits (RFC 2474 section 3), and packets have 0
// anyway.
const maxDSCP = 63

// codePoints are the values that stand for VIPs.
type codePoints struct {
	of map[netip.Addr]uint8 // 0: none was left
	at map[uint8]string     // the field that gave a value away
}

// assignDSCP gives each VIP of mode dscp a value of its own, the same for all of
// its services: the one that is written, or the first that is free.
func (p *parser) assignDSCP() {
	points := codePoints{map[netip.Addr]uint8{}, map[uint8]string{}}
	for i, s := range p.cfg.Services {
		if i < p.old && s.DSCP == 0 {
			continue
		}
		field := ServiceField(i, "dscp")
		written := p.Written(field) || i < p.old
		switch {
		case !written || p.Bad(field) || p.Bad(ServiceField(i, "mode")):
		case !s.Mode.Marks():
			p.Fail(field, "only the mode %s has one, and this service has %s; remove the line", lb.DSCP, s.Mode)
		case s.VIP.IsValid():
			p.claimDSCP(s, field, points)
		}
	}
	for i := range p.cfg.Services {
		if s := &p.cfg.Services[i]; s.Mode.Marks() && s.VIP.IsValid() && s.DSCP == 0 {
			p.pickDSCP(s, ServiceField(i, "vip"), points)
		}
	}
}

// claimDSCP notes a value that is written.
func (p *parser) claimDSCP(s lb.Service, field string, points codePoints) {
	own, has := points.of[s.VIP]
	holder, held := points.at[s.DSCP]
	switch {
	case has && own != s.DSCP:
		p.Fail(field, "%d, and %s has %d in %s; a VIP has one value for all its services", s.DSCP, s.VIP, own,
			p.Place(points.at[own]))
	case !has && held:
		p.Fail(field, "%d already stands for another VIP in %s; give each VIP its own", s.DSCP, p.Place(holder))
	case !has:
		points.of[s.VIP], points.at[s.DSCP] = s.DSCP, field
	}
}

// standardDSCP are the code points that ordinary packets bear, such as those of SSH,
// telephony and routers (RFC 4594): a backend would take such packets to its own
// address for the VIP's. They are given last.
var standardDSCP = []uint8{8, 10, 16, 18, 24, 26, 32, 34, 40, 44, 46, 48, 56}

// codePointOrder lists the values in the order in which they are given.
func codePointOrder() []uint8 {
	var order []uint8
	for value := uint8(1); value <= maxDSCP; value++ {
		if !slices.Contains(standardDSCP, value) {
			order = append(order, value)
		}
	}
	return append(order, standardDSCP...)
}

// pickDSCP assigns a service without a DSCP value that of its VIP, or the first that is
// free.
func (p *parser) pickDSCP(s *lb.Service, field string, points codePoints) {
	own, has := points.of[s.VIP]
	if has {
		s.DSCP = own
		return
	}
	for _, value := range codePointOrder() {
		if _, used := points.at[value]; !used {
			s.DSCP, points.of[s.VIP], points.at[value] = value, value, field
			return
		}
	}
	points.of[s.VIP] = 0
	p.Fail(field, "no DSCP value is left for %s: all %d stand for other VIPs; use another mode for it, such as %s",
		s.VIP, maxDSCP, lb.GUE)
}

// checkMSS refuses an MSS that would have no effect.
func (p *parser) checkMSS(i int) {
	s := p.cfg.Services[i]
	if field := ServiceField(i, "mss"); s.MSS != 0 && s.Protocol != lb.TCP && !p.Bad(ServiceField(i, "protocol")) {
		p.Fail(field, "only TCP has one, and this service is %s; remove the line", s.Protocol)
	}
}

// checkUntranslated refuses exceptions in modes without translation, and exceptions of the other family, to which no
// backend sends.
func (p *parser) checkUntranslated(i int) {
	s := p.cfg.Services[i]
	field := ServiceField(i, "untranslated")
	if len(s.Untranslated) == 0 || p.Bad(ServiceField(i, "mode")) {
		return
	}
	if !s.Mode.RepliesByEndpoint() {
		p.Fail(field,
			"only the mode %s takes whatever its backends send from their ports for replies, and this service has %s; remove the line", lb.NAT, s.Mode)
		return
	}
	p.checkFamilies(field, s.VIP, s.Untranslated)
}

// checkHairpin refuses a hairpin policy in modes that need none, because the backends have the VIP or do not see the
// client's address.
func (p *parser) checkHairpin(i int) {
	s, field := p.cfg.Services[i], ServiceField(i, "hairpin")
	if !s.Mode.RepliesByEndpoint() && p.Written(field) && !p.Bad(ServiceField(i, "mode")) && !p.Bad(field) {
		p.Fail(field, "only the mode %s needs it, and this service has %s; remove the line", lb.NAT, s.Mode)
	}
}

// checkFamilies refuses networks of another family than the VIP's under a field of its service.
func (p *parser) checkFamilies(field string, vip netip.Addr, networks []netip.Prefix) {
	for j, prefix := range networks {
		if prefix.IsValid() && vip.IsValid() && prefix.Addr().Is4() != vip.Is4() {
			p.Fail(fmt.Sprintf("%s[%d]", field, j),
				"%s is %s, and the VIP %s is %s: name it under the service of that family",
				prefix, family(prefix.Addr()), vip, family(vip))
		}
	}
}

// checkClients refuses networks of the other family, and those that are both allowed and denied.
func (p *parser) checkClients(i int) {
	s := p.cfg.Services[i]
	p.checkFamilies(ServiceField(i, "allow"), s.VIP, s.Allow)
	p.checkFamilies(ServiceField(i, "deny"), s.VIP, s.Deny)
	allowed := make(map[netip.Prefix]int, len(s.Allow))
	for j, prefix := range s.Allow {
		allowed[prefix] = j
	}
	for j, prefix := range s.Deny {
		if at, both := allowed[prefix]; both && prefix.IsValid() {
			p.Fail(fmt.Sprintf("%s[%d]", ServiceField(i, "deny"), j),
				"%s is allowed too, by %s; remove one of the two lines",
				prefix, p.Place(fmt.Sprintf("%s[%d]", ServiceField(i, "allow"), at)))
		}
	}
}

// endpoint is the key that assigns a reply to the service of the backend that sent it.
type endpoint struct {
	address  netip.AddrPort
	protocol lb.Protocol
}

// checkEndpoints refuses that two services translate to the same endpoint: a
// reply from there belongs to one VIP or the other, and nothing in it says which.
func (p *parser) checkEndpoints() {
	type place struct{ service, backend int }
	seen := map[endpoint]place{}
	for i, s := range p.cfg.Services {
		if !s.Mode.RepliesByEndpoint() || p.Bad(ServiceField(i, "protocol")) {
			continue
		}
		for j, b := range s.Backends {
			if !b.Address.IsValid() || b.Port == 0 {
				continue
			}
			e := endpoint{netip.AddrPortFrom(b.Address, b.Port), s.Protocol}
			// Twice in one service is another mistake, reported before.
			if first, duplicate := claim(seen, e, place{i, j}); duplicate && first.service != i &&
				!p.hasProblem(i, j, "address") {
				p.Fail(BackendField(i, j, "address"),
					"%s %s is already %s, and with %s its replies would be ambiguous; use %s for one of the services, or another port",
					s.Protocol, e.address, p.Place(BackendField(first.service, first.backend, "address")), s.Mode,
					lb.FullNAT)
			}
		}
	}
}

// checkFamily refuses a backend that packets of the service cannot reach
// without a tunnel.
func (p *parser) checkFamily(i, j int) {
	s := p.cfg.Services[i]
	b := s.Backends[j]
	if !s.VIP.IsValid() || s.Mode.CrossesFamilies() || s.VIP.Is4() == b.Address.Is4() {
		return
	}
	p.Fail(BackendField(i, j, "address"),
		"%s is %s and the VIP %s is %s, which only the modes %s, %s and %s can cross; make a second service for the other family",
		b.Address, family(b.Address), s.VIP, family(s.VIP), lb.IPIP, lb.GUE, lb.ModeProxy)
}
