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

// AddressesIn returns where the backends of a service are, by their names.
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

// Stays says which operations stay with a backend; empty: there are none.
func (v *View) Stays(s lb.Service, b lb.Backend) string {
	if held := v.OverlayOf(s, b).HeldText(); held != "" {
		return fmt.Sprintf("; it stays %s", held)
	}
	return ""
}

// listing is the command that lists services and backends.
const listing = "`jeoul status`"

// Owners returns the backends that names of services and of backends mean, all of them where there is none.
func (v *View) Owners(names []string) (map[lb.BackendKey]ops.Target, error) {
	met, owners := map[string]bool{}, map[lb.BackendKey]ops.Target{}
	for _, s := range v.Config.Services {
		for _, b := range s.Backends {
			target := TargetOf(s, b)
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

// takers counts the backends of service i that may take new flows, and those of
// them that are up; where failing ones are used for want of others, they are not.
func (v *View) takers(i int) (may, up int) {
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

// operationsAdmit says whether the operations let a backend of service i take new flows.
func (v *View) operationsAdmit(i int) bool {
	s := v.Config.Services[i]
	return slices.ContainsFunc(s.Backends, func(b lb.Backend) bool {
		o := v.OverlayOf(s, b)
		return !o.Out() && o.Over(b).TakesFlows()
	})
}

// CheckTakers finds services that have no backend that may take flows because of operations: those left in the
// configuration are drained.
func (v *View) CheckTakers() error {
	var problems yamlfile.Problems
	for i, s := range v.Config.Services {
		if v.Laid[s.Name] == 0 || s.MayBeEmpty() {
			continue
		}
		if !v.operationsAdmit(i) && slices.ContainsFunc(s.Backends, lb.Backend.TakesFlows) {
			problems = append(problems, v.Config.At(config.ServiceField(i, "backends"),
				"with the operations in force, no backend would take new flows%s; enable one (`jeoul backend list`), or keep another", v.others(i)))
		}
	}
	return problems.Err()
}

// others says why the backends of service i take no flows.
func (v *View) others(i int) string {
	s := v.Config.Services[i]
	var list []string
	for j, b := range s.Backends {
		if len(list) == mostOthers {
			list = append(list, "…")
			break
		}
		o := v.OverlayOf(s, b)
		switch b = o.Over(b); {
		case o.Out():
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

// mostOthers is how many backends are listed in an error.
const mostOthers = 4

// Leaves says why service i is worse off than in the view before: without a
// backend that takes flows, which it had.
func (v *View) Leaves(before *View, i int) error {
	mayBefore, upBefore := before.takers(i)
	may, up := v.takers(i)
	if (may > 0 || mayBefore == 0) && (up > 0 || upBefore == 0) {
		return nil
	}
	s := v.Config.Services[i]
	return fmt.Errorf("%w: %s would have no backend left that takes new flows%s; give it another first",
		ops.ErrRefused, s.Name, v.others(i))
}

// Targets returns the backends that an order is about.
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

// Bare says whether no backend of service i can take packets.
func (v *View) Bare(i int) bool {
	s := v.State.Services[i]
	for _, p := range s.Paths {
		if reached(s.Service, p) {
			return false
		}
	}
	return true
}
