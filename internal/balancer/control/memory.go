// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"
	"iter"
	"maps"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// savedOverlay is an overlay as it is saved. Its times are those of the wall clock of Clock.
type savedOverlay struct {
	// Backend is where the backend was. Versions up to 0.4.0 go by it, and save no names.
	Backend lb.BackendKey `json:"backend"`
	// Service and Name are the service's and the backend's names.
	Service string `json:"service,omitempty"`
	Name    string `json:"name,omitempty"`
	// Absent is since when a backend that was discovered is absent; zero: it is there.
	Absent time.Time `json:"absent,omitzero"`
	// Was is the backend as the configuration had it last; nil where an older version has saved it.
	Was    *lb.Backend   `json:"was,omitempty"`
	Drain  *ops.Drained  `json:"drain,omitempty"`
	Weight *ops.Weighted `json:"weight,omitempty"`
	Forced *ops.Forced   `json:"forced,omitempty"`
	Clock  clock.Reading `json:"clock,omitzero"`
	// Tally is there where what was counted of the name is not what was counted of Backend.
	Tally *tally `json:"tally,omitempty"`
}

// at returns the overlay with other times: those of a file, or those of this process.
func (o overlay) at(other func(time.Time) time.Time) overlay {
	if o.drain != nil {
		drain := *o.drain
		drain.At, drain.Deadline = other(drain.At), other(drain.Deadline)
		o.drain = &drain
	}
	if o.weight != nil {
		weight := *o.weight
		weight.At = other(weight.At)
		o.weight = &weight
	}
	if o.forced != nil {
		o.forced = &ops.Forced{By: o.forced.By, At: other(o.forced.At)}
	}
	if o.absent != nil {
		o.absent = &absence{other(o.absent.since), o.absent.was}
	}
	return o
}

// recall returns what operations had changed when the process before ended, as far as the
// configuration has the backends, and by what their counts differ from those of their endpoints.
func (r *operator) recall(l *layout) (map[backendName]overlay, map[backendName]tally) {
	if !r.opt.TakesOver || r.opt.Memory == nil {
		return nil, nil
	}
	data, err := r.opt.Memory.Load()
	var saved []savedOverlay
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &saved)
	}
	if err != nil {
		// Without a process, no backend that dies is noticed: that is worse than a drain that is to be asked for again.
		r.opt.Log.Error("the drains and weights that operations had set are lost, for they cannot be read: " +
			oneLine(err))
		return nil, nil
	}
	overlays, tallies, now := map[backendName]overlay{}, map[backendName]tally{}, r.opt.Clock()
	for i := range saved {
		saved[i].findName(l)
	}
	is := l.locate(savedNames(saved))
	for _, s := range saved {
		name, o := s.restored(now)
		if at := is[name]; at != nil {
			o.absent = nil
			if s.Tally != nil && s.Backend == at.service.BackendKey(at.backend) {
				tallies[name] = *s.Tally
			}
		} else if o.absent == nil || !l.mayReturn(name, o.absent.was) {
			continue
		}
		lay(overlays, name, o)
	}
	return overlays, tallies
}

// savedNames are the names in what was saved.
func savedNames(saved []savedOverlay) iter.Seq[backendName] {
	return func(yield func(backendName) bool) {
		for _, s := range saved {
			if !yield(backendName{s.Service, s.Name}) {
				return
			}
		}
	}
}

// findName fills in the names where a version up to 0.4.0 has saved none: those of the backend that has the address
// now.
func (s *savedOverlay) findName(l *layout) {
	if s.Name != "" {
		return
	}
	if at := l.find(s.Backend); at != nil {
		s.Service, s.Name = at.service.Name, at.backend.Name
	}
}

// restored returns an overlay that was saved in the times of this process, and whose it is. It has the backend for
// absent, since when it was saved at the latest: whether it is there now is the configuration's to say.
func (s *savedOverlay) restored(now clock.Reading) (backendName, overlay) {
	o := overlay{drain: s.Drain, weight: s.Weight, forced: s.Forced}
	if s.Was != nil {
		o.absent = &absence{since: s.Clock.Wall, was: *s.Was}
		if !s.Absent.IsZero() {
			o.absent.since = s.Absent
		}
	}
	return backendName{s.Service, s.Name}, o.at(func(t time.Time) time.Time { return s.Clock.Told(t, now) })
}

// remind saves what operations have changed, where a view has other operations than the last.
// Where it cannot be saved, it is in force all the same.
func (r *operator) remind(now *view) {
	if r.opt.Memory == nil || maps.Equal(r.view.overlays, now.overlays) && maps.Equal(r.view.tallies, now.tallies) {
		return
	}
	data, err := json.Marshal(now.savedOverlays(r.opt.Clock()))
	if err == nil {
		err = r.opt.Memory.Save(data)
	}
	r.unsaved = r.storage.noteUnsaved("saving what operations have changed of backends", err)
}

// savedOverlays returns what operations have changed as it is saved at a time.
func (v *view) savedOverlays(clock clock.Reading) []savedOverlay {
	names := map[backendName]bool{}
	for name := range v.overlays {
		names[name] = true
	}
	for name := range v.tallies {
		names[name] = true
	}
	saved, is := make([]savedOverlay, 0, len(names)), v.locate(maps.Keys(names))
	for name := range names {
		o := v.overlays[name].at(clock.Written)
		s := savedOverlay{Service: name.service, Name: name.backend, Drain: o.drain, Weight: o.weight, Forced: o.forced,
			Clock: clock}
		switch at := is[name]; {
		case at != nil:
			s.Backend, s.Was = at.service.BackendKey(at.backend), &at.backend
		case o.absent != nil:
			was := o.absent.was
			s.Absent, s.Was = o.absent.since, &was
			if i, there := v.named[name.service]; there {
				s.Backend = v.cfg.Services[i].BackendKey(was)
			}
		}
		if t, is := v.tallies[name]; is {
			s.Tally = &t
		}
		saved = append(saved, s)
	}
	return saved
}
