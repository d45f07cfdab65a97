// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"fmt"

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
	h := &ops.Health{State: v.State, Reason: v.Reason, Since: v.Since, WeightPercent: v.Weight, Drain: v.Drain, Checks: []ops.CheckResult{}}
	if h.State == "" {
		h.State = lb.HealthUnknown
	}
	for _, r := range v.Checks {
		h.Checks = append(h.Checks, ops.ResultOf(r))
	}
	return h
}

// addHealth writes into the status of service i what the checks say of its backends, and what
// follows for them.
func (c *Controller) addHealth(v *view, i int, spared map[lb.BackendKey]string, status *ops.Service) {
	s := v.cfg.Services[i]
	status.Checks, status.Require = checksStatus(s)
	status.Serving = servingOf(v.selected[i])
	status.Withdrawn = v.withdrawn(s.VIP)
	v.showStarts(i, status)
	v.showOutliers(i, spared, status)
	if !s.Checks.On() {
		return
	}
	status.OnDown = s.Checks.OnDown
	for j, b := range s.Backends {
		shown := &status.Backends[j]
		shown.Health = healthOf(c.opt.Checks.Verdict(s.BackendKey(b)))
		if now := v.verdict(use{i, j}); shown.Since.IsZero() && shown.Reason != "" && now.state == lb.Failing {
			shown.Since = now.since
		}
	}
}

// Check asks a backend of a service now, as its checks do, without consequence for its verdict.
// Errors: ops.ErrNotFound, ops.ErrRefused where nothing is asked of it, the context's.
func (c *Controller) Check(ctx context.Context, service, backend string) (ops.Checked, error) {
	c.mu.Lock()
	v := c.view
	c.mu.Unlock()
	targets, err := v.targets(ops.Order{Service: service, Backend: backend})
	if err != nil {
		return ops.Checked{}, err
	}
	at := targets[0]
	s, b := v.service(at), v.backend(at)
	checked := ops.Checked{Target: targetOf(s, b), Results: []ops.CheckResult{}, Steps: []ops.CheckStep{}}
	if !s.Checks.On() {
		return checked, fmt.Errorf("%w: the configuration has no check for %s; add one, such as check: tcp", ops.ErrRefused, s.Name)
	}
	checked.Checks, _ = checksStatus(s)
	o, e := v.overlayOf(s, b), v.known[v.at[at.i][at.j]]
	checked.State = condition(s, v.applied(at.i)[at.j], o, e).State
	results, err := c.opt.Checks.Ask(ctx, lb.Checking{Backend: s.BackendKey(b), Mode: s.Mode, Checks: s.Asked(), Any: s.Checks.Any},
		func(step lb.CheckStep) { checked.Steps = append(checked.Steps, ops.StepOf(step)) })
	for _, r := range results {
		checked.Results = append(checked.Results, ops.ResultOf(r))
	}
	if err != nil {
		return checked, fmt.Errorf("check %s: %w", checked.Target, err)
	}
	return checked, nil
}

// applied returns the backends of service i as the data plane has them, or, where a deadline has
// taken them out, as operations have them. Weights are those that a person has set: shares that
// agents ask for are shown apart.
func (v *view) applied(i int) []lb.Backend {
	s := v.cfg.Services[i]
	all, left := make([]lb.Backend, len(s.Backends)), v.state.Services[i].Backends
	for j, b := range s.Backends {
		o := v.overlayOf(s, b)
		all[j] = o.over(b)
		if o.out() {
			continue
		}
		all[j].Draining, all[j].Unhealthy, all[j].Ejected, all[j].Standby = left[0].Draining, left[0].Unhealthy, left[0].Ejected, left[0].Standby
		left = left[1:]
	}
	return all
}
