// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Port is a port that a Service occupies at an address: Services may share an address, but no Port of it.
type Port struct {
	Protocol lb.Protocol
	Number   uint16
}

// Family is a family of addresses.
type Family uint8

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// String returns "IPv4" or "IPv6".
func (f Family) String() string { return fmt.Sprintf("IPv%d", uint8(f)) }

// FamilyOf returns the family of an address.
func FamilyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return IPv4
	}
	return IPv6
}

// Claim has the addresses that a Service requests, and those that it has.
type Claim struct {
	// Name is "namespace/name".
	Name, Namespace string
	// Created is the Service's creation time: the older of two Services gets an address that both request.
	Created time.Time
	Ports   []Port
	// Families are the Service's families; Require: it must have an address of each.
	Families []Family
	Require  bool
	// Requested are the addresses that the Service requests, at most one of each family, and Field is the requesting
	// field.
	Requested []netip.Addr
	Field     string
	// Pool is the pool that it requests, and PoolField the requesting field; empty: any.
	Pool, PoolField string
	// Held are the addresses that its status has. Ours: this controller wrote them.
	Held []netip.Addr
	Ours bool
}

// Problem is the reason for which a Service does not get what it requests.
type Problem struct {
	// Reason is a word in CamelCase, as in Kubernetes' Events and conditions.
	Reason string
	// Field is the field of the Service to change; empty if there is none.
	Field   string
	Message string
}

// The reasons of problems.
const (
	ReasonOutsidePools = "OutsidePools"
	ReasonInUse        = "AddressInUse"
	ReasonExhausted    = "PoolExhausted"
	ReasonNoPool       = "NoPool"
	ReasonWrongFamily  = "WrongFamily"
)

// Grant has the addresses that a Service gets.
type Grant struct {
	// Held are the Claim's held addresses that the Service may keep: it can be served at them.
	Held []netip.Addr
	// Addresses are the addresses for its status, in the order of its families; empty: none can be allocated.
	Addresses []netip.Addr
	Problems  []Problem
}

