// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// unnumbered is a layout with addresses in place of their numbers.
type unnumbered struct {
	Layout

	at         [][]netip.Addr
	uses       map[netip.Addr][]Use
	hairpinned map[netip.Addr]bool
	watched    map[netip.Addr]bool
}

func withoutNumbers(l *Layout) unnumbered {
	u := unnumbered{*l, nil, map[netip.Addr][]Use{}, map[netip.Addr]bool{}, map[netip.Addr]bool{}}
	for _, numbers := range l.At {
		var addrs []netip.Addr
		for _, n := range numbers {
			addrs = append(addrs, l.Backends[n])
		}
		u.at = append(u.at, addrs)
	}
	for n, addr := range l.Backends {
		u.uses[addr] = l.Uses[n]
	}
	for _, n := range l.Hairpinned {
		u.hairpinned[l.Backends[n]] = true
	}
	for _, addr := range l.Watched {
		u.watched[addr] = true
	}
	u.Backends, u.Number, u.At, u.Uses, u.Hairpinned, u.Watched = nil, nil, nil, nil, nil, nil
	return u
}

// checkDifference fails unless the difference of a layout's checks from those before leads to all of them.
func checkDifference(t *testing.T, before, is *Layout) {
	t.Helper()
	byKey := func(list []lb.CheckTarget) map[lb.BackendKey]lb.CheckTarget {
		all := map[lb.BackendKey]lb.CheckTarget{}
		for _, one := range list {
			all[one.Backend] = one
		}
		return all
	}
	put, removed := is.CheckTargetChanges(before)
	got, want := byKey(before.CheckTargets()), byKey(is.CheckTargets())
	for _, key := range removed {
		delete(got, key)
	}
	maps.Copy(got, byKey(put))
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("of %+v\nput %+v, removed %+v: %+v, and not %+v", before.CheckTargets(), put, removed, got, want)
	}
}

// FuzzWith: a layout that follows another is the same as without one before, but for the numbers of backends, which are
// those of before where no address is new or gone; the one before stays as it is.
func FuzzWith(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed)
	}
	modes := []lb.Mode{lb.L2DSR, lb.IPIP, lb.NAT, lb.FullNAT, lb.ModeProxy}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		backends := func() (list []lb.Backend) {
			for j := range random.IntN(5) {
				list = append(list, lb.Backend{Name: fmt.Sprint(j), Port: uint16(80 + random.IntN(2)), Weight: 1,
					Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(6))})})
			}
			return list
		}
		checks := func() (c lb.Checks) {
			if random.IntN(3) > 0 {
				c.List = []lb.Check{{Type: lb.CheckTCP, Port: uint16(80 + random.IntN(3))}}
			}
			return c
		}
		service := func(name int) lb.Service {
			return lb.Service{Name: fmt.Sprint(name), VIP: netip.AddrFrom4([4]byte{10, 1, 0, byte(name)}), Port: 80,
				Protocol: lb.TCP, Mode: modes[random.IntN(len(modes))], Backends: backends(), Checks: checks()}
		}
		cfg := &config.Config{}
		for name := range 1 + random.IntN(8) {
			cfg.Services = append(cfg.Services, service(name))
		}
		layout := NewLayout(cfg)
		for round := range 5 {
			next := &config.Config{Services: slices.Clone(layout.Config.Services)}
			i := random.IntN(len(next.Services))
			switch random.IntN(8) {
			case 0:
				next.Services[i].Mode = modes[random.IntN(len(modes))]
			case 1:
				next.Services = append(next.Services, service(100+round))
			case 2:
				next.Services[0], next.Services[i] = next.Services[i], next.Services[0]
			case 3:
				if len(next.Services) > 1 {
					next.Services = slices.Delete(next.Services, i, i+1)
				}
			case 4:
				next.Services[i].Checks = checks()
			default:
				for range 1 + random.IntN(3) {
					next.Services[random.IntN(len(next.Services))].Backends = backends()
				}
			}
			before := withoutNumbers(layout)
			kept := before
			kept.uses = maps.Clone(before.uses)
			for addr, uses := range kept.uses {
				kept.uses[addr] = slices.Clone(uses)
			}
			is, want := layout.WithConfig(next), NewLayout(next)
			if got, want := withoutNumbers(is), withoutNumbers(want); !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v\n%+v", got, want)
			}
			if !reflect.DeepEqual(kept, withoutNumbers(layout)) {
				t.Fatal("the layout before is another now")
			}
			checkDifference(t, layout, is)
			for n, addr := range is.Backends {
				if is.Number[addr] != n {
					t.Fatalf("%s has the number %d, and is at %d", addr, is.Number[addr], n)
				}
			}
			layout = is
		}
	})
}
