// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// savedOverlay is the saved form of an overlay. Its times are those of the wall clock of Clock.
type savedOverlay struct {
	// Backend is the backend's key. Versions up to 0.4.0 identify backends by it, and save no names.
	Backend lb.BackendKey `json:"backend"`
	// Service and Name are the service's and the backend's names.
	Service string `json:"service,omitempty"`
	Name    string `json:"name,omitempty"`
	// Absent is since when a discovered backend has been absent; zero: it is present.
	Absent time.Time `json:"absent,omitzero"`
	// Was is the backend as configured last; nil if an older version has saved the overlay.
	Was    *lb.Backend   `json:"was,omitempty"`
	Drain  *ops.Drained  `json:"drain,omitempty"`
	Weight *ops.Weighted `json:"weight,omitempty"`
	Forced *ops.Forced   `json:"forced,omitempty"`
	Clock  clock.Reading `json:"clock,omitzero"`
	// Tally is set if the name's count differs from that of Backend.
	Tally *view.Tally `json:"tally,omitempty"`
}

// restoreOverlays returns the overlays of operations that the previous process saved, for backends that the
// configuration has or may discover again, and their tallies; none if its data plane was not taken over.
func (r *operator) restoreOverlays(l *view.Layout) (map[view.BackendName]view.Overlay,
	map[view.BackendName]view.Tally) {
	if r.opt.Memory == nil {
		return nil, nil
	}
	saved, err := r.loadOverlays()
	if err != nil {
		// This must not keep the process from starting: without one, failing backends go unnoticed, which is worse than
		// a drain that has to be repeated.
		r.opt.Log.Error("the drains and weights that operations had set are lost, for they cannot be read: " +
			loglines.OneLine(err))
	}
	if !r.opt.TakesOver && (len(saved) > 0 || err != nil) {
		r.removeOverlays(saved)
	}
	if !r.opt.TakesOver || err != nil {
		return nil, nil
	}
	overlays, tallies, now := map[view.BackendName]view.Overlay{}, map[view.BackendName]view.Tally{}, r.opt.Clock()
	for i := range saved {
		saved[i].findName(l)
	}
	found := l.Locate(savedNames(saved))
	for _, s := range saved {
		name, o := s.restored(now)
		if at := found[name]; at != nil {
			o.Absent = nil
			if s.Tally != nil && s.Backend == at.Service.BackendKey(at.Backend) {
				tallies[name] = *s.Tally
			}
		} else if o.Absent == nil || !l.MayReturn(name, o.Absent.Was) {
			continue
		}
		view.SetOverlay(overlays, name, o)
	}
	return overlays, tallies
}

// loadOverlays reads the overlays that the previous process saved.
func (r *operator) loadOverlays() ([]savedOverlay, error) {
	data, err := r.opt.Memory.Load()
	if err != nil || len(data) == 0 {
		return nil, err
	}
	var saved []savedOverlay
	if err := json.Unmarshal(data, &saved); err != nil {
		return nil, err
	}
	return saved, nil
}

// removeOverlays removes the overlays that the previous process saved: else the operations would come back, weeks later
// perhaps, with a process that takes over the data plane of this one.
func (r *operator) removeOverlays(saved []savedOverlay) {
	ended := 0
	for _, s := range saved {
		if s.Drain != nil || s.Weight != nil || s.Forced != nil {
			ended++
		}
	}
	if ended > 0 {
		r.opt.Log.Warn(fmt.Sprintf("what operations had changed has ended with the data plane of the previous process, which could not be taken over: this start has the weights and drains of the configuration; backends: %d",
			ended))
	}
	_ = r.opt.Memory.Save(nil) // Files reports an error, and retries it
}

// savedNames returns the names of the saved overlays.
func savedNames(saved []savedOverlay) iter.Seq[view.BackendName] {
	return func(yield func(view.BackendName) bool) {
		for _, s := range saved {
			if !yield(view.BackendName{Service: s.Service, Backend: s.Name}) {
				return
			}
		}
	}
}

// findName fills in the names if a version up to 0.4.0 has saved none: those of the backend that has the address now.
func (s *savedOverlay) findName(l *view.Layout) {
	if s.Name != "" {
		return
	}
	if at := l.Find(s.Backend); at != nil {
		s.Service, s.Name = at.Service.Name, at.Backend.Name
	}
}

// restored returns the backend's name and its overlay, with times converted to this process's clock. The overlay says
// that the backend has been absent since it was saved, or longer: the caller clears that if the configuration has the
// backend.
func (s *savedOverlay) restored(now clock.Reading) (view.BackendName, view.Overlay) {
	o := view.Overlay{Drain: s.Drain, Weight: s.Weight, Forced: s.Forced}
	if s.Was != nil {
		o.Absent = &view.Absence{Since: s.Clock.Wall, Was: *s.Was}
		if !s.Absent.IsZero() {
			o.Absent.Since = s.Absent
		}
	}
	name := view.BackendName{Service: s.Service, Backend: s.Name}
	return name, o.At(func(t time.Time) time.Time { return s.Clock.FromWall(t, now) })
}

// saveOverlays saves the overlays of operations if a view has changed them. Overlays that cannot be saved stay in
// force.
func (r *operator) saveOverlays(now *view.View) {
	if r.opt.Memory == nil || maps.Equal(r.view.Overlays, now.Overlays) && maps.Equal(r.view.Tallies, now.Tallies) {
		return
	}
	data, err := json.Marshal(savedOverlays(now, r.opt.Clock()))
	if err == nil {
		err = r.opt.Memory.Save(data)
	}
	r.unsaved = r.storage.logUnsaved("saving the operations on backends", err)
}

// savedOverlays returns the saved form of a view's overlays, with times by this clock.
func savedOverlays(v *view.View, clock clock.Reading) []savedOverlay {
	names := map[view.BackendName]bool{}
	for name := range v.Overlays {
		names[name] = true
	}
	for name := range v.Tallies {
		names[name] = true
	}
	saved, found := make([]savedOverlay, 0, len(names)), v.Locate(maps.Keys(names))
	for name := range names {
		o := v.Overlays[name].At(clock.ToWall)
		s := savedOverlay{Service: name.Service, Name: name.Backend, Drain: o.Drain, Weight: o.Weight, Forced: o.Forced,
			Clock: clock}
		switch at := found[name]; {
		case at != nil:
			s.Backend, s.Was = at.Service.BackendKey(at.Backend), &at.Backend
		case o.Absent != nil:
			backend := o.Absent.Was
			s.Absent, s.Was = o.Absent.Since, &backend
			if i, ok := v.Named[name.Service]; ok {
				s.Backend = v.Config.Services[i].BackendKey(backend)
			}
		}
		if t, ok := v.Tallies[name]; ok {
			s.Tally = &t
		}
		saved = append(saved, s)
	}
	return saved
}
