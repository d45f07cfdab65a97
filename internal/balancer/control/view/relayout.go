// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// With lays out the configuration that follows the layout's. Where it has the same services in the same order, and
// backends at the same addresses, the parts of unchanged ones are shared, and backends keep their numbers.
func (l *Layout) With(cfg *config.Config) *Layout {
	changed, ok := l.changed(cfg)
	next := &Layout{Config: cfg, Backends: l.Backends, Number: l.Number, Named: l.Named, Keyed: l.Keyed}
	if !ok || !next.renumber(l, changed) {
		return NewLayout(cfg)
	}
	next.find()
	return next
}

// changed returns which services have other backends in another configuration; ok: they are the same services, in the
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

// renumber notes where the backends of services that changed are. It returns false, with nothing that can be used,
// where one has an address that was no backend's before, or an address is no backend's any more.
func (l *Layout) renumber(previous *Layout, changed []int) bool {
	if len(changed) > len(previous.At)/2 {
		return false // it would cost more than to number them all
	}
	l.At, l.Uses = slices.Clone(previous.At), slices.Clone(previous.Uses)
	moved, added := make([]bool, len(l.At)), map[int][]Use{} // of each number that has others, in the order of uses
	for _, i := range changed {
		backends := l.Config.Services[i].Backends
		if l.stayPut(i, backends) {
			continue
		}
		moved[i] = true
		for _, n := range previous.At[i] {
			if _, met := added[n]; !met {
				added[n] = nil // it may have none any more
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
	for n, fresh := range added {
		if l.Uses[n] = mergedUses(previous.Uses[n], moved, fresh); len(l.Uses[n]) == 0 {
			return false
		}
	}
	return true
}

// stayPut says whether the backends of service i are where they are laid out.
func (l *Layout) stayPut(i int, backends []lb.Backend) bool {
	return slices.EqualFunc(l.At[i], backends, func(n int, b lb.Backend) bool { return l.Backends[n] == b.Address })
}

// mergedUses returns uses without those by services that have moved, and with fresh ones of these, in order.
func mergedUses(before []Use, moved []bool, fresh []Use) []Use {
	all := make([]Use, 0, len(before)+len(fresh))
	for _, at := range before {
		if moved[at.I] {
			continue
		}
		for len(fresh) > 0 && compareUses(fresh[0], at) < 0 {
			all, fresh = append(all, fresh[0]), fresh[1:]
		}
		all = append(all, at)
	}
	return append(all, fresh...)
}

// compareUses is the order of uses: that of the services, and of their backends.
func compareUses(a, b Use) int { return cmp.Or(cmp.Compare(a.I, b.I), cmp.Compare(a.J, b.J)) }
