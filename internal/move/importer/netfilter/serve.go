// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// serve makes services from the groups.
func (r *reader) serve() {
	made := map[string]*draft.Service{}
	for _, g := range r.groups {
		vip, ports, err := r.place(g)
		if err != nil {
			r.Left(g.at, "%v", err)
			for _, e := range g.entries {
				r.Left(e.at, "%v", err)
			}
			continue
		}
		if g.in != "" && g.in[0] != '!' && !strings.HasSuffix(g.in, "+") {
			r.Arrives(g.in)
		}
		for _, port := range ports {
			rules, unsafe := r.access(g, vip, port)
			s := r.service(g, vip, port, rules)
			s.Unsafe = cmp.Or(unsafe, s.Unsafe)
			key := s.Key().String() + fmt.Sprint(s.Allow, s.Deny)
			if first := made[key]; first != nil && sameBackends(first, s) { // as from another interface
				r.Services = r.Services[:len(r.Services)-1]
				continue
			}
			made[key] = s
		}
		r.Carry(g.through...)
	}
}

// sameBackends reports whether two services have the same backends.
func sameBackends(a, b *draft.Service) bool {
	return slices.EqualFunc(a.Backends, b.Backends, func(x, y lb.Backend) bool {
		return x.Address == y.Address && x.Port == y.Port && x.Weight == y.Weight
	})
}

// place returns the address and ports of a group's services.
func (r *reader) place(g *group) (netip.Addr, []uint16, error) {
	var none netip.Addr
	if g.protocol != "tcp" && g.protocol != "udp" {
		return none, nil, fmt.Errorf("by port Jeoul balances TCP and UDP, and this is of %s; write a service for each",
			orAll(g.protocol))
	}
	var vip netip.Addr
	switch {
	case g.to.IsValid() && g.to.IsSingleIP():
		vip = g.to.Addr()
	case g.to.IsValid():
		return none, nil, fmt.Errorf("the destination is a whole network, %s; write a service for each VIP", g.to)
	default:
		named := false
		if vip, named = r.VIP(g.four()); !named {
			return none, nil, fmt.Errorf("no destination (-d) is named; name the VIP by --vip")
		}
	}
	ports, err := expand(g.protocol, g.ports)
	return vip, ports, err
}

func orAll(protocol string) string {
	if protocol == "" {
		return "all protocols"
	}
	return protocol
}

// four reports whether a group's destinations are IPv4.
func (g *group) four() bool {
	if g.family != "" {
		return g.family == "ipv4"
	}
	return len(g.entries) > 0 && !strings.HasPrefix(g.entries[0].address, "[") &&
		strings.Count(g.entries[0].address, ":") < 2
}

// service makes a service from a group.
func (r *reader) service(g *group, vip netip.Addr, port uint16, rules []draft.Rule) *draft.Service {
	s := r.NewService(g.at)
	s.VIP, s.Port, s.Mode = vip, port, lb.NAT
	if g.protocol == "udp" {
		s.Protocol = lb.UDP
	}
	shares := r.destinations(s, g)
	guarded, unsafe := r.guarded(g, s)
	var noClients bool
	if s.Allow, s.Deny, noClients = draft.Access(vip, rules, guarded); noClients {
		s.Unsafe = "no client of the VIP's family is served, which allow and deny cannot say"
	}
	s.Unsafe = cmp.Or(unsafe, s.Unsafe)
	for j, weight := range draft.Weights(shares) {
		s.Backends[j].Weight = weight
	}
	switch {
	case g.turns && !equal(s.Backends):
		s.Scheduler = lb.WeightedRoundRobin
	case g.turns:
		s.Scheduler = lb.RoundRobin
	case g.bySource:
		s.Scheduler, s.Hash = lb.Maglev, lb.HashSource
	}
	if s.Mode == lb.NAT {
		r.source(s, g)
	}
	return s
}

func equal(backends []lb.Backend) bool {
	return !slices.ContainsFunc(backends, func(b lb.Backend) bool { return b.Weight != backends[0].Weight })
}

