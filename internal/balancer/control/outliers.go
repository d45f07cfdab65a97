// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/outliers"
	"github.com/jeoul/jeoul/internal/host/clock"
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

// armOutliers has the counters looked at while a service wants that.
func (c *Controller) armOutliers() {
	switch {
	case len(c.view.ejecting) == 0:
		c.tasks.outliers.Off()
	case !c.tasks.outliers.On():
		c.tasks.outliers.In(outliers.Every)
	}
}

// judgeOutliers looks at the counters, and puts in force what follows.
func (c *Controller) judgeOutliers() {
	c.tasks.outliers.In(outliers.Every)
	services := map[lb.ServiceKey]bool{}
	for _, i := range c.view.ejecting {
		services[c.view.cfg.Services[i].Key()] = true
	}
	counts, err := c.opt.DataPlane.BackendCounts(services)
	if err != nil {
		err = fmt.Errorf("read the counters by which backends are judged: %w", err)
	} else {
		changes := c.outliers.Look(time.Now(), c.view.outliers(counts))
		if err = c.takeEjections(); err == nil {
			c.tellOutliers(changes)
		}
	}
	if err != nil {
		c.settleFailure(err)
	}
}

// outliers returns what is to be judged.
func (v *view) outliers(counts map[lb.BackendKey]lb.BackendCount) (all []outliers.Service) {
	for _, i := range v.ejecting {
		s := v.cfg.Services[i]
		judged := outliers.Service{Outliers: s.Outliers, Protocol: s.Protocol, Backends: make([]outliers.Backend, len(s.Backends))}
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

// takeEjections puts the engine's ejections in force, and saves them.
func (c *Controller) takeEjections() error {
	now := c.outliers.Ejections()
	c.mu.Lock()
	c.spared = c.outliers.Spared()
	c.mu.Unlock()
	if maps.Equal(c.view.ejections, now) {
		c.keepOutliers()
		return nil
	}
	next, changed := c.view.withEjections(now, time.Now())
	if err := c.become(next); err != nil {
		return fmt.Errorf("eject backends that fail, or let them back: %w", err)
	}
	c.keepOutliers()
	for _, i := range changed {
		c.tellServing(i)
	}
	return nil
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

// ejectionsOf returns the ejections that hold for a configuration.
func (c *Controller) ejectionsOf(l *layout) map[lb.BackendKey]outliers.Ejection {
	all := c.outliers.Ejections()
	maps.DeleteFunc(all, func(key lb.BackendKey, _ outliers.Ejection) bool {
		at := l.find(key)
		return at == nil || !at.service.Outliers.On()
	})
	return all
}

// tellOutliers logs what is new of ejections.
func (c *Controller) tellOutliers(changes []outliers.Change) {
	for _, change := range changes {
		at := c.view.find(change.Key)
		if at == nil {
			continue
		}
		whose, lasted := who(at.service, at.backend), time.Since(change.Since).Round(time.Second)
		about := aboutBackend(events.KindHealth, at.service, at.backend)
		switch change.Kind {
		case outliers.Ejected:
			c.sayHealth(c.opt.Log.Warn, about, "%s is ejected for %s: it %s", whose, change.Until.Sub(change.Since), change.Reason)
		case outliers.LetBack:
			c.sayHealth(c.opt.Log.Info, about, "%s is let back, after %s", whose, lasted)
		case outliers.Needed:
			c.sayHealth(c.opt.Log.Warn, about, "%s is let back after %s, before its time: no other backend serves", whose, lasted)
		case outliers.Outranked:
			c.sayHealth(c.opt.Log.Info, about, "%s is no longer ejected, after %s: an operation, its checks or its path keep new flows from it", whose, lasted)
		case outliers.Spared:
			c.sayHealth(c.opt.Log.Warn, about, "%s %s, and is not ejected: %s", whose, change.Reason, change.Why)
		}
	}
}

// readmit ends the ejections of those of these backends that are ejected, as an operation asks for.
func (c *Controller) readmit(targets []use) error {
	for _, at := range targets {
		c.outliers.LetBack(c.view.keyOf(at), time.Now())
	}
	return c.takeEjections()
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
	status.Outliers = &ops.Outliers{FailuresPercent: o.Failures, Connections: o.Connections, IntervalSeconds: o.Interval.Seconds(),
		PauseSeconds: o.Pause.Seconds(), LongestPauseSeconds: o.LongestPause.Seconds(), EjectedPercent: o.Ejected}
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

// staleOutliers is how old what was saved may be of how often backends were ejected.
const staleOutliers = time.Hour

// savedOutliers is the form in which ejections are saved. Its times are those of the wall clock of Clock.
type savedOutliers struct {
	Clock    clock.Reading         `json:"clock"`
	Backends []outliers.Remembered `json:"backends"`
}

// timed returns what is remembered with other times: those of a file, or those of this process.
func timed(all []outliers.Remembered, other func(time.Time) time.Time) []outliers.Remembered {
	all = slices.Clone(all)
	for i := range all {
		all[i].Since, all[i].Until = other(all[i].Since), other(all[i].Until)
	}
	return all
}

// keepOutliers saves what the engine remembers, where it is something else than the last time.
// Where it cannot be saved, it is in force all the same.
func (c *Controller) keepOutliers() {
	all := c.outliers.Save()
	if c.opt.Ejections == nil || slices.Equal(all, c.kept) {
		return
	}
	c.kept = all
	clock := c.opt.Clock()
	data, err := json.Marshal(savedOutliers{clock, timed(all, clock.Written)})
	if err == nil {
		err = c.opt.Ejections.Save(data)
	}
	_ = c.noteUnsaved("saving which backends are ejected", err)
}

// recallOutliers goes on with what a process before has saved.
func (c *Controller) recallOutliers() {
	if c.opt.Ejections == nil {
		return
	}
	data, err := c.opt.Ejections.Load()
	var saved savedOutliers
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &saved)
	}
	if err != nil {
		c.opt.Log.Warn(fmt.Sprintf("no backend is ejected until it fails again: reading what was saved: %v", err))
		return
	}
	now, clock := time.Now(), c.opt.Clock()
	told := func(t time.Time) time.Time { return saved.Clock.Told(t, clock) }
	saved.Backends = timed(saved.Backends, told)
	if now.Sub(told(saved.Clock.Wall)) >= staleOutliers {
		saved.Backends = slices.DeleteFunc(saved.Backends, func(r outliers.Remembered) bool { return !now.Before(r.Until) })
	}
	c.outliers.Restore(saved.Backends, now)
	c.kept = c.outliers.Save()
}

// sparedProblems lists the backends that fail and are not ejected.
func (v *view) sparedProblems(spared map[lb.BackendKey]string) (list []string) {
	for _, i := range v.ejecting {
		s := v.cfg.Services[i]
		for _, b := range s.Backends {
			if why := spared[s.BackendKey(b)]; why != "" {
				list = append(list, fmt.Sprintf("%s fails what clients send it, and is not ejected: %s", who(s, b), why))
			}
		}
	}
	return list
}
