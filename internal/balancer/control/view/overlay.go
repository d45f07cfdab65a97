// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// Overlay is the changes of a configured backend by operations. The values that its fields point to are immutable,
// because overlays share them.
type Overlay struct {
	Drain  *ops.Drained  // nil: as configured
	Weight *ops.Weighted // nil: as configured
	Forced *ops.Forced   // nil: health checks apply
	// Absent: the backend was discovered, and no longer is; nil: the configuration has it.
	Absent *Absence
}

// Empty reports whether operations have changed nothing of the backend.
func (o Overlay) Empty() bool { return o.Drain == nil && o.Weight == nil && o.Forced == nil }

// IsOut reports whether the backend is out of its service: it is disabled, or its drain deadline has passed.
func (o Overlay) IsOut() bool { return o.Drain != nil && o.Drain.Out }

// ApplyTo returns a configured backend with the operations applied.
func (o Overlay) ApplyTo(b lb.Backend) lb.Backend {
	if o.Drain != nil {
		b.Draining = o.Drain.On
	}
	if o.Weight != nil {
		b.Weight = o.Weight.Value
	}
	return b
}

// Due reports whether the backend's drain deadline has passed, and it is not taken out yet.
func (o Overlay) Due(now time.Time) bool {
	return o.Drain != nil && o.Drain.On && !o.Drain.Out && !o.Drain.Deadline.IsZero() && !o.Drain.Deadline.After(now)
}

// SetOverlay sets the overlay of a name, or deletes it if the new one is empty.
func SetOverlay(overlays map[BackendName]Overlay, name BackendName, o Overlay) {
	if o.Empty() {
		delete(overlays, name)
		return
	}
	overlays[name] = o
}

// A discovered backend may be absent for a while: its container restarts, or its host reboots. No operator has removed
// it, so the operations on it stay with its name, for gaps of up to AbsentFor. Removing a backend from the
// configuration itself ends its operations.
const (
	// AbsentFor is how long an absent backend's overlay is kept.
	AbsentFor = 24 * time.Hour
	// MostAbsent is the maximum number of absent backends whose overlays are kept: containers may get a new name each
	// time.
	MostAbsent = 1000
)

// Absence describes a backend that was discovered, and no longer is.
type Absence struct {
	Since time.Time
	// Was is the backend as found last.
	Was lb.Backend
}

// Expired reports whether a backend has been absent for so long that its overlay is no longer kept.
func (a *Absence) Expired(now time.Time) bool { return a != nil && now.Sub(a.Since) >= AbsentFor }

// MayReturn reports whether a backend that the configuration does not have may be discovered again.
func (l *Layout) MayReturn(name BackendName, was lb.Backend) bool {
	i, there := l.Named[name.Service]
	return there && was.Origin != "" && l.Config.Services[i].Discovery.On()
}

// DropOldest deletes the backends that have been absent longest, until MostAbsent are left.
func DropOldest[V any](all map[BackendName]V, absent func(V) *Absence) (dropped []BackendName) {
	for name, v := range all {
		if absent(v) != nil {
			dropped = append(dropped, name)
		}
	}
	if len(dropped) <= MostAbsent {
		return nil
	}
	slices.SortFunc(dropped, func(a, b BackendName) int {
		return cmp.Or(absent(all[a]).Since.Compare(absent(all[b]).Since), cmp.Compare(a.String(), b.String()))
	})
	dropped = dropped[:len(dropped)-MostAbsent]
	for _, name := range dropped {
		delete(all, name)
	}
	return dropped
}

// Absentees are the backends that were discovered and no longer are, with or without operations.
type Absentees map[BackendName]*Absence

// Update applies a change of the configuration at a time: it adds the backends that are absent from then on, and
// deletes those that are back.
func (all Absentees) Update(before, now *Layout, at time.Time) {
	for i := range before.Config.Services {
		s := &before.Config.Services[i]
		if now.HasSameBackends(s) {
			continue
		}
		for _, b := range s.Backends {
			if name := NameOf(*s, b); now.MayReturn(name, b) {
				all[name] = &Absence{at, b}
			}
		}
	}
	maps.DeleteFunc(all, func(_ BackendName, a *Absence) bool { return a.Expired(at) })
	for name := range now.Locate(maps.Keys(all)) {
		delete(all, name)
	}
	DropOldest(all, func(a *Absence) *Absence { return a })
}

// HasSameBackends reports whether the configuration has a service of the same name with the same backends.
func (l *Layout) HasSameBackends(s *lb.Service) bool {
	i, there := l.Named[s.Name]
	return there && lb.SameBackends(l.Config.Services[i].Backends, s.Backends)
}

// StateText describes the state of a backend that operations have set, as in "drained by root since 2026-11-28
// 08:00:00".
func (o Overlay) StateText() string {
	var parts []string
	add := func(state, by string, at time.Time) {
		parts = append(parts, fmt.Sprintf("%s by %s since %s", state, by, at.Format(time.DateTime)))
	}
	if d := o.Drain; d != nil {
		switch {
		case d.Out:
			add("out of service", d.By, d.At)
		case d.On:
			add("drained", d.By, d.At)
		default:
			add("enabled", d.By, d.At)
		}
	}
	if f := o.Forced; f != nil {
		add("enabled by force", f.By, f.At)
	}
	if w := o.Weight; w != nil {
		add(fmt.Sprintf("of weight %d", w.Value), w.By, w.At)
	}
	return strings.Join(parts, " and ")
}

// At returns the overlay with its times converted by the given function.
func (o Overlay) At(convert func(time.Time) time.Time) Overlay {
	if o.Drain != nil {
		drain := *o.Drain
		drain.At, drain.Deadline = convert(drain.At), convert(drain.Deadline)
		o.Drain = &drain
	}
	if o.Weight != nil {
		weight := *o.Weight
		weight.At = convert(weight.At)
		o.Weight = &weight
	}
	if o.Forced != nil {
		o.Forced = &ops.Forced{By: o.Forced.By, At: convert(o.Forced.At)}
	}
	if o.Absent != nil {
		o.Absent = &Absence{convert(o.Absent.Since), o.Absent.Was}
	}
	return o
}

// Status returns the overlay's form in a status.
func (o Overlay) Status(target ops.Target, left ops.Left) ops.Overlay {
	shown := ops.Overlay{Target: target, Drain: o.Drain, Weight: o.Weight, Forced: o.Forced, Left: left}
	if o.Absent != nil {
		shown.Absent = o.Absent.Since
	}
	return shown
}
