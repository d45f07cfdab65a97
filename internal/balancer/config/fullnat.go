// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// maxPool bounds the addresses: each is added to the interface and announced.
const maxPool = 64

const fieldPool = "fullnat.addresses"

var fullNATKeys = keytable.Table[FullNAT]{
	{Name: "addresses", Required: true,
		What: "Addresses of the balancer, which are put on the first interface; those of other [members](../guides/members.md#full-nat), which carry a `member`, are not.",
		Value: keytable.ShortMappings(func(f *FullNAT) *[]PoolAddress { return &f.Addresses }, poolKeys, "address",
			keytable.Length{Max: maxPool, Empty: "name an address of the balancer's own, of the services' family",
				TooMany: "that there can be; keep fewer, and use more ports"})},
	{Name: "ports",
		What: "The ports that flows get on each address. A backend has at most as many connections as there are ports times addresses.",
		Value: keytable.Computed(func(f *FullNAT) (portRange, bool) {
			r := portRange{f.FirstPort, f.LastPort}
			return r, r != defaultPorts
		}, func(f *FullNAT, r portRange) { f.FirstPort, f.LastPort = r.first, r.last }, ports, defaultPorts,
			"`"+ports.Show(defaultPorts)+"`")},
	{Name: "flows", Gone: "flows are bounded by flows.limit now, those of all services together: write it there"},
}

var poolKeys = keytable.Table[PoolAddress]{
	{Name: "address", Required: true,
		What:    "An address that flows are sent from.",
		Refused: "A VIP, a backend's address, and one that is there already.",
		Value:   keytable.Optional(func(a *PoolAddress) *netip.Addr { return &a.Address }, hostAddress, "")},
	{Name: "member",
		What:    "The member that gives out the address' ports: its address, as in `members.peers`. Either all addresses have one, or none; the list is the same at all members.",
		Refused: "An address that is neither in `members.peers` nor that of `members.listen`; `members.hand_over: false`.",
		Value: keytable.Optional(func(a *PoolAddress) *netip.Addr { return &a.Member }, hostAddress,
			"this balancer")},
}

// Pool is the pool of addresses and ports from which full NAT sends here; empty where no service has that mode.
func (c *Config) Pool() lb.Pool {
	pool := lb.Pool{FirstPort: c.FullNAT.FirstPort, LastPort: c.FullNAT.LastPort}
	for _, a := range c.FullNAT.Addresses {
		if c.isOwn(a) {
			pool.Addresses = append(pool.Addresses, a.Address)
		} else {
			pool.Others = append(pool.Others, a.Address)
		}
	}
	if len(c.FullNAT.Addresses) == 0 {
		return lb.Pool{}
	}
	return pool
}

// PoolIsDivided reports whether members know each other's addresses.
func (c *Config) PoolIsDivided() bool {
	return slices.ContainsFunc(c.FullNAT.Addresses, func(a PoolAddress) bool { return a.Member.IsValid() })
}

// isOwn reports whether this balancer gives out the ports of an address.
func (c *Config) isOwn(a PoolAddress) bool {
	return !a.Member.IsValid() || a.Member == c.Members.Listen.Addr()
}

// poolField is the path of a field of address i.
func poolField(i int, name string) string {
	return yamlfile.Join(yamlfile.Element(fieldPool, i), name)
}

// checkPool checks the pool against the services.
func (p *parser) checkPool(vips map[netip.Addr]int) {
	backends := map[netip.Addr]string{}
	for _, a := range p.cfg.FullNAT.Addresses {
		backends[a.Address] = ""
	}
	for i := range p.cfg.Services {
		if len(backends) == 0 {
			break
		}
		for j, b := range p.cfg.Services[i].Backends {
			if at, ours := backends[b.Address]; ours && at == "" {
				backends[b.Address] = BackendField(i, j, "address")
			}
		}
	}
	first := map[netip.Addr]string{}
	for i, a := range p.cfg.FullNAT.Addresses {
		field := poolField(i, "address")
		if !a.Address.IsValid() || p.Bad(field) {
			continue
		}
		vip, isVIP := vips[a.Address]
		switch before, duplicate := first[a.Address]; {
		case duplicate:
			p.Fail(field, "%s is already %s; name each address once", a.Address, p.Place(before))
		case isVIP:
			p.Fail(field, "%s is the VIP of %s; use another address of the balancer", a.Address, p.Place(ServiceField(vip, "vip")))
		case backends[a.Address] != "":
			p.Fail(field, "%s is the backend %s; use an address of the balancer", a.Address,
				p.Place(backends[a.Address]))
		}
		first[a.Address] = field
	}
	p.checkPoolMembers()
	p.checkPoolFamilies()
}

