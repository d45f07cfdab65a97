// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/outliers"
)

// Backends of services with outlier detection are evaluated by their answers to clients: the loop reads the counters
// every second. Ejections are part of the view, as the verdicts of checks are; selectBackends decides from both which
// backends serve.

// Outliers returns the services with outlier detection, with their backends' counters.
func (v *View) Outliers(counts map[lb.BackendKey]lb.BackendCount) (all []outliers.Service) {
	for _, i := range v.Ejecting {
		s := v.Config.Services[i]
		service := outliers.Service{Outliers: s.Outliers, Protocol: s.Protocol,
			Backends: make([]outliers.Backend, len(s.Backends))}
		for j, b := range s.Backends {
			key := s.BackendKey(b)
			m := v.member(Use{i, j})
			service.Backends[j] = outliers.Backend{Key: key, Count: counts[key],
				Eligible: !v.OverlayOf(s, b).IsOut() && m.isEligible() && m.State != lb.Failing}
		}
		all = append(all, service)
	}
	return all
}

// WithEjections returns the view with other ejections, as of now, and the services whose ejections have changed.
func (v *View) WithEjections(ejections map[lb.BackendKey]outliers.Ejection, now time.Time) (*View, []int) {
	next := *v
	next.Ejections, next.Now = ejections, now
	next.Selected, next.Starts = slices.Clone(v.Selected), slices.Clone(v.Starts)
	var changed []int
	shared := true
	for _, i := range v.Ejecting {
		s := v.Config.Services[i]
		differs := func(b lb.Backend) bool { return v.Ejections[s.BackendKey(b)] != ejections[s.BackendKey(b)] }
		if slices.ContainsFunc(s.Backends, differs) {
			changed = append(changed, i)
			made := shareSlices(next.buildService(i), &v.State.Services[i])
			if made.Same(&v.State.Services[i]) {
				continue // its checks, or an operation, exclude the backend anyway
			}
			if shared {
				next.State.Services, shared = slices.Clone(v.State.Services), false
			}
			next.State.Services[i] = made
		}
	}
	return &next, changed
}

// Ejected returns those of these backends that are ejected.
func (v *View) Ejected(targets []Use) []Use {
	return slices.DeleteFunc(slices.Clone(targets), func(at Use) bool {
		_, out := v.Ejections[v.KeyOf(at)]
		return !out
	})
}

// FillOutliers writes the settings of outlier detection of service i, and its ejections, into a status.
func (v *View) FillOutliers(i int, spared map[lb.BackendKey]string, status *ops.Service) {
	s := v.Config.Services[i]
	if !s.Outliers.On() {
		return
	}
	status.OnDown = s.Checks.OnDown
	o := s.Outliers
	status.Outliers = &ops.Outliers{FailuresPercent: o.Failures, Connections: o.Connections,
		IntervalSeconds: o.Interval.Seconds(),
		PauseSeconds:    o.Pause.Seconds(), LongestPauseSeconds: o.LongestPause.Seconds(), EjectedPercent: o.Ejected}
	for j, b := range s.Backends {
		key := s.BackendKey(b)
		shown := &status.Backends[j]
		shown.Spared = spared[key]
		e, out := v.Ejections[key]
		if !out || v.Verdict(Use{i, j}).State == lb.Failing {
			continue
		}
		shown.Ejection = &ops.Ejection{Since: e.Since, Until: e.Until, Times: e.Times, Reason: e.Reason}
		if shown.State == lb.Ejected {
			shown.Since = e.Since
		}
	}
}

// SparedProblems lists the outliers that are not ejected.
func (v *View) SparedProblems(spared map[lb.BackendKey]string) (list []string) {
	for _, i := range v.Ejecting {
		s := v.Config.Services[i]
		for _, b := range s.Backends {
			if why := spared[s.BackendKey(b)]; why != "" {
				list = append(list, fmt.Sprintf("%s fails what clients send it, and is not ejected: %s",
					loglines.BackendText(s, b), why))
			}
		}
	}
	return list
}