// Allocate returns the grants of the Services, by their names. A Service keeps its addresses unless it requests others,
// or an older Service has them; it also keeps them with a problem if a pool shrinks.
func Allocate(pools []Pool, claims []Claim) map[string]Grant {
	claims = slices.Clone(claims)
	slices.SortFunc(claims, func(a, b Claim) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	a := allocation{pools: pools, users: map[netip.Addr]map[Port]string{}, next: map[*Range]netip.Addr{}}
	grants := make(map[string]Grant, len(claims))
	for _, c := range claims {
		grants[c.Name] = Grant{Held: a.keepHeld(c)}
	}
	var waiting []Claim
	for _, c := range claims {
		if !a.isRequested(c) {
			waiting = append(waiting, c)
			continue
		}
		grants[c.Name] = a.grantRequested(c, grants[c.Name])
	}
	for _, c := range waiting {
		grants[c.Name] = a.grantAny(c, grants[c.Name])
	}
	return grants
}

// allocation is an allocation under way.
type allocation struct {
	pools []Pool
	// users are the Services at each address, by port.
	users map[netip.Addr]map[Port]string
	// next is where the search of a range goes on: all addresses before it are taken.
	next map[*Range]netip.Addr
}

// isRequested reports whether a Service requests addresses.
func (a *allocation) isRequested(c Claim) bool { return len(c.Requested) > 0 }

// userOf returns a Service that has a port of the claim's at an address; empty if none has.
func (a *allocation) userOf(c Claim, addr netip.Addr) string {
	for _, p := range c.Ports {
		if user := a.users[addr][p]; user != "" && user != c.Name {
			return user
		}
	}
	return ""
}

func (a *allocation) assign(c Claim, addr netip.Addr) {
	if a.users[addr] == nil {
		a.users[addr] = map[Port]string{}
	}
	for _, p := range c.Ports {
		a.users[addr][p] = c.Name
	}
	if len(c.Ports) == 0 {
		a.users[addr][Port{}] = c.Name // the address is not free
	}
}

func (a *allocation) release(c Claim, addr netip.Addr) {
	for p, user := range a.users[addr] {
		if user == c.Name {
			delete(a.users[addr], p)
		}
	}
	if len(a.users[addr]) == 0 {
		delete(a.users, addr)
	}
}

// keepHeld allocates the addresses in a Service's status that it may keep, and returns them. An address outside of the
// pools that this controller has not written is another controller's, or a user's.
func (a *allocation) keepHeld(c Claim) (held []netip.Addr) {
	for _, addr := range c.Held {
		pooled := slices.ContainsFunc(a.pools, func(p Pool) bool {
			return p.Contains(addr) &&
				p.allowsNamespace(c.Namespace)
		})
		if !pooled && !c.Ours || !slices.Contains(c.Families, FamilyOf(addr)) || a.userOf(c, addr) != "" {
			continue
		}
		if slices.ContainsFunc(held, func(h netip.Addr) bool { return h.Is4() == addr.Is4() }) {
			continue
		}
		a.assign(c, addr)
		held = append(held, addr)
	}
	return held
}

// grantRequested allocates the addresses that a Service requests. If one cannot be allocated, it keeps its own.
func (a *allocation) grantRequested(c Claim, g Grant) Grant {
	for _, addr := range c.Requested {
		if problem, bad := a.refusal(c, addr); bad {
			g.Problems = append(g.Problems, problem)
		}
	}
	if len(g.Problems) > 0 {
		g.Addresses = g.Held
		return g
	}
	kept := slices.DeleteFunc(slices.Clone(g.Held), func(held netip.Addr) bool {
		return slices.ContainsFunc(c.Requested, func(addr netip.Addr) bool {
			return addr.Is4() == held.Is4() && addr != held
		})
	})
	for _, addr := range g.Held {
		if !slices.Contains(kept, addr) {
			a.release(c, addr)
		}
	}
	for _, addr := range c.Requested {
		a.assign(c, addr)
		if !slices.Contains(kept, addr) {
			kept = append(kept, addr)
		}
	}
	return a.fillMissing(c, g, kept)
}

// refusal returns the reason for which a Service cannot have a requested address.
func (a *allocation) refusal(c Claim, addr netip.Addr) (Problem, bool) {
	at := slices.IndexFunc(a.pools, func(p Pool) bool { return p.Contains(addr) })
	user := a.userOf(c, addr)
	switch {
	case !slices.Contains(c.Families, FamilyOf(addr)):
		return Problem{ReasonWrongFamily, c.Field,
			fmt.Sprintf("%s is %s, and the Service has %s only; change spec.ipFamilies, or ask for another",
				addr, FamilyOf(addr), listFamilies(c.Families))}, true
	case at < 0:
		return Problem{ReasonOutsidePools, c.Field,
				fmt.Sprintf("%s is in no pool (%s); ask for one that is, or add it to a pool", addr,
					listPools(a.pools))},
			true
	case !a.pools[at].allowsNamespace(c.Namespace):
		return Problem{ReasonOutsidePools, c.Field,
			fmt.Sprintf("%s is in the pool %s, which is for other namespaces than %s",
				addr, a.pools[at].Name, c.Namespace)}, true
	case c.Pool != "" && a.pools[at].Name != c.Pool:
		return Problem{ReasonOutsidePools, c.Field,
				fmt.Sprintf("%s is in the pool %s, and the Service asks for the pool %s", addr,
					a.pools[at].Name, c.Pool)},
			true
	case user != "":
		return Problem{ReasonInUse, c.Field,
			fmt.Sprintf("%s has a port of this Service at %s already; use other ports, or another address", user,
				addr)}, true
	}
	return Problem{}, false
}

// grantAny allocates free addresses for a Service.
func (a *allocation) grantAny(c Claim, g Grant) Grant {
	if len(c.Ports) == 0 { // it has nothing to serve, for now
		g.Addresses = g.Held
		return g
	}
	kept := g.Held
	if i := slices.IndexFunc(a.pools, func(p Pool) bool { return p.Name == c.Pool }); c.Pool != "" && i >= 0 {
		kept = slices.DeleteFunc(slices.Clone(kept), func(addr netip.Addr) bool {
			return !a.pools[i].Contains(addr) && a.anyFree(a.pools[i:i+1], FamilyOf(addr))
		})
		for _, addr := range g.Held {
			if !slices.Contains(kept, addr) {
				a.release(c, addr)
			}
		}
	}
	return a.fillMissing(c, g, kept)
}

// fillMissing adds an address of each missing family, and a problem for addresses outside of the pools.
func (a *allocation) fillMissing(c Claim, g Grant, have []netip.Addr) Grant {
	var problems []Problem
	var found []netip.Addr
	for _, family := range c.Families {
		i := slices.IndexFunc(have, func(addr netip.Addr) bool { return FamilyOf(addr) == family })
		if i < 0 {
			addr, problem := a.findFree(c, family)
			if !addr.IsValid() {
				problems = append(problems, problem)
				continue
			}
			found, g.Addresses = append(found, addr), append(g.Addresses, addr)
			continue
		}
		g.Addresses = append(g.Addresses, have[i])
		if !slices.ContainsFunc(a.pools, func(p Pool) bool { return p.Contains(have[i]) }) {
			g.Problems = append(g.Problems, Problem{ReasonOutsidePools, "", fmt.Sprintf(
				"%s is in no pool any more (%s); the Service keeps it until it asks for another (annotation addresses)",
				have[i], listPools(a.pools))})
		}
	}
	// With PreferDualStack, the addresses of one family suffice.
	if len(problems) > 0 && (c.Require || len(g.Addresses) == 0) {
		g.Problems = append(g.Problems, problems...)
		return a.keepOnlyHeld(c, g, have)
	}
	for _, addr := range found {
		a.assign(c, addr)
	}
	return g
}

// keepOnlyHeld has a Service that does not get all that it needs keep what it holds. What else it was to have is free.
func (a *allocation) keepOnlyHeld(c Claim, g Grant, have []netip.Addr) Grant {
	for _, addr := range have {
		if !slices.Contains(g.Held, addr) {
			a.release(c, addr)
		}
	}
	for _, addr := range g.Held { // it may have been released for another
		a.assign(c, addr)
	}
	g.Addresses = g.Held
	return g
}

// candidates returns the pools from which a Service may get an address without a request.
func (a *allocation) candidates(c Claim) (list []*Pool, problem Problem) {
	for i := range a.pools {
		p := &a.pools[i]
		switch {
		case c.Pool != "" && p.Name != c.Pool, c.Pool == "" && p.ExplicitOnly:
		case !p.allowsNamespace(c.Namespace):
			problem = Problem{ReasonNoPool, c.PoolField, fmt.Sprintf("the pool %s is for other namespaces than %s",
				p.Name, c.Namespace)}
		default:
			list = append(list, p)
		}
	}
	switch {
	case len(list) > 0:
		return list, Problem{}
	case c.Pool != "" && problem.Message == "":
		problem = Problem{ReasonNoPool, c.PoolField, fmt.Sprintf("there is no pool %q; use one of %s", truncate(c.Pool),
			listPools(a.pools))}
	case c.Pool == "":
		problem = Problem{ReasonNoPool, "",
			fmt.Sprintf("no pool gives addresses to Services of the namespace %s that do not ask for one (%s)",
				c.Namespace, listPools(a.pools))}
	}
	return nil, problem
}

// truncate bounds a value that is quoted in a message.
func truncate(text string) string {
	const most = 63
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// findFree returns a free address, or the reason for which there is none.
func (a *allocation) findFree(c Claim, family Family) (netip.Addr, Problem) {
	list, problem := a.candidates(c)
	if len(list) == 0 {
		return netip.Addr{}, problem
	}
	var names []string
	for _, p := range list {
		for i := range p.Ranges {
			r := &p.Ranges[i]
			if FamilyOf(r.First) != family {
				continue
			}
			if len(names) == 0 || names[len(names)-1] != p.Name {
				names = append(names, p.Name)
			}
			if addr := a.search(r); addr.IsValid() {
				return addr, Problem{}
			}
		}
	}
	if len(names) == 0 {
		return netip.Addr{},
			Problem{ReasonWrongFamily, c.PoolField,
				fmt.Sprintf("no pool that the Service may use has %s addresses (%s); add some, or change spec.ipFamilies",
					family, listPools(a.pools))}
	}
	return netip.Addr{},
		Problem{ReasonExhausted, c.PoolField,
			fmt.Sprintf("all %s addresses of the pool %s are in use; add some, or ask for one that is shared (annotation addresses)",
				family, strings.Join(names, ", "))}
}

// anyFree reports whether pools have an address of a family that no Service has.
func (a *allocation) anyFree(pools []Pool, family Family) bool {
	for i := range pools {
		for j := range pools[i].Ranges {
			if r := &pools[i].Ranges[j]; FamilyOf(r.First) == family && a.search(r).IsValid() {
				return true
			}
		}
	}
	return false
}

// search returns the first free address of a range that may be allocated without a request; invalid if there is none.
func (a *allocation) search(r *Range) netip.Addr {
	addr, began := a.next[r]
	if !began {
		addr = r.First
	}
	for ; addr.IsValid() && r.Contains(addr); addr = addr.Next() {
		if len(a.users[addr]) == 0 && r.isAutomatic(addr) {
			a.next[r] = addr
			return addr
		}
	}
	a.next[r] = netip.Addr{}
	return netip.Addr{}
}

func listFamilies(families []Family) string {
	words := make([]string, len(families))
	for i, f := range families {
		words[i] = f.String()
	}
	return strings.Join(words, " and ")
}

// maxListed bounds the pools that a message names.
const maxListed = 8

func listPools(pools []Pool) string {
	var words []string
	for i, p := range pools {
		if i == maxListed {
			words = append(words, fmt.Sprintf("%d more", len(pools)-i))
			break
		}
		words = append(words, p.Name)
	}
	if len(words) == 0 {
		return "there are none"
	}
	return strings.Join(words, ", ")
}