// destinations adds a group's backends to a service, and returns their shares.
func (r *reader) destinations(s *draft.Service, g *group) []float64 {
	var shares []float64
	places := map[netip.AddrPort]int{}
	sum := 0.0
	for _, e := range g.entries {
		sum += e.share
		addrs, port, err := r.addresses(e.address, s.Port)
		if err != nil {
			r.Left(e.at, "%v", err)
			continue
		}
		r.Carry(e.at)
		if len(addrs) > 1 {
			s.Scheduler = lb.SourceHash
			r.Approximate(e.at,
				"the kernel spreads a range by the client's address and its own tables; here clients are spread by their address")
		}
		each := e.share / float64(len(addrs))
		for _, addr := range addrs {
			place := netip.AddrPortFrom(addr, port)
			j, there := places[place]
			if !there {
				places[place] = len(shares)
				s.Add(e.at, lb.Backend{Address: addr, Port: port, Weight: 1})
				shares = append(shares, each)
			} else {
				shares[j] += each
			}
		}
	}
	if rest := 1 - sum; len(g.entries) > 0 && rest > 0.001 {
		r.Approximate(g.entries[len(g.entries)-1].at,
			"by these rules %.1f %% of new connections go to no backend, and stay with this host; here the backends share them", 100*rest)
	}
	return shares
}

// addresses reads ADDRESS[-ADDRESS][:PORT]. The default port is the given one.
func (r *reader) addresses(text string, port uint16) ([]netip.Addr, uint16, error) {
	host := text
	if bracketed := strings.HasPrefix(text, "["); bracketed || strings.Count(text, ":") == 1 {
		var given string
		if host, given = draft.SplitPort(text); given != "" {
			if portRange.MatchString(given) {
				return nil, 0, fmt.Errorf("a range of ports of the backend; a backend has one port")
			}
			number, err := draft.Port("tcp", given)
			if err != nil {
				return nil, 0, err
			}
			port = number
		}
	}
	from, to, isRange := strings.Cut(host, "-")
	first, err := r.Address(from)
	if err != nil || !isRange {
		return []netip.Addr{first}, port, err
	}
	last, err := r.Address(to)
	if err != nil || last.Less(first) || last.Is4() != first.Is4() {
		return nil, 0, fmt.Errorf("%s is no range of addresses", host)
	}
	var list []netip.Addr
	for addr := first; !last.Less(addr) && addr.IsValid(); addr = addr.Next() {
		if list = append(list, addr); len(list) > mostAddresses {
			return nil, 0, fmt.Errorf("%s has more than %d addresses", host, mostAddresses)
		}
	}
	return list, port, nil
}

// source reads from POSTROUTING whether the balancer's own address replaces that of clients.
func (r *reader) source(s *draft.Service, g *group) {
	for _, rule := range r.chains["POSTROUTING"] {
		if rule.target != "MASQUERADE" && rule.target != "SNAT" || !r.replaces(rule, s, g) {
			continue
		}
		s.Mode = lb.FullNAT
		r.Carry(rule.at)
		if rule.target == "MASQUERADE" {
			r.Approximate(rule.at, "sends from the address of the interface: give that as --source")
			return
		}
		for _, address := range rule.addresses {
			addrs, _, err := r.addresses(address, s.Port)
			if err != nil {
				r.Left(rule.at, "%v", err)
				continue
			}
			for _, addr := range addrs {
				r.SendsFrom(rule.at, addr)
			}
		}
		return
	}
}

// replaces reports whether a rule of POSTROUTING applies to clients' packets to a service's backends.
func (r *reader) replaces(rule rule, s *draft.Service, g *group) bool {
	if len(rule.from) > 0 && !rule.notFrom || rule.unknown != "" || rule.partly || rule.local || rule.family != "" &&
		(rule.family == "ipv4") != s.VIP.Is4() {
		return false
	}
	if rule.protocol != "" && rule.protocol != "all" && rule.protocol != g.protocol {
		return false
	}
	if !slices.ContainsFunc(s.Backends, func(b lb.Backend) bool {
		if rule.to.IsValid() && !rule.to.Contains(b.Address) {
			return false
		}
		ports, err := expand(g.protocol, rule.ports)
		return len(rule.ports) == 0 || err == nil && slices.Contains(ports, b.Port)
	}) {
		return false
	}
	return rule.out == "" || rule.to.IsValid() || r.leavesBy(rule, g)
}

// leavesBy reports whether packets to backends leave by a rule's interface. Only the routes of the host determine that,
// not the rules. An interface on which clients' packets arrive is assumed not to lead to backends.
func (r *reader) leavesBy(rule rule, g *group) bool {
	if r.byRoutes(rule, g) {
		return true
	}
	r.Approximate(rule.at,
		"is of packets that leave by %s, and whether those to the backends do the routes say: where they do, give --mode fullnat and --source", rule.out)
	return false
}
