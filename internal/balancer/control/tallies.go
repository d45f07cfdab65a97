// SPDX-License-Identifier: Apache-2.0

package control

import (
	"maps"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
)

// The data plane and the proxy count by endpoints. What is shown and scraped is counted by names: where names exchange
// addresses, or one gets another's, each goes on from what it had. A tally is the difference. Who judges an endpoint by
// what it answers (ejector.go) reads the data plane's own counters.

// tally makes the count of a name of that of the endpoint that it has.
type tally struct {
	// Base is what the endpoint had counted when the name took it, Carried what the name had counted before.
	Base    total `json:"base"`
	Carried total `json:"carried"`
}

// total is what was counted of a backend. Proxied has what the proxy alone counts, of services of mode proxy.
type total struct {
	Counted lb.BackendCount `json:"counted"`
	Proxied proxy.Counts    `json:"proxied,omitzero"`
}

// of returns what was counted of the name where the endpoint has counted now. What a backend has now, such as its open
// connections, is the endpoint's. An endpoint that has counted less than at first has begun again.
func (t tally) of(now total) total {
	base := t.Base
	if now.Counted.Packets < base.Counted.Packets || now.Counted.Connections < base.Counted.Connections {
		base = total{}
	}
	return total{
		Counted: now.Counted.Minus(base.Counted).Plus(t.Carried.Counted),
		Proxied: now.Proxied.Minus(base.Proxied).Plus(t.Carried.Proxied),
	}
}

// total returns what was counted at an endpoint.
func (c *counted) total(key lb.BackendKey) total {
	return total{c.Backends[key], c.proxy.Backends[key]}
}

// tallied turns what was counted of a view's endpoints into what was counted of its names.
func (v *view) tallied(all counted) counted {
	if len(v.tallies) == 0 {
		return all
	}
	by := counted{Counters: all.Counters, proxy: all.proxy}
	by.Backends, by.proxy.Backends = maps.Clone(all.Backends), maps.Clone(all.proxy.Backends)
	for name, at := range v.locate(maps.Keys(v.tallies)) {
		key := at.service.BackendKey(at.backend)
		is := v.tallies[name].of(all.total(key))
		if by.Backends != nil {
			by.Backends[key] = is.Counted
		}
		if by.proxy.Backends != nil {
			by.proxy.Backends[key] = is.Proxied
		}
	}
	return by
}

// move is a name that has an endpoint which was another's, or another than it had; it had none if it is new.
type move struct {
	name     backendName
	from, to lb.BackendKey
	existed  bool
}

// moves compares with the view before. It returns the tallies of names that have the endpoints that they had, and the
// other names. What is taken out of its service has no counters, and what is new at a new endpoint begins at 0.
func (v *view) moves(before *view) (stay map[backendName]tally, moves []move) {
	stay = map[backendName]tally{}
	for i := range v.cfg.Services {
		s := &v.cfg.Services[i]
		same := before.named[s.Name] == before.keyed[s.Key()] && before.holdsBackends(s)
		if same && len(before.tallies) == 0 {
			continue
		}
		former := before.keysIn(s.Name)
		for _, b := range s.Backends {
			m := move{name: nameOf(*s, b), to: s.BackendKey(b)}
			m.from, m.existed = former[b.Name]
			t, tallied := before.tallies[m.name]
			switch {
			case v.overlayOf(*s, b).out():
			case m.existed && m.from == m.to:
				if tallied {
					stay[m.name] = t
				}
			case m.existed || before.find(m.to) != nil:
				moves = append(moves, m)
			}
		}
	}
	return stay, moves
}

// keysIn returns the endpoints of a service's backends, by their names.
func (v *view) keysIn(service string) map[string]lb.BackendKey {
	i, there := v.named[service]
	if !there {
		return nil
	}
	s := v.cfg.Services[i]
	all := make(map[string]lb.BackendKey, len(s.Backends))
	for _, b := range s.Backends {
		all[b.Name] = s.BackendKey(b)
	}
	return all
}

// talliesWith returns the tallies that hold with other operations: what is taken out of its service is counted anew
// when it is back.
func (v *view) talliesWith(overlays map[backendName]overlay) map[backendName]tally {
	if len(v.tallies) == 0 {
		return nil
	}
	all := maps.Clone(v.tallies)
	maps.DeleteFunc(all, func(name backendName, _ tally) bool { return overlays[name].out() })
	return all
}

// counted is what the data plane and the proxy have counted.
type counted struct {
	lb.Counters
	proxy proxy.Stats
}
