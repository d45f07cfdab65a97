// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// WithConfig returns the layout of another configuration. If that has the same services in the same order, and backends
// at the same addresses, the layouts share the parts of unchanged services, and backends keep their numbers.
func (l *Layout) WithConfig(cfg *config.Config) *Layout {
	changed, ok := l.changed(cfg)
	next := &Layout{Config: cfg, Backends: l.Backends, Number: l.Number, Named: l.Named, Keyed: l.Keyed}
	if !ok || !next.renumber(l, changed) {
		return NewLayout(cfg)
	}
	next.find(l)
	return next
}

// changed returns the services whose backends differ in another configuration; ok: it has the same services, in the
// same order.
func (l *Layout) changed(cfg *config.Config) (all []int, ok bool) {
	if len(l.Config.Services) != len(cfg.Services) || len(l.At) != len(cfg.Services) {
		return nil, false
	}
	for i := range cfg.Services {
		was, is := &l.Config.Services[i], &cfg.Services[i]
		if was.Name != is.Name || was.Key() != is.Key() {
			return nil, false
		}
		if !lb.SameBackends(was.Backends, is.Backends) {
			all = append(all, i)
		}
	}
	return all, true
}

// renumber updates the indexes for the backends of changed services. It returns false, with an unusable layout, if a
// backend has a new address, or if an address is no longer that of any backend.
func (l *Layout) renumber(previous *Layout, changed []int) bool {
	if len(changed) > len(previous.At)/2 {
		return false // numbering all of them is cheaper
	}
	l.At, l.Uses = slices.Clone(previous.At), slices.Clone(previous.Uses)
	// added has the new uses of each number that has changed, in the order of uses.
	moved, added := make([]bool, len(l.At)), map[int][]Use{}
	for _, i := range changed {
		backends := l.Config.Services[i].Backends
		if l.sameAddresses(i, backends) {
			continue
		}
		moved[i] = true
		for _, n := range previous.At[i] {
			if _, seen := added[n]; !seen {
				added[n] = nil // it may have lost all of its uses
			}
		}
		l.At[i] = make([]int, len(backends))
		for j := range backends {
			n, known := l.Number[backends[j].Address]
			if !known {
				return false
			}
			l.At[i][j], added[n] = n, append(added[n], Use{i, j})
		}
	}
	for n, uses := range added {
		if l.Uses[n] = mergedUses(previous.Uses[n], moved, uses); len(l.Uses[n]) == 0 {
			return false
		}
	}
	return true
}

// sameAddresses reports whether the backends of service i have the addresses that they have in the layout.
func (l *Layout) sameAddresses(i int, backends []lb.Backend) bool {
	return slices.EqualFunc(l.At[i], backends, func(n int, b lb.Backend) bool { return l.Backends[n] == b.Address })
}

// mergedUses returns uses without those of changed services, merged with the new ones of these, in order.
func mergedUses(before []Use, moved []bool, added []Use) []Use {
	all := make([]Use, 0, len(before)+len(added))
	for _, at := range before {
		if moved[at.I] {
			continue
		}
		for len(added) > 0 && compareUses(added[0], at) < 0 {
			all, added = append(all, added[0]), added[1:]
		}
		all = append(all, at)
	}
	return append(all, added...)
}

// compareUses is the order of uses: that of the services, and of their backends.
func compareUses(a, b Use) int { return cmp.Or(cmp.Compare(a.I, b.I), cmp.Compare(a.J, b.J)) }
