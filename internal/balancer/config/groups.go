// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// checkGroups checks the services of a persistence group: they must have the same prefix and timeout, and a host must
// be one backend of each.
func (p *parser) checkGroups() {
	first := map[string]int{}
	for i := range p.cfg.Services {
		s := &p.cfg.Services[i]
		name := s.Persistence.Group
		if name == "" || !s.VIP.IsValid() {
			continue
		}
		if i >= p.old {
			p.checkHosts(i)
		}
		if leader, duplicate := claim(first, name, i); duplicate {
			p.checkMember(i, leader)
		}
	}
}

// checkMember compares a service with the first of its group.
func (p *parser) checkMember(i, leader int) {
	s, of := &p.cfg.Services[i], &p.cfg.Services[leader]
	field := func(name string) string { return ServiceField(i, "persistence."+name) }
	group, there := s.Persistence.Group, p.Place(ServiceField(leader, "persistence.group"))
	switch {
	case s.VIP.Is4() != of.VIP.Is4():
		p.Fail(field("group"),
			"%s is a group of services for %s clients (%s), and those of %s have %s; make two groups, one for each family",
			group, family(of.VIP), there, s.VIP, family(s.VIP))
	case p.badPersistence(i) || p.badPersistence(leader):
	case s.Persistence.Timeout != of.Persistence.Timeout:
		p.Fail(field("timeout"),
			"%s, and the group %s has %s (%s); services of a group remember a client once, so write one timeout in all of them",
			s.Persistence.Timeout, group, of.Persistence.Timeout, there)
	case s.Persistence.Prefix != of.Persistence.Prefix:
		p.Fail(p.prefixField(i),
			"/%d, and the group %s has /%d (%s); services of a group remember a client once, so write one prefix in all of them",
			s.Persistence.Prefix, group, of.Persistence.Prefix, there)
	}
}

// badPersistence reports whether the service's persistence was refused already.
func (p *parser) badPersistence(i int) bool {
	return p.Bad(ServiceField(i, "persistence.timeout")) || p.Bad(ServiceField(i, "persistence.prefix")) ||
		p.cfg.Services[i].Persistence == lb.Persistence{}
}

// prefixField is the field of a service's prefix, or the one that it is missing from.
func (p *parser) prefixField(i int) string {
	if field := ServiceField(i, "persistence.prefix"); p.Written(field) {
		return field
	}
	return ServiceField(i, "persistence")
}

// checkHosts refuses two backends of one address: a group remembers a client's host by its
// address alone, and would send the client's later connections to the first of them.
func (p *parser) checkHosts(i int) {
	s := &p.cfg.Services[i]
	hosts := make(map[netip.Addr]int, len(s.Backends))
	for j, b := range s.Backends {
		if !b.Address.IsValid() {
			continue
		}
		if first, duplicate := claim(hosts, b.Address, j); duplicate {
			p.Fail(BackendField(i, j, "address"),
				"%s is already %s, and the group %s knows a host by its address alone; give each backend an address of its own, or remove %s",
				b.Address, p.Place(BackendField(i, first, "address")), s.Persistence.Group,
				ServiceField(i, "persistence.group"))
			return
		}
	}
}
