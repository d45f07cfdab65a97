// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/outliers"
)

// Backends of services that have outliers are judged by what they answer to clients: the loop looks
// at the counters each second. An ejection is a part of the view, beside the verdicts of checks; who
// serves is decided in one place from both.

// ejecting are the services that eject backends, by their numbers.
func ejecting(services []lb.Service) (all []int) {
	for i, s := range services {
		if s.Outliers.On() {
			all = append(all, i)
		}
	}
	return all
}

// outliers returns what is to be judged.
func (v *view) outliers(counts map[lb.BackendKey]lb.BackendCount) (all []outliers.Service) {
	for _, i := range v.ejecting {
		s := v.cfg.Services[i]
		judged := outliers.Service{Outliers: s.Outliers, Protocol: s.Protocol,
			Backends: make([]outliers.Backend, len(s.Backends))}
		for j, b := range s.Backends {
			key := s.BackendKey(b)
			m := v.member(use{i, j})
			judged.Backends[j] = outliers.Backend{Key: key, Count: counts[key],
				Wanted: !v.overlayOf(s, b).out() && m.wanted() && m.state != lb.Failing}
		}
		all = append(all, judged)
	}
	return all
}

// withEjections returns the view with other ejections, as of now, and the services for which they are.
func (v *view) withEjections(ejections map[lb.BackendKey]outliers.Ejection, now time.Time) (*view, []int) {
	next := *v
	next.ejections, next.now = ejections, now
	next.selected, next.starts = slices.Clone(v.selected), slices.Clone(v.starts)
	var changed []int
	shared := true
	for _, i := range v.ejecting {
		s := v.cfg.Services[i]
		differs := func(b lb.Backend) bool { return v.ejections[s.BackendKey(b)] != ejections[s.BackendKey(b)] }
		if slices.ContainsFunc(s.Backends, differs) {
			changed = append(changed, i)
			made := sharing(next.join(i), &v.state.Services[i])
			if made.Same(&v.state.Services[i]) {
				continue // its checks, or an operation, say the same of the backend
			}
			if shared {
				next.state.Services, shared = slices.Clone(v.state.Services), false
			}
			next.state.Services[i] = made
		}
	}
	return &next, changed
}

// ejected returns those of these backends that are ejected.
func (v *view) ejected(targets []use) []use {
	return slices.DeleteFunc(slices.Clone(targets), func(at use) bool {
		_, out := v.ejections[v.keyOf(at)]
		return !out
	})
}

// showOutliers shows how the backends of service i are judged, and which are ejected.
func (v *view) showOutliers(i int, spared map[lb.BackendKey]string, status *ops.Service) {
	s := v.cfg.Services[i]
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
		e, out := v.ejections[key]
		if !out || v.verdict(use{i, j}).state == lb.Failing {
			continue
		}
		shown.Ejection = &ops.Ejection{Since: e.Since, Until: e.Until, Times: e.Times, Reason: e.Reason}
		if shown.State == lb.Ejected {
			shown.Since = e.Since
		}
	}
}

// sparedProblems lists the backends that fail and are not ejected.
func (v *view) sparedProblems(spared map[lb.BackendKey]string) (list []string) {
	for _, i := range v.ejecting {
		s := v.cfg.Services[i]
		for _, b := range s.Backends {
			if why := spared[s.BackendKey(b)]; why != "" {
				list = append(list, fmt.Sprintf("%s fails what clients send it, and is not ejected: %s",
					who(s, b), why))
			}
		}
	}
	return list
}
