// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
)

// The data plane and the proxy count by endpoints. The counters that are shown and scraped go by names: where names
// exchange addresses, or one gets another's, each goes on from its own count. A tally is the difference. The ejector
// (ejector.go) judges an endpoint by its answers, and reads the data plane's own counters.

// Total returns the counters of an endpoint.
func (c *Counted) Total(key lb.BackendKey) Total {
	return Total{c.Backends[key], c.Proxy.Backends[key]}
}

// Tallied converts the counters of a view's endpoints into counters of its names.
func (v *View) Tallied(all Counted) Counted {
	if len(v.Tallies) == 0 {
		return all
	}
	by := Counted{Counters: all.Counters, Proxy: all.Proxy}
	by.Backends, by.Proxy.Backends = maps.Clone(all.Backends), maps.Clone(all.Proxy.Backends)
	for name, at := range v.Locate(maps.Keys(v.Tallies)) {
		key := at.Service.BackendKey(at.Backend)
		is := v.Tallies[name].Of(all.Total(key))
		if by.Backends != nil {
			by.Backends[key] = is.Counted
		}
		if by.Proxy.Backends != nil {
			by.Proxy.Backends[key] = is.Proxied
		}
	}
	return by
}

// Move is a name that has an endpoint which was another's, or another than it had; it had none if it is new.
type Move struct {
	Name     BackendName
	From, To lb.BackendKey
	Existed  bool
}

// Moves compares with the view before. It returns the tallies of names that have the endpoints that they had, and the
// other names. A backend that is taken out of its service has no counters, and a new name at a new endpoint begins at
// 0.
func (v *View) Moves(before *View) (stay map[BackendName]Tally, moves []Move) {
	stay = map[BackendName]Tally{}
	for i := range v.Config.Services {
		s := &v.Config.Services[i]
		same := before.Named[s.Name] == before.Keyed[s.Key()] && before.HoldsBackends(s)
		if same && len(before.Tallies) == 0 {
			continue
		}
		previous := before.keysIn(s.Name)
		for _, b := range s.Backends {
			m := Move{Name: NameOf(*s, b), To: s.BackendKey(b)}
			m.From, m.Existed = previous[b.Name]
			t, tallied := before.Tallies[m.Name]
			switch {
			case v.OverlayOf(*s, b).Out():
			case m.Existed && m.From == m.To:
				if tallied {
					stay[m.Name] = t
				}
			case m.Existed || before.Find(m.To) != nil:
				moves = append(moves, m)
			}
		}
	}
	return stay, moves
}

// keysIn returns the endpoints of a service's backends, by their names.
func (v *View) keysIn(service string) map[string]lb.BackendKey {
	i, there := v.Named[service]
	if !there {
		return nil
	}
	s := v.Config.Services[i]
	all := make(map[string]lb.BackendKey, len(s.Backends))
	for _, b := range s.Backends {
		all[b.Name] = s.BackendKey(b)
	}
	return all
}

// Counted are the counters of the data plane and of the proxy.
type Counted struct {
	lb.Counters
	Proxy proxy.Stats
}