// checkPoolMembers checks the owners of the addresses.
func (p *parser) checkPoolMembers() {
	pool, m := p.cfg.FullNAT.Addresses, p.cfg.Members
	divided := slices.IndexFunc(pool, func(a PoolAddress) bool { return a.Member.IsValid() })
	if divided < 0 {
		return
	}
	for i, a := range pool {
		field := poolField(i, "member")
		switch {
		case p.Bad(field):
		case !a.Member.IsValid():
			p.Fail(yamlfile.Element(fieldPool, i),
				"has no member, and %s has one; say for each address which member's it is",
				p.Place(yamlfile.Element(fieldPool, divided)))
		case !m.Listen.IsValid():
			if !p.Written("members") {
				p.Fail(field,
					"the file has no members; add members, or leave this balancer's own addresses and remove member")
				return
			}
		case !m.HandOver:
			p.Fail(field,
				"members hand no flows over (members.hand_over), so no other balancer has any use for the address; leave this balancer's own addresses and remove member, or remove hand_over")
			return
		case a.Member != m.Listen.Addr() && !slices.Contains(m.Peers, a.Member):
			p.Fail(field,
				"%s is no member; write an address of members.peers, or this balancer's own, %s (members.listen)",
				a.Member, m.Listen.Addr())
		}
	}
}

// checkPoolFamilies finds services whose family the pool lacks, and says so once
// for each family; and a pool that no service uses.
func (p *parser) checkPoolFamilies() {
	wanted := map[string]bool{}
	for i, s := range p.cfg.Services {
		if !s.Mode.UsesPool() || !s.VIP.IsValid() || wanted[family(s.VIP)] {
			continue
		}
		wanted[family(s.VIP)] = true
		switch own, others := p.poolHas(s.VIP.Is4()); {
		case own:
		case others:
			p.Fail(ServiceField(i, "mode"),
				"%s needs an %s address to send from, and all of them in %s are other members'; add one with `member: %s`, this balancer's own (members.listen)",
				s.Mode, family(s.VIP), fieldPool, p.cfg.Members.Listen.Addr())
		default:
			p.Fail(ServiceField(i, "mode"),
				"%s needs an %s address to send from; add `fullnat: {addresses: [ADDRESS]}` to the file, with one of the balancer's own",
				s.Mode, family(s.VIP))
		}
	}
	if written := p.Written("fullnat"); written && len(wanted) == 0 {
		p.warn("fullnat", "no service has the mode %s, so nothing of this is used", lb.FullNAT)
		p.cfg.spareFullNAT = p.cfg.FullNAT
		keytable.Reset(fullNATKeys, &p.cfg.FullNAT)
	}
}

// poolHas reports whether the pool has addresses of a family that this balancer owns, and that other members own. A
// refused address counts as both.
func (p *parser) poolHas(four bool) (own, others bool) {
	for i, a := range p.cfg.FullNAT.Addresses {
		refused := p.Bad(poolField(i, "address")) || p.Bad(poolField(i, "member")) ||
			p.Bad(yamlfile.Element(fieldPool, i))
		switch {
		case refused, a.Address.Is4() == four && p.cfg.isOwn(a):
			own = true
		case a.Address.Is4() == four:
			others = true
		}
	}
	return own || p.Bad(fieldPool) || others && !p.cfg.Members.Listen.IsValid(), others
}
