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

// Overlay is the changes by operations to a configured backend. The values that its fields point to are never changed,
// for earlier overlays share it.
type Overlay struct {
	Drain  *ops.Drained  // nil: as the file says
	Weight *ops.Weighted // nil: likewise
	Forced *ops.Forced   // nil: as health checks say
	// Absent: the backend was discovered, and is not any more; nil: the configuration has it.
	Absent *Absence
}

// Empty says whether operations have changed nothing of the backend.
func (o Overlay) Empty() bool { return o.Drain == nil && o.Weight == nil && o.Forced == nil }

// Out says whether the backend is out of its service: disabled, or its deadline has passed.
func (o Overlay) Out() bool { return o.Drain != nil && o.Drain.Out }

// Over returns a backend of the configuration as the operations have it.
func (o Overlay) Over(b lb.Backend) lb.Backend {
	if o.Drain != nil {
		b.Draining = o.Drain.On
	}
	if o.Weight != nil {
		b.Weight = o.Weight.Value
	}
	return b
}

// Due says whether the backend is to be taken out of its service by now.
func (o Overlay) Due(now time.Time) bool {
	return o.Drain != nil && o.Drain.On && !o.Drain.Out && !o.Drain.Deadline.IsZero() && !o.Drain.Deadline.After(now)
}

// Lay puts an overlay among others, or takes the one of its name away.
func Lay(overlays map[BackendName]Overlay, name BackendName, o Overlay) {
	if o.Empty() {
		delete(overlays, name)
		return
	}
	overlays[name] = o
}

// A backend that is discovered may be absent for a while: its container restarts, its host reboots. No operator has
// removed it, so that the operations on it stay with its name, for gaps of up to AbsentFor. An operator who removes a
// backend from the configuration itself ends its operations, too.
const (
	// AbsentFor is how long an absent backend's overlay is kept.
	AbsentFor = 24 * time.Hour
	// MostAbsent is of how many absent backends it is kept: names of containers may be new each time.
	MostAbsent = 1000
)

// Absence is a backend that was discovered, and is not any more.
type Absence struct {
	Since time.Time
	// Was is the backend as it was found last.
	Was lb.Backend
}

// Lapsed says whether a backend has been absent for so long that nothing is kept of it any more.
func (a *Absence) Lapsed(now time.Time) bool { return a != nil && now.Sub(a.Since) >= AbsentFor }

// MayReturn says whether a backend that a configuration does not have may be discovered again.
func (l *Layout) MayReturn(name BackendName, was lb.Backend) bool {
	i, there := l.Named[name.Service]
	return there && was.Origin != "" && l.Config.Services[i].Discovery.On()
}

// DropOldest deletes as many absent backends as there are too many, those that have been absent for longest.
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

// Absentees are the backends of any service that were discovered and are not any more, whether operations have changed
// them or not.
type Absentees map[BackendName]*Absence

// Follow takes note of a change of the configuration at a time: which backends are absent from then on, and which are
// back.
func (all Absentees) Follow(before, now *Layout, at time.Time) {
	for i := range before.Config.Services {
		s := &before.Config.Services[i]
		if now.HoldsBackends(s) {
			continue
		}
		for _, b := range s.Backends {
			if name := NameOf(*s, b); now.MayReturn(name, b) {
				all[name] = &Absence{at, b}
			}
		}
	}
	maps.DeleteFunc(all, func(_ BackendName, a *Absence) bool { return a.Lapsed(at) })
	for name := range now.Locate(maps.Keys(all)) {
		delete(all, name)
	}
	DropOldest(all, func(a *Absence) *Absence { return a })
}

// HoldsBackends says whether a configuration has a service of the same name with the same backends.
func (l *Layout) HoldsBackends(s *lb.Service) bool {
	i, there := l.Named[s.Name]
	return there && lb.SameBackends(l.Config.Services[i].Backends, s.Backends)
}

// HeldText describes the state in which operations hold a backend, as in "drained by root since 2026-11-28 08:00:00".
func (o Overlay) HeldText() string {
	var parts []string
	add := func(what, by string, at time.Time) {
		parts = append(parts, fmt.Sprintf("%s by %s since %s", what, by, at.Format(time.DateTime)))
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

// At returns the overlay with other times: those of a file, or those of this process.
func (o Overlay) At(other func(time.Time) time.Time) Overlay {
	if o.Drain != nil {
		drain := *o.Drain
		drain.At, drain.Deadline = other(drain.At), other(drain.Deadline)
		o.Drain = &drain
	}
	if o.Weight != nil {
		weight := *o.Weight
		weight.At = other(weight.At)
		o.Weight = &weight
	}
	if o.Forced != nil {
		o.Forced = &ops.Forced{By: o.Forced.By, At: other(o.Forced.At)}
	}
	if o.Absent != nil {
		o.Absent = &Absence{other(o.Absent.Since), o.Absent.Was}
	}
	return o
}

// Shown returns the overlay for others to read.
func (o Overlay) Shown(target ops.Target, left ops.Left) ops.Overlay {
	shown := ops.Overlay{Target: target, Drain: o.Drain, Weight: o.Weight, Forced: o.Forced, Left: left}
	if o.Absent != nil {
		shown.Absent = o.Absent.Since
	}
	return shown
}
