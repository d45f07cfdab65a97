// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/text/nearest"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// AddressesIn returns the addresses of a service's backends, by name.
func (v *View) AddressesIn(service string) map[string]string {
	i, there := v.Named[service]
	if !there {
		return nil
	}
	s := v.Config.Services[i]
	all := make(map[string]string, len(s.Backends))
	for _, b := range s.Backends {
		all[b.Name] = AddressText(s, b)
	}
	return all
}

// RetainedOperations describes the operations that stay in force on a backend; empty: there are none.
func (v *View) RetainedOperations(s lb.Service, b lb.Backend) string {
	if held := v.OverlayOf(s, b).StateText(); held != "" {
		return fmt.Sprintf("; it stays %s", held)
	}
	return ""
}

// listing is the command that lists services and backends.
const listing = "`jeoul status`"

// Owners returns the backends that the names of services and backends select; all of them without names.
func (v *View) Owners(names []string) (map[lb.BackendKey]ops.Target, error) {
	known, owners := map[string]bool{}, map[lb.BackendKey]ops.Target{}
	for _, s := range v.Config.Services {
		for _, b := range s.Backends {
			target := TargetOf(s, b)
			known[s.Name], known[target.String()] = true, true
			if len(names) == 0 || slices.Contains(names, s.Name) || slices.Contains(names, target.String()) {
				owners[s.BackendKey(b)] = target
			}
		}
	}
	for _, name := range names {
		if !known[name] {
			return nil, fmt.Errorf("%w: there is no service or backend %s; %s", ops.ErrNotFound, name,
				nearest.Proposal(name, slices.Sorted(maps.Keys(known)), listing))
		}
	}
	return owners, nil
}

// countEligible counts the backends of service i that may take new flows, and those of them that are up. While failing
// backends are used because too few are healthy, these do not count as up.
func (v *View) countEligible(i int) (may, up int) {
	s := v.State.Services[i]
	for j := range s.Backends {
		if s.Admits(j) {
			may++
			if reached(s.Service, s.Paths[j]) {
				up++
			}
		}
	}
	if v.Selected[i].Serving == Panicked {
		up = v.Selected[i].Healthy
	}
	return may, up
}

// operationsAdmit reports whether operations let any backend of service i take new flows.
func (v *View) operationsAdmit(i int) bool {
	s := v.Config.Services[i]
	return slices.ContainsFunc(s.Backends, func(b lb.Backend) bool {
		o := v.OverlayOf(s, b)
		return !o.IsOut() && o.ApplyTo(b).TakesFlows()
	})
}

// CheckEligible returns an error if operations leave a service without a backend that may take new flows: the
// configuration has removed all others.
func (v *View) CheckEligible() error {
	var problems yamlfile.Problems
	if len(v.OverlayCounts) == 0 {
		return nil
	}
	for i, s := range v.Config.Services {
		if v.OverlayCounts[s.Name] == 0 || s.MayBeEmpty() {
			continue
		}
		if !v.operationsAdmit(i) && slices.ContainsFunc(s.Backends, lb.Backend.TakesFlows) {
			problems = append(problems, v.Config.At(config.ServiceField(i, "backends"),
				"with the operations in force, no backend would take new flows%s; enable one (`jeoul backend list`), or keep another", v.whyNoneEligible(i)))
		}
	}
	return problems.Err()
}

// whyNoneEligible lists why the backends of service i take no new flows.
func (v *View) whyNoneEligible(i int) string {
	s := v.Config.Services[i]
	var list []string
	for j, b := range s.Backends {
		if len(list) == maxListed {
			list = append(list, "…")
			break
		}
		o := v.OverlayOf(s, b)
		switch b = o.ApplyTo(b); {
		case o.IsOut():
			list = append(list, b.Name+" is out")
		case b.Draining:
			list = append(list, b.Name+" drained")
		case b.Weight == 0:
			list = append(list, b.Name+" of weight 0")
		case v.Verdict(Use{i, j}).State == lb.Failing:
			list = append(list, b.Name+" unhealthy")
		case v.Ejections[s.BackendKey(b)].Reason != "":
			list = append(list, b.Name+" ejected")
		default:
			list = append(list, b.Name+" "+WhyUnreachable(s, v.Known[v.At[i][j]]))
		}
	}
	return " (then: " + strings.Join(list, ", ") + ")"
}

// maxListed is the maximum number of backends that an error lists.
const maxListed = 4

// CheckNotEmptied returns an error if service i has no backend that takes new flows, while it had one in the previous
// view.
func (v *View) CheckNotEmptied(before *View, i int) error {
	mayBefore, upBefore := before.countEligible(i)
	may, up := v.countEligible(i)
	if (may > 0 || mayBefore == 0) && (up > 0 || upBefore == 0) {
		return nil
	}
	s := v.Config.Services[i]
	return fmt.Errorf("%w: %s would have no backend left that takes new flows%s; give it another first",
		ops.ErrRefused, s.Name, v.whyNoneEligible(i))
}

// Targets returns the backends that an order selects.
func (v *View) Targets(order ops.Order) ([]Use, error) {
	i, ok := v.Named[order.Service]
	if !ok {
		return nil, fmt.Errorf("%w: there is no service %s; %s", ops.ErrNotFound, order.Service,
			nearest.Proposal(order.Service, slices.Collect(maps.Keys(v.Named)), listing))
	}
	s := v.Config.Services[i]
	j := slices.IndexFunc(s.Backends, func(b lb.Backend) bool { return b.Name == order.Backend })
	if j < 0 {
		var names []string
		for _, b := range s.Backends {
			names = append(names, b.Name)
		}
		return nil, fmt.Errorf("%w: %s has no backend %s; %s", ops.ErrNotFound, s.Name, order.Backend,
			nearest.Proposal(order.Backend, names, listing))
	}
	if order.AllServices {
		return v.Uses[v.At[i][j]], nil
	}
	return []Use{{i, j}}, nil
}

// NamesOf returns the names of backends.
func (v *View) NamesOf(uses []Use) []BackendName {
	names := make([]BackendName, len(uses))
	for i, at := range uses {
		names[i] = NameOf(v.Service(at), v.Backend(at))
	}
	return names
}

// Unreachable reports whether no backend of service i has a path.
func (v *View) Unreachable(i int) bool {
	s := v.State.Services[i]
	for _, p := range s.Paths {
		if reached(s.Service, p) {
			return false
		}
	}
	return true
}
