// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
)

// ChecksStatus returns the checks of a service's backends, for the status.
func ChecksStatus(s lb.Service) (list []ops.Check, require string) {
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

// ServingOf returns the set of serving backends, for the status.
func ServingOf(p Selection) ops.Serving {
	switch p.Serving {
	case backups:
		return ops.ServingBackups
	case Panicked:
		return ops.ServingAll
	}
	return ops.ServingHealthy
}

// HealthOf returns the present results of a backend's checks, for the status; nil if it has no checks.
func HealthOf(v lb.Verdict, asked bool) *ops.Health {
	if !asked {
		return nil
	}
	h := &ops.Health{State: v.State, Reason: v.Reason, Since: v.Since, WeightPercent: v.Weight, Drain: v.Drain,
		Checks: []ops.CheckResult{}}
	if h.State == "" {
		h.State, h.WeightPercent = lb.HealthUnknown, 100
	}
	for _, r := range v.Checks {
		h.Checks = append(h.Checks, ops.ResultOf(r))
	}
	return h
}

// AppliedBackend is a backend as the data plane has it.
type AppliedBackend struct {
	lb.Backend
	lb.Observed
	// muted: it takes no new flows in spite of its weight, because its agent requests a share of 0.
	muted bool
}

// Applied returns the backends of service i as the data plane has them, or, for those that are taken out, with their
// operations applied. Weights are those of the configuration and of operations, or those that backends report in place
// of the configured ones: shares that agents report are shown separately.
func (v *View) Applied(i int) []AppliedBackend {
	s := v.Config.Services[i]
	all, left, k := make([]AppliedBackend, len(s.Backends)), &v.State.Services[i], 0
	for j, b := range s.Backends {
		o := v.OverlayOf(s, b)
		all[j] = AppliedBackend{Backend: o.ApplyTo(b), Observed: lb.ObservedOf(b)}
		all[j].Weight = effectiveWeight(all[j].Weight, o, v.Verdict(Use{i, j}))
		if o.IsOut() {
			continue
		}
		all[j].Draining, all[j].Observed = left.Backends[k].Draining, left.Observed.Of(k)
		all[j].muted = all[j].Weight > 0 && left.Backends[k].Weight == 0
		k++
	}
	return all
}

// Condition returns the condition of a backend, with operations applied, according to the data plane's state.
func Condition(s lb.Service, b AppliedBackend, o Overlay, e *paths.Entry) lb.Condition {
	var reach lb.Reachability
	if !s.Mode.Proxied() { // which the kernel routes to
		reach = lb.Reachability{
			NoRoute: e.Fault != paths.None || RouteProblem(s, e.Address, e.Route) != "",
			NoMAC:   e.MAC == nil, Reason: WhyUnreachable(s, e)}
	}
	c := lb.ConditionOf(b.Backend, b.Observed, o.IsOut(), reach)
	if c.State == lb.Up && b.muted {
		c.State = lb.WeightZero // a fault of its path or its checks says more
	}
	return c
}

// Text describes which backends of a service take new flows.
func (p Selection) Text(s lb.Service) string {
	switch p.Serving {
	case backups:
		if p.Healthy == 0 {
			return "no backend takes new flows, and no backup either"
		}
		return "its backups take new flows, for no other backend does"
	case Panicked:
		return fmt.Sprintf("%d of %d backends are healthy, which is less than panic, %d%%: new flows go to all of them",
			p.Healthy, p.Wanted, s.Checks.Panic)
	}
	return fmt.Sprintf("new flows go to healthy backends only again: %d of %d", p.Healthy, p.Wanted)
}
