// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/yamlfile"
)

// Bounds of the pool of full NAT. A flow needs a port that no other flow to the
// same backend has, so the ports, times the addresses, are the most connections
// that a backend can have at a time.
const (
	lowestPort = 1024 // those below are for services
	fewPorts   = 64   // fewer are hardly meant
	// maxPool bounds the addresses: each is put on the interface and announced.
	maxPool = 64
)

const (
	fieldPool = "fullnat.addresses"
)

// checkPool looks at the pool beside the services.
func (p *parser) checkPool(vips map[netip.Addr]string) {
	backends := map[netip.Addr]string{}
	for _, addr := range p.cfg.FullNAT.Addresses {
		backends[addr] = ""
	}
	for i, s := range p.cfg.Services {
		for j, b := range s.Backends {
			if at, ours := backends[b.Address]; ours && at == "" {
				backends[b.Address] = BackendField(i, j, "address")
			}
		}
	}
	for i, addr := range p.cfg.FullNAT.Addresses {
		field := yamlfile.Element(fieldPool, i)
		if !addr.IsValid() || p.Bad(field) {
			continue
		}
		vip, isVIP := vips[addr]
		switch backend := backends[addr]; {
		case isVIP:
			p.Fail(field, "%s is the VIP of %s; use another address of the balancer", addr, p.Place(vip))
		case backend != "":
			p.Fail(field, "%s is the backend %s; use an address of the balancer", addr, p.Place(backend))
		}
	}
	p.checkPoolFamilies()
}

// checkPoolFamilies finds services whose family the pool lacks, and says so once
// for each family; and a pool that no service uses.
func (p *parser) checkPoolFamilies() {
	wanted := map[string]bool{}
	for i, s := range p.cfg.Services {
		if s.Mode != lb.FullNAT || !s.VIP.IsValid() || wanted[family(s.VIP)] {
			continue
		}
		wanted[family(s.VIP)] = true
		if !p.poolHas(s.VIP.Is4()) {
			p.Fail(ServiceField(i, "mode"), "%s needs an %s address to send from; add `fullnat: {addresses: [ADDRESS]}` to the file, with one of the balancer's own",
				s.Mode, family(s.VIP))
		}
	}
	if written := p.Written("fullnat"); written && len(wanted) == 0 {
		p.warn("fullnat", "no service has the mode %s, so nothing of this is used", lb.FullNAT)
		fullNATKeys.Reset(&p.cfg.FullNAT)
	}
}

// poolHas says whether the pool has an address of a family. One that was refused
// may have been meant for either.
func (p *parser) poolHas(four bool) bool {
	for i, addr := range p.cfg.FullNAT.Addresses {
		if p.Bad(yamlfile.Element(fieldPool, i)) || addr.Is4() == four {
			return true
		}
	}
	return p.Bad(fieldPool)
}
