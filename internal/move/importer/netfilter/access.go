// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// access returns the access rules of a group's service: earlier rules keep packets of some clients from being
// translated. unsafe is the reason why the service must not be made: such a rule matches by more than addresses.
func (r *reader) access(g *group, vip netip.Addr, port uint16) (rules []draft.Rule, unsafe string) {
	if g.unsafe != "" {
		return nil, g.unsafe
	}
	for _, e := range g.kept {
		switch of, why := r.keeps(e, g, vip, port); {
		case why != "":
			return nil, fmt.Sprintf(
				"the rule at %s keeps packets from being translated by %s, which Jeoul does not know of them: it would serve what it must not", e.at, why)
		case of && len(e.from) == 0:
			return nil, fmt.Sprintf("no packet gets here: the rule at %s takes all of them", e.at)
		case of:
			rules = append(rules, draft.Rule{Networks: e.from, Others: e.notFrom})
			r.Carry(e.at)
		}
	}
	if len(g.from) > 0 {
		rules = append(rules, draft.Rule{Networks: g.from, Others: !g.notFrom})
	}
	return rules, ""
}

// keeps reports whether an exception keeps packets to a service's address and port from the group, by their source at
// most. why names a match on anything else.
func (r *reader) keeps(e exception, g *group, vip netip.Addr, port uint16) (of bool, why string) {
	if e.family != "" && (e.family == "ipv4") != vip.Is4() || e.to.IsValid() && !e.to.Contains(vip) {
		return false, ""
	}
	if len(e.ports) > 0 {
		ports, err := expand(g.protocol, e.ports)
		if err != nil {
			return false, "ports"
		}
		if !slices.Contains(ports, port) {
			return false, ""
		}
	}
	switch {
	case e.unknown != "":
		return false, e.unknown
	case e.partly:
		return false, "chance"
	case e.in != "" && e.in != g.in && !r.elsewhere(e.in):
		return false, "the interface " + e.in
	case e.in != "" && e.in != g.in:
		return false, ""
	}
	return true, ""
}

// elsewhere reports whether packets do not arrive on an interface.
func (r *reader) elsewhere(name string) bool {
	return name == "lo" || len(r.Interfaces) > 0 && name[0] != '!' && !slices.Contains(r.Interfaces, name)
}
