// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/lb"
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
	fieldPool  = "fullnat.addresses"
	fieldPorts = "fullnat.ports"
)

func (p *parser) fullNAT(node *yaml.Node, field string) {
	p.mapping(node, field, []key{
		{"addresses", true, p.pool},
		{"ports", false, p.ports},
		{"flows", false, p.flowsOfFullNAT},
	})
}

// flowsOfFullNAT refuses what bounded full NAT's flows when they had a table of
// their own.
func (p *parser) flowsOfFullNAT(_ *yaml.Node, field string) {
	p.fail(field, "flows are bounded by flows.limit now, those of all services together: write it there")
}

// pool reads the addresses. Those that were refused stay as invalid ones, so
// that the others keep their places.
func (p *parser) pool(node *yaml.Node, field string) {
	seen := map[netip.Addr]string{}
	p.sequence(node, field, func(i int, item *yaml.Node, field string) {
		p.cfg.FullNAT.Addresses = append(p.cfg.FullNAT.Addresses, netip.Addr{})
		addr := &p.cfg.FullNAT.Addresses[i]
		p.address(addr)(item, field)
		if first, again := claim(seen, *addr, field); again && addr.IsValid() {
			p.fail(field, "%s is already %s; name each address once", *addr, p.place(first))
		}
	})
	switch {
	case len(node.Content) == 0 && node.Kind == yaml.SequenceNode:
		p.fail(field, "empty; name an address of the balancer's own, of the services' family")
	case len(p.cfg.FullNAT.Addresses) > maxPool:
		p.fail(field, "%d are more than the %d that there can be; keep fewer, and use more ports", len(p.cfg.FullNAT.Addresses), maxPool)
	}
}

func (p *parser) ports(node *yaml.Node, field string) {
	text, ok := p.scalar(node, field)
	if !ok {
		return
	}
	from, to, _ := strings.Cut(text, "-")
	first, firstOK := decimal(strings.TrimSpace(from), 65535)
	last, lastOK := decimal(strings.TrimSpace(to), 65535)
	switch {
	case !firstOK || !lastOK:
		p.fail(field, "%s is not a range of ports; write one such as %d-%d", quote(text), DefaultFirstPort, DefaultLastPort)
	case first > last:
		p.fail(field, "%s begins after it ends; write %d-%d", quote(text), last, first)
	case first < lowestPort:
		p.fail(field, "%s has ports below %d, which are for services; write one such as %d-%d", quote(text), lowestPort, DefaultFirstPort, DefaultLastPort)
	case last-first+1 < fewPorts:
		p.fail(field, "%s is %d ports, and a backend has at most that many connections from each address; use at least %d",
			quote(text), last-first+1, fewPorts)
	default:
		p.cfg.FullNAT.FirstPort, p.cfg.FullNAT.LastPort = uint16(first), uint16(last)
	}
}

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
		field := element(fieldPool, i)
		if !addr.IsValid() || p.bad[field] {
			continue
		}
		vip, isVIP := vips[addr]
		switch backend := backends[addr]; {
		case isVIP:
			p.fail(field, "%s is the VIP of %s; use another address of the balancer", addr, p.place(vip))
		case backend != "":
			p.fail(field, "%s is the backend %s; use an address of the balancer", addr, p.place(backend))
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
			p.fail(ServiceField(i, "mode"), "%s needs an %s address to send from; add `fullnat: {addresses: [ADDRESS]}` to the file, with one of the balancer's own",
				s.Mode, family(s.VIP))
		}
	}
	if _, written := p.cfg.lines["fullnat"]; written && len(wanted) == 0 {
		p.warn("fullnat", "no service has the mode %s, so nothing of this is used", lb.FullNAT)
		p.cfg.FullNAT.Addresses = nil
	}
}

// poolHas says whether the pool has an address of a family. One that was refused
// may have been meant for either.
func (p *parser) poolHas(four bool) bool {
	for i, addr := range p.cfg.FullNAT.Addresses {
		if p.bad[element(fieldPool, i)] || addr.Is4() == four {
			return true
		}
	}
	return p.bad[fieldPool]
}
