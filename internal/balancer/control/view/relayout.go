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
	fresh := map[int]bool{} // the uses of these numbers are the layout's own
	usesOf := func(n int) []Use {
		if !fresh[n] {
			l.Uses[n], fresh[n] = slices.Clone(l.Uses[n]), true
		}
		return l.Uses[n]
	}
	for _, i := range changed {
		for _, n := range previous.At[i] {
			l.Uses[n] = slices.DeleteFunc(usesOf(n), func(at Use) bool { return at.I == i })
		}
		backends := l.Config.Services[i].Backends
		l.At[i] = make([]int, len(backends))
		for j := range backends {
			n, known := l.Number[backends[j].Address]
			if !known {
				return false
			}
			uses := usesOf(n)
			at, _ := slices.BinarySearchFunc(uses, Use{i, j}, compareUses)
			l.At[i][j], l.Uses[n] = n, slices.Insert(uses, at, Use{i, j})
		}
	}
	for n := range fresh {
		if len(l.Uses[n]) == 0 {
			return false
		}
	}
	return true
}

// compareUses is the order of uses: that of the services, and of their backends.
func compareUses(a, b Use) int { return cmp.Or(cmp.Compare(a.I, b.I), cmp.Compare(a.J, b.J)) }
