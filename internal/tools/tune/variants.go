// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/tools/tune/setting"
)

// Namespaced lists the items for which a network namespace with a virtual interface can have its own values.
func (p *Profile) Namespaced() []string {
	var ids []string
	for _, it := range p.Items {
		kind, name, _ := strings.Cut(it.Setting, " ")
		k := setting.Key{Kind: setting.Kind(kind), Name: strings.ReplaceAll(name, "{interface}", "eth0")}
		if k.OfMachine(it.Scope) || it.Needs.Card != "" || it.ReadOnly || it.Value.leaves() ||
			k.Kind == setting.KindEthtool && strings.HasPrefix(k.Name, "ring.") {
			continue
		}
		ids = append(ids, it.ID)
	}
	return ids
}

// Document returns the profile of the first document for hosts of a role. It has that document's values, no matter what
// effect they have, but omits changes that could not be undone.
func (p *Profile) Document(role Role) *Profile {
	var items []Item
	for _, it := range p.Items {
		value := it.Document.For(role)
		if value == "" || it.Irreversible || !slices.Contains(Roles, role) ||
			strings.HasPrefix(it.Setting, string(setting.KindCmdline)) {
			continue
		}
		it.Roles, it.Modes, it.Needs = []Role{role}, nil, Needs{Card: it.Needs.Card}
		it.Value = Value{parts: []part{{text: value}}}
		it.Compare, it.Accept = CompareEqual, nil
		it.Why, it.Cost = "experiment 1 sets it", ""
		items = append(items, it)
	}
	return &Profile{items}
}
