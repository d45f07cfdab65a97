// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
)

// The data plane and the proxy count per endpoint. The counters in the status and in metrics are per name: if names
// exchange addresses, or one takes another's address, each continues from its own count. A tally is the difference. The
// ejector (ejector.go) evaluates endpoints, and reads the data plane's own counters.

// Total returns the counters of an endpoint.
func (c *Counted) Total(key lb.BackendKey) Total {
	return Total{c.Backends[key], c.Proxy.Backends[key]}
}

// Tallied converts the counters of a view's endpoints into counters of its names.
func (v *View) Tallied(all Counted) Counted {
	if len(v.Tallies) == 0 {
		return all
	}
	converted := Counted{Counters: all.Counters, Proxy: all.Proxy}
	converted.Backends, converted.Proxy.Backends = maps.Clone(all.Backends), maps.Clone(all.Proxy.Backends)
	for name, at := range v.Locate(maps.Keys(v.Tallies)) {
		key := at.Service.BackendKey(at.Backend)
		is := v.Tallies[name].Count(all.Total(key))
		if converted.Backends != nil {
			converted.Backends[key] = is.Counted
		}
		if converted.Proxy.Backends != nil {
			converted.Proxy.Backends[key] = is.Proxied
		}
	}
	return converted
}

// Move is a name whose endpoint has changed, or had another name before. Existed: the name had an endpoint before,
// From.
type Move struct {
	Name     BackendName
	From, To lb.BackendKey
	Existed  bool
}

// RetainTallies compares with the previous view. It returns the tallies of names that have kept their endpoints, and
// the moves of the other names. A backend that is taken out of its service has no counters, and a new name at a new
// endpoint begins at 0.
func (v *View) RetainTallies(before *View) (kept map[BackendName]Tally, moves []Move) {
	kept = map[BackendName]Tally{}
	for i := range v.Config.Services {
		s := &v.Config.Services[i]
		same := before.Named[s.Name] == before.Keyed[s.Key()] && before.HasSameBackends(s)
		if same && len(before.Tallies) == 0 {
			continue
		}
		previous := before.keysIn(s.Name)
		for _, b := range s.Backends {
			m := Move{Name: NameOf(*s, b), To: s.BackendKey(b)}
			m.From, m.Existed = previous[b.Name]
			t, tallied := before.Tallies[m.Name]
			switch {
			case v.OverlayOf(*s, b).IsOut():
			case m.Existed && m.From == m.To:
				if tallied {
					kept[m.Name] = t
				}
			case m.Existed || before.Find(m.To) != nil:
				moves = append(moves, m)
			}
		}
	}
	return kept, moves
}

// keysIn returns the keys of a service's backends, by name.
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
