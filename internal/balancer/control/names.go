// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/text/nearest"
)

// backendName is what a person calls a backend by. Names are unique within a service, and services' names are unique.
// What operations have changed goes by it: it stays with the name when the name gets another address. What was observed
// of a backend goes by its lb.BackendKey: see docs/internals/state.md.
type backendName struct{ service, backend string }

func nameOf(s lb.Service, b lb.Backend) backendName { return backendName{s.Name, b.Name} }

// String returns "web/web01", as the command line has it.
func (n backendName) String() string { return n.service + "/" + n.backend }

// overlayOf returns what operations have laid over backend b of s.
func (v *view) overlayOf(s lb.Service, b lb.Backend) overlay {
	if len(v.overlays) == 0 { // the usual case, which needs no hash of the name
		return overlay{}
	}
	return v.overlays[nameOf(s, b)]
}

// byName returns the backend of a name; nil if the configuration has none.
func (l *layout) byName(name backendName) *found {
	return l.locate(slices.Values([]backendName{name}))[name]
}

// locate returns the backends of names, without those that the configuration does not have. It walks over the backends
// of each service that the names are of once.
func (l *layout) locate(names iter.Seq[backendName]) map[backendName]*found {
	wanted, services := map[backendName]bool{}, map[int]bool{}
	for name := range names {
		if i, ok := l.named[name.service]; ok {
			wanted[name], services[i] = true, true
		}
	}
	all := make(map[backendName]*found, len(wanted))
	for i := range services {
		s := l.cfg.Services[i]
		for j, b := range s.Backends {
			if name := nameOf(s, b); wanted[name] {
				all[name] = &found{use{i, j}, s, b}
			}
		}
	}
	return all
}

// addressText writes where a backend of s is: with its port where that is not the service's.
func addressText(s lb.Service, b lb.Backend) string {
	if b.Port == s.Port {
		return b.Address.String()
	}
	return netip.AddrPortFrom(b.Address, b.Port).String()
}

// heldText says what operations have made of a backend, as in "drained by root since 2026-11-28 08:00:00".
func (o overlay) heldText() string {
	var parts []string
	add := func(what, by string, at time.Time) {
		parts = append(parts, fmt.Sprintf("%s by %s since %s", what, by, at.Format(time.DateTime)))
	}
	if d := o.drain; d != nil {
		switch {
		case d.Out:
			add("out of service", d.By, d.At)
		case d.On:
			add("drained", d.By, d.At)
		default:
			add("enabled", d.By, d.At)
		}
	}
	if f := o.forced; f != nil {
		add("enabled by force", f.By, f.At)
	}
	if w := o.weight; w != nil {
		add(fmt.Sprintf("of weight %d", w.Value), w.By, w.At)
	}
	return strings.Join(parts, " and ")
}

// about is what an event of an operation on the backend is about.
func (n backendName) about() events.About {
	return events.About{Kind: events.KindOperation, Service: n.service, Backend: n.backend}
}

// addressesIn returns where the backends of a service are, by their names.
func (v *view) addressesIn(service string) map[string]string {
	i, there := v.named[service]
	if !there {
		return nil
	}
	s := v.cfg.Services[i]
	all := make(map[string]string, len(s.Backends))
	for _, b := range s.Backends {
		all[b.Name] = addressText(s, b)
	}
	return all
}

// stays says which operations stay with a backend; empty: there are none.
func (v *view) stays(s lb.Service, b lb.Backend) string {
	if held := v.overlayOf(s, b).heldText(); held != "" {
		return fmt.Sprintf("; it stays %s", held)
	}
	return ""
}

// listing is the command that lists services and backends.
const listing = "`jeoul status`"

// owners returns the backends that names of services and of backends mean, all of them where there is none.
func (v *view) owners(names []string) (map[lb.BackendKey]ops.Target, error) {
	met, owners := map[string]bool{}, map[lb.BackendKey]ops.Target{}
	for _, s := range v.cfg.Services {
		for _, b := range s.Backends {
			target := targetOf(s, b)
			met[s.Name], met[target.String()] = true, true
			if len(names) == 0 || slices.Contains(names, s.Name) || slices.Contains(names, target.String()) {
				owners[s.BackendKey(b)] = target
			}
		}
	}
	for _, name := range names {
		if !met[name] {
			return nil, fmt.Errorf("%w: there is no service or backend %s; %s", ops.ErrNotFound, name,
				nearest.Proposal(name, slices.Sorted(maps.Keys(met)), listing))
		}
	}
	return owners, nil
}

func targetOf(s lb.Service, b lb.Backend) ops.Target {
	return ops.Target{Service: s.Name, Backend: b.Name, Address: b.Address, Port: b.Port}
}
