// SPDX-License-Identifier: Apache-2.0

package control

import (
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// checksStatus shows what the backends of a service are asked.
func checksStatus(s lb.Service) (list []ops.Check, require string) {
	for _, c := range s.Checks.List {
		list = append(list, ops.Check{Check: c.String(), Expected: c.Expected(), Via: c.ViaIn(s.Mode),
			IntervalSeconds: c.Interval.Seconds(), TimeoutSeconds: c.Timeout.Seconds(), Rise: c.Rise, Fall: c.Fall})
	}
	if len(list) > 1 {
		require = "all"
		if s.Checks.Any {
			require = "any"
		}
	}
	return list, require
}

// servingOf shows which backends take new flows.
func servingOf(p selection) ops.Serving {
	switch p.serving {
	case backups:
		return ops.ServingBackups
	case panicked:
		return ops.ServingAll
	}
	return ops.ServingHealthy
}

// healthOf shows what the checks say of a backend now; nil where nothing is asked.
func healthOf(v lb.Verdict, asked bool) *ops.Health {
	if !asked {
		return nil
	}
	h := &ops.Health{State: v.State, Reason: v.Reason, Since: v.Since, WeightPercent: v.Weight, Drain: v.Drain,
		Checks: []ops.CheckResult{}}
	if h.State == "" {
		h.State = lb.HealthUnknown
	}
	for _, r := range v.Checks {
		h.Checks = append(h.Checks, ops.ResultOf(r))
	}
	return h
}

// appliedBackend is a backend as the data plane has it.
type appliedBackend struct {
	lb.Backend
	lb.Observed
}

// applied returns the backends of service i as the data plane has them, or, where a deadline has
// taken them out, as operations have them. Weights are those that a person has set: shares that
// agents ask for are shown apart.
func (v *view) applied(i int) []appliedBackend {
	s := v.cfg.Services[i]
	all, left, k := make([]appliedBackend, len(s.Backends)), &v.state.Services[i], 0
	for j, b := range s.Backends {
		o := v.overlayOf(s, b)
		all[j] = appliedBackend{o.over(b), lb.ObservedOf(b)}
		if o.out() {
			continue
		}
		all[j].Draining, all[j].Observed = left.Backends[k].Draining, left.Observed.Of(k)
		k++
	}
	return all
}
