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

// ejector ejects backends that are outliers, and readmits them.
type ejector struct {
	*core
	health   *healthLog
	storage  *storage
	outliers *outliers.Engine
	// spared has, for each outlier that is not ejected, the reason. Status reads it under the lock.
	spared map[lb.BackendKey]string
	// saved are the ejections saved last.
	saved        []outliers.SavedBackend
	outliersTask *loop.Task
}

// armOutliers schedules the evaluation of counters while any service has outliers configured.
func (e *ejector) armOutliers() {
	switch {
	case len(e.view.Ejecting) == 0:
		e.outliersTask.Cancel()
	case !e.outliersTask.Scheduled():
		e.outliersTask.Schedule(outliers.Interval)
	}
}

// evaluateOutliers evaluates the backends' counters, and applies the resulting ejections.
func (e *ejector) evaluateOutliers() {
	e.outliersTask.Schedule(outliers.Interval)
	services := map[lb.ServiceKey]bool{}
	for _, i := range e.view.Ejecting {
		services[e.view.Config.Services[i].Key()] = true
	}
	counts, err := e.opt.DataPlane.BackendCounts(services)
	if err != nil {
		err = fmt.Errorf("read the counters of backends for outlier detection: %w", err)
	} else {
		changes := e.outliers.Update(time.Now(), e.view.Outliers(counts))
		if err = e.applyEjections(); err == nil {
			e.health.logEjections(changes)
		}
	}
	if err != nil {
		e.recordResult(err)
	}
}

// applyEjections applies the engine's ejections, and saves them.
func (e *ejector) applyEjections() error {
	now := e.outliers.Ejections()
	e.mu.Lock()
	e.spared = e.outliers.Spared()
	e.mu.Unlock()
	if maps.Equal(e.view.Ejections, now) {
		e.saveOutliers()
		return nil
	}
	next, changed := e.view.WithEjections(now, time.Now())
	if err := e.applyView(next); err != nil {
		return fmt.Errorf("eject or readmit backends: %w", err)
	}
	e.saveOutliers()
	for _, i := range changed {
		e.health.logServing(i)
	}
	return nil
}

// ejectionsOf returns the ejections that apply to a configuration.
func (e *ejector) ejectionsOf(l *view.Layout) map[lb.BackendKey]outliers.Ejection {
	backends := e.outliers.Ejections()
	maps.DeleteFunc(backends, func(key lb.BackendKey, _ outliers.Ejection) bool {
		at := l.Find(key)
		return at == nil || !at.Service.Outliers.On()
	})
	return backends
}

// readmit ends the ejections of these backends, for an operation that enables them.
func (e *ejector) readmit(targets []view.Use) error {
	for _, at := range targets {
		e.outliers.Return(e.view.KeyOf(at), time.Now())
	}
	return e.applyEjections()
}

// staleOutliers is the maximum age of a saved count of ejections.
const staleOutliers = time.Hour

// savedOutliers is the form in which ejections are saved. Its times are those of the wall clock of Clock.
type savedOutliers struct {
	Clock    clock.Reading           `json:"clock"`
	Backends []outliers.SavedBackend `json:"backends"`
}

// timed returns saved backends with their times converted by the given function.
func timed(backends []outliers.SavedBackend, convert func(time.Time) time.Time) []outliers.SavedBackend {
	backends = slices.Clone(backends)
	for i := range backends {
		backends[i].Since, backends[i].Until = convert(backends[i].Since), convert(backends[i].Until)
	}
	return backends
}

// saveOutliers saves the engine's state, if it has changed since the last time. A state that cannot be saved stays in
// force.
func (e *ejector) saveOutliers() {
	backends := e.outliers.Save()
	if e.opt.Ejections == nil || slices.Equal(backends, e.saved) {
		return
	}
	e.saved = backends
	clock := e.opt.Clock()
	data, err := json.Marshal(savedOutliers{clock, timed(backends, clock.ToWall)})
	if err == nil {
		err = e.opt.Ejections.Save(data)
	}
	_ = e.storage.logUnsaved("saving which backends are ejected", err)
}

// restoreOutliers restores the state that the previous process saved.
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
	fromSaved := func(t time.Time) time.Time { return saved.Clock.FromWall(t, clock) }
	saved.Backends = timed(saved.Backends, fromSaved)
	if now.Sub(fromSaved(saved.Clock.Wall)) >= staleOutliers {
		saved.Backends = slices.DeleteFunc(saved.Backends, func(r outliers.SavedBackend) bool {
			return !now.Before(r.Until)
		})
	}
	e.outliers.Restore(saved.Backends, now)
	e.saved = e.outliers.Save()
}
