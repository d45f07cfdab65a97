// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/outliers"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// ejector ejects backends, and lets them back.
type ejector struct {
	*core
	health   *healthLog
	storage  *storage
	outliers *outliers.Engine
	// spared says why backends that fail are not ejected. Status reads it under the lock.
	spared map[lb.BackendKey]string
	// kept are the ejections saved last.
	kept         []outliers.SavedBackend
	outliersTask *loop.Task
}

// armOutliers has the counters looked at while a service wants that.
func (e *ejector) armOutliers() {
	switch {
	case len(e.view.Ejecting) == 0:
		e.outliersTask.Off()
	case !e.outliersTask.On():
		e.outliersTask.In(outliers.Interval)
	}
}

// evaluateOutliers judges backends by their counters, and puts the ejections in force.
func (e *ejector) evaluateOutliers() {
	e.outliersTask.In(outliers.Interval)
	services := map[lb.ServiceKey]bool{}
	for _, i := range e.view.Ejecting {
		services[e.view.Config.Services[i].Key()] = true
	}
	counts, err := e.opt.DataPlane.BackendCounts(services)
	if err != nil {
		err = fmt.Errorf("read the counters by which backends are judged: %w", err)
	} else {
		changes := e.outliers.Update(time.Now(), e.view.Outliers(counts))
		if err = e.takeEjections(); err == nil {
			e.health.logEjections(changes)
		}
	}
	if err != nil {
		e.settleFailure(err)
	}
}

// takeEjections puts the engine's ejections in force, and saves them.
func (e *ejector) takeEjections() error {
	now := e.outliers.Ejections()
	e.mu.Lock()
	e.spared = e.outliers.Spared()
	e.mu.Unlock()
	if maps.Equal(e.view.Ejections, now) {
		e.keepOutliers()
		return nil
	}
	next, changed := e.view.WithEjections(now, time.Now())
	if err := e.applyView(next); err != nil {
		return fmt.Errorf("eject backends that fail, or let them back: %w", err)
	}
	e.keepOutliers()
	for _, i := range changed {
		e.health.logServing(i)
	}
	return nil
}

// ejectionsOf returns the ejections that hold for a configuration.
func (e *ejector) ejectionsOf(l *view.Layout) map[lb.BackendKey]outliers.Ejection {
	all := e.outliers.Ejections()
	maps.DeleteFunc(all, func(key lb.BackendKey, _ outliers.Ejection) bool {
		at := l.Find(key)
		return at == nil || !at.Service.Outliers.On()
	})
	return all
}

// readmit ends the ejections of those of these backends that are ejected, as an operation asks for.
func (e *ejector) readmit(targets []view.Use) error {
	for _, at := range targets {
		e.outliers.Return(e.view.KeyOf(at), time.Now())
	}
	return e.takeEjections()
}

// staleOutliers is how old a saved count of ejections may be.
const staleOutliers = time.Hour

// savedOutliers is the form in which ejections are saved. Its times are those of the wall clock of Clock.
type savedOutliers struct {
	Clock    clock.Reading           `json:"clock"`
	Backends []outliers.SavedBackend `json:"backends"`
}

// timed returns the remembered outliers with their times converted: to those of a file, or to those of this process.
func timed(all []outliers.SavedBackend, other func(time.Time) time.Time) []outliers.SavedBackend {
	all = slices.Clone(all)
	for i := range all {
		all[i].Since, all[i].Until = other(all[i].Since), other(all[i].Until)
	}
	return all
}

// keepOutliers saves the engine's state, if it has changed since the last time. Where it cannot be saved, it is in
// force all the same.
func (e *ejector) keepOutliers() {
	all := e.outliers.Save()
	if e.opt.Ejections == nil || slices.Equal(all, e.kept) {
		return
	}
	e.kept = all
	clock := e.opt.Clock()
	data, err := json.Marshal(savedOutliers{clock, timed(all, clock.ToWall)})
	if err == nil {
		err = e.opt.Ejections.Save(data)
	}
	_ = e.storage.noteUnsaved("saving which backends are ejected", err)
}

// restoreOutliers goes on with the state that the previous process saved.
func (e *ejector) restoreOutliers() {
	if e.opt.Ejections == nil {
		return
	}
	data, err := e.opt.Ejections.Load()
	var saved savedOutliers
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &saved)
	}
	if err != nil {
		e.opt.Log.Warn(fmt.Sprintf("no backend is ejected until it fails again: reading the saved ejections: %v", err))
		return
	}
	now, clock := time.Now(), e.opt.Clock()
	told := func(t time.Time) time.Time { return saved.Clock.FromWall(t, clock) }
	saved.Backends = timed(saved.Backends, told)
	if now.Sub(told(saved.Clock.Wall)) >= staleOutliers {
		saved.Backends = slices.DeleteFunc(saved.Backends, func(r outliers.SavedBackend) bool {
			return !now.Before(r.Until)
		})
	}
	e.outliers.Restore(saved.Backends, now)
	e.kept = e.outliers.Save()
}
