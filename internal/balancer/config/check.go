// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// check checks fields against one another. Refused values are zero, and are skipped.
func (p *parser) check() {
	p.fillPorts()
	p.checkAPI()
	vips := p.checkNames()
	p.assignDSCP()
	p.checkFlows()
	for i := p.old; i < len(p.cfg.Services); i++ {
		if !p.Bad(ServiceField(i, "mode")) { // the rules depend on it
			p.checkBackends(i, vips)
		}
		p.checkDiscovery(i)
		p.checkScheduler(i)
		p.checkLimits(i)
		p.checkMSS(i)
		p.checkProxy(i)
		p.checkUntranslated(i)
		p.checkHairpin(i)
		p.checkClients(i)
		p.checkChecks(i)
	}
	p.checkGroups()
	p.checkTables()
	p.checkEndpoints()
	p.checkPool(vips)
	p.checkLocal()
	p.checkBGP(vips)
	p.checkVRRP(vips)
	p.checkMembers(vips)
}

// checkNames checks the names and endpoints of services, and returns the VIPs, with the first service of each.
func (p *parser) checkNames() map[netip.Addr]int {
	names, keys := make(map[string]int, len(p.cfg.Services)), make(map[lb.ServiceKey]int, len(p.cfg.Services))
	vips, newVIPs := make(map[netip.Addr]int, len(p.cfg.Services)), map[netip.Addr]int{}
	for i := range p.cfg.Services {
		s := &p.cfg.Services[i]
		if first, duplicate := claim(names, s.Name, i); duplicate && s.Name != "" {
			p.Fail(ServiceField(i, "name"), "%s is already the name of %s; give each service its own", s.Name,
				p.Place(ServiceField(first, "name")))
		}
		if !s.VIP.IsValid() {
			continue
		}
		if _, duplicate := claim(vips, s.VIP, i); !duplicate && i >= p.old && p.old > 0 && !p.oldVIPs[s.VIP] {
			newVIPs[s.VIP] = i
		}
		if first, duplicate := claim(keys, s.Key(), i); duplicate && s.Port != 0 && !p.Bad(ServiceField(i, "protocol")) {
			p.Fail(ServiceField(i, "vip"),
				"%s is already taken by %s; join the two services or change the vip, port or protocol",
				s.Key(), p.Place(ServiceField(first, "vip")))
		}
	}
	p.checkOld(newVIPs)
	return vips
}

// fillPorts sets the port of backends that have none to that of their service.
func (p *parser) fillPorts() {
	for i := p.old; i < len(p.cfg.Services); i++ {
		s := &p.cfg.Services[i]
		for j := range s.Backends {
			if s.Backends[j].Port == 0 && !p.hasProblem(i, j, "port") {
				s.Backends[j].Port = s.Port
			}
		}
	}
}

// checkBackends checks the backends of a service against each other. There may be a hundred thousand in a file, so a
// field's path is built only for a message.
func (p *parser) checkBackends(i int, vips map[netip.Addr]int) {
	s := p.cfg.Services[i]
	names, addresses := make(map[string]int, len(s.Backends)), make(map[netip.AddrPort]int, len(s.Backends))
	for j, b := range s.Backends {
		if first, duplicate := claim(names, b.Name, j); duplicate && b.Name != "" {
			p.Fail(BackendField(i, j, "name"), "%s is already the name of %s; give each backend of a service its own",
				b.Name, p.Place(BackendField(i, first, "name")))
		}
		if s.Mode.KeepsPort() && b.Port != s.Port && b.Port != 0 && s.Port != 0 {
			p.Fail(BackendField(i, j, "port"),
				"%d is not the service's port %d, and %s leaves ports as they are; remove the line and let the backend listen on %d, or use %s or %s",
				b.Port, s.Port, s.Mode, s.Port, lb.NAT, lb.FullNAT)
		}
		if b.Address.IsValid() {
			p.checkAddress(i, j, addresses, vips)
		}
	}
}

// checkAddress refuses a backend's address that another backend of its service has, or that is a VIP. If ports are
// translated, two backends on one host differ by their ports.
func (p *parser) checkAddress(i, j int, addresses map[netip.AddrPort]int, vips map[netip.Addr]int) {
	s := p.cfg.Services[i]
	b := s.Backends[j]
	place := netip.AddrPortFrom(b.Address, 0)
	if !s.Mode.KeepsPort() {
		place = netip.AddrPortFrom(b.Address, b.Port)
	}
	first, duplicate := claim(addresses, place, j)
	vip, isVIP := vips[b.Address]
	switch {
	case duplicate:
		p.Fail(BackendField(i, j, "address"),
			"%s is already %s; a backend stands once in a service, give it a weight instead",
			b.Address, p.Place(BackendField(i, first, "address")))
	case isVIP:
		p.Fail(BackendField(i, j, "address"), "%s is the VIP of %s; write the backend's own address", b.Address,
			p.Place(ServiceField(vip, "vip")))
	default:
		p.checkFamily(i, j)
	}
}

// checkLocal refuses backends to which sockets of this host cannot be redirected.
func (p *parser) checkLocal() {
	if !p.cfg.Local.On {
		return
	}
	for i := p.old; i < len(p.cfg.Services); i++ {
		s := &p.cfg.Services[i]
		if !s.VIP.IsValid() || s.Mode.Proxied() { // whose VIP is served by this host's own stack
			continue
		}
		for j, b := range s.Backends {
			if b.Address.IsValid() && b.Address.Is4() != s.VIP.Is4() && !p.hasProblem(i, j, "address") {
				p.Fail(BackendField(i, j, "address"),
					"%s is of another family than the VIP %s, and a socket that a client on this host (local) has opened to the one cannot reach the other; use an address of the VIP's family, or remove local",
					b.Address, s.VIP)
			}
		}
	}
}
