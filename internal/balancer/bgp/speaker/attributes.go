// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/osrg/gobgp/v4/api"

	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// GoBGP has one policy for all peers, with statements for those that each is for.
const (
	exportPolicy = "attributes"
	importPolicy = "own"
	globalTable  = "global"
	// gracefulShutdown marks a route that is about to go (RFC 8326 section 3).
	gracefulShutdown = "65535:0"
	// minPreference is the lowest preference that GoBGP sends: it takes 0, which RFC 8326 recommends, for none.
	minPreference = 1
	// defaultPreference is the local preference of routes within an AS that are given none.
	defaultPreference = 100
	// backupPrepend is how often a backup's path has the own AS beyond those of its owner's.
	backupPrepend = 3
)

// attributes are the inputs of the export policy of one peer.
type attributes struct {
	Address     netip.Addr
	ASN, Own    uint32
	Families    []lb.Family
	Communities []lb.Community
	MED         *uint32
	Preference  *uint32
	Prepend     uint8
	NextHops    []netip.Addr
	Draining    bool
	// Pool and Backup have attributes of their own.
	Pool, Backup []netip.Addr
}

// attributesOf returns the inputs of the export policy.
func attributesOf(w bgp.Desired) (all []attributes) {
	for _, p := range w.BGP.Peers {
		all = append(all, attributes{p.Address, p.ASN, w.BGP.ASN, p.Announces(), p.Communities, p.MED,
			p.LocalPreference, p.Prepend, p.NextHops, w.Draining, w.Pool, w.Backup})
	}
	return all
}

// setAttributes sets GoBGP's export policy, by which routes get the attributes that each peer is to see, and its
// import policy, which refuses those of peers.
func (s *Speaker) setAttributes(desired bgp.Desired) error {
	request := &api.SetPoliciesRequest{}
	policy := &api.Policy{Name: exportPolicy}
	for i, a := range attributesOf(desired) {
		neighbour := fmt.Sprintf("peer-%d", i)
		request.DefinedSets = append(request.DefinedSets,
			&api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: neighbour,
				List: []string{netip.PrefixFrom(a.Address, a.Address.BitLen()).String()}})
		for _, f := range a.Families {
			for _, k := range a.routeClasses() {
				conditions := &api.Conditions{NeighborSet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: neighbour},
					AfiSafiIn: []*api.Family{familyOf(f)}}
				if k.name != "" {
					if len(prefixes(k.addresses, f)) == 0 {
						continue
					}
					conditions.PrefixSet = &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: prefixSetName(k.name, f)}
				}
				policy.Statements = append(policy.Statements,
					&api.Statement{Name: fmt.Sprintf("%s-%s%s", neighbour, f, k.name), Conditions: conditions,
						Actions: k.attributes.actions(f)})
			}
		}
	}
	request.DefinedSets = append(request.DefinedSets, poolSets(desired)...)
	// GoBGP applies its import policy also to routes announced here.
	own := &api.Policy{Name: importPolicy,
		Statements: []*api.Statement{{Name: "own",
			Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
			Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT}}}}
	request.Policies = []*api.Policy{policy, own}
	ctx := context.Background()
	if err := s.gobgp.SetPolicies(ctx, request); err != nil {
		return err
	}
	if err := s.gobgp.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: globalTable, Direction: api.PolicyDirection_POLICY_DIRECTION_IMPORT,
		Policies:      []*api.Policy{{Name: importPolicy}},
		DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}}); err != nil {
		return err
	}
	return s.gobgp.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: globalTable, Direction: api.PolicyDirection_POLICY_DIRECTION_EXPORT,
		Policies:      []*api.Policy{{Name: exportPolicy}},
		DefaultAction: api.RouteAction_ROUTE_ACTION_ACCEPT,
	}})
}

// Kinds of routes that have attributes of their own.
const (
	classPool   = "-pool"
	classBackup = "-backup"
)

// routeClass is a class of routes with attributes of their own; name is empty for all other routes.
type routeClass struct {
	name       string
	addresses  []netip.Addr
	attributes attributes
}

// routeClasses are the classes of a peer's routes, in the order in which a route is matched. Addresses of the pool are
// announced for as long as the balancer is there, because replies come to them: they are not drained. Those of others
// have a longer path, or less preference within the AS.
func (a attributes) routeClasses() []routeClass {
	owned := a
	owned.Draining = false
	backup := owned
	backup.Prepend += backupPrepend
	preference := uint32(defaultPreference)
	if a.Preference != nil {
		preference = *a.Preference
	}
	preference = max(preference/2, minPreference)
	backup.Preference = &preference
	return []routeClass{{classPool, a.Pool, owned}, {classBackup, a.Backup, backup}, {attributes: a}}
}

// prefixSetName names the set of prefixes of one family.
func prefixSetName(kind string, f lb.Family) string { return fmt.Sprintf("%s%s", f, kind) }

// prefixes are the routes of one family to these addresses.
func prefixes(addresses []netip.Addr, f lb.Family) (prefixes []*api.Prefix) {
	for _, address := range addresses {
		if bits := uint32(address.BitLen()); lb.FamilyOf(address) == f {
			prefixes = append(prefixes, &api.Prefix{IpPrefix: netip.PrefixFrom(address, address.BitLen()).String(),
				MaskLengthMin: bits, MaskLengthMax: bits})
		}
	}
	return prefixes
}

// poolSets are the sets of prefixes of the pool.
func poolSets(w bgp.Desired) (sets []*api.DefinedSet) {
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		for of, addresses := range map[string][]netip.Addr{classPool: w.Pool, classBackup: w.Backup} {
			if prefixes := prefixes(addresses, f); len(prefixes) > 0 {
				sets = append(sets, &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_PREFIX,
					Name: prefixSetName(of, f), Prefixes: prefixes})
			}
		}
	}
	return sets
}

// actions are the changes to routes of a family.
func (a attributes) actions(f lb.Family) *api.Actions {
	made := &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT}
	communities, large := splitCommunities(a.Communities)
	med, preference := a.MED, a.Preference
	if a.Draining {
		communities = append(communities, gracefulShutdown)
		worst, least := uint32(math.MaxUint32), uint32(minPreference)
		med, preference = &worst, &least
	}
	if len(communities) > 0 {
		made.Community = &api.CommunityAction{Type: api.CommunityAction_TYPE_ADD, Communities: communities}
	}
	if len(large) > 0 {
		made.LargeCommunity = &api.CommunityAction{Type: api.CommunityAction_TYPE_ADD, Communities: large}
	}
	if med != nil {
		made.Med = &api.MedAction{Type: api.MedAction_TYPE_REPLACE, Value: int64(*med)}
	}
	if preference != nil && a.ASN == a.Own {
		made.LocalPref = &api.LocalPrefAction{Value: *preference}
	}
	if a.Prepend > 0 && a.ASN != a.Own {
		made.AsPrepend = &api.AsPrependAction{Asn: a.Own, Repeat: uint32(a.Prepend)}
	}
	for _, hop := range a.NextHops {
		if lb.FamilyOf(hop) == f {
			made.Nexthop = &api.NexthopAction{Address: hop.String()}
		}
	}
	return made
}

// splitCommunities separates communities (RFC 1997) from large ones (RFC 8092).
func splitCommunities(all []lb.Community) (communities, large []string) {
	for _, c := range all {
		if strings.Count(string(c), ":") == 2 {
			large = append(large, string(c))
		} else {
			communities = append(communities, string(c))
		}
	}
	return communities, large
}

func familyOf(f lb.Family) *api.Family {
	if f == lb.IPv6 {
		return &api.Family{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST}
	}
	return &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}
}
