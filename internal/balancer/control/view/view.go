// SPDX-License-Identifier: Apache-2.0

// Package view is the desired state of a balancer: what the data plane, the proxy, the host and the routers are to
// have, and the inputs that it is made of: a configuration laid out (Layout), the changes by operations (Overlay), and
// the observed paths and verdicts. It is pure: nothing is read or done here, and the time is handed in.
package view

import (
	"bytes"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/outliers"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// View is the state that was applied to the data plane last, with its inputs. It is immutable: a change creates another
// view, which shares the unchanged parts, and Status reads a view without blocking the loop.
type View struct {
	*Layout
	Overlays map[BackendName]Overlay
	// Links are the configuration's interfaces, with their states when it was validated.
	Links []iface.State
	// Passive: another balancer holds the VIPs.
	Passive bool
	// Joining is why the VIPs are still left to other balancers; empty if they are not.
	Joining string
	// OverlayCounts is the number of overlays of each service, by its name.
	OverlayCounts map[string]int
	// Tallies are the tallies of names whose endpoint has changed, or had another name before.
	Tallies map[BackendName]Tally
	// Known[n] is the known path to the backend address of number n.
	Known []*paths.Entry
	// Verdicts[i][j] is the verdict on backend j of service i; nil for a service without checks.
	Verdicts [][]Verdict
	// Ejections are the ejections in force; the map is immutable.
	Ejections map[lb.BackendKey]outliers.Ejection
	// Selected[i] says which backends of service i take new flows; zero if the service is plain.
	Selected []Selection
	// Starts[i][j] is the slow start of backend j of service i, as of Now, when the view was made; nil for a service
	// without slow start.
	Starts [][]Start
	Now    time.Time
	// Hairpin is the state of hairpins, of which State.Hairpin is a part.
	Hairpin Hairpins
	// State.Services[i] is service i; those of mode proxy are included: see DataPlaneState. Views share slices of
	// backends and paths that a change does not affect: the data plane compares slices by identity.
	State lb.State
}

// New returns the view of a configuration, operations, paths, verdicts and ejections, as of now. It shares unchanged
// parts with the previous view, which may be nil.
func New(l *Layout, overlays map[BackendName]Overlay, known []*paths.Entry, verdicts [][]Verdict,
	ejections map[lb.BackendKey]outliers.Ejection,
	previous *View, now time.Time) *View {
	v := &View{Layout: l, Overlays: overlays, OverlayCounts: countOverlays(overlays), Known: known,
		Verdicts: verdicts, Ejections: ejections, Now: now,
		State: lb.State{Hook: l.Config.Hook, Interfaces: l.Config.Interfaces, Local: l.Cgroup}}
	v.findStarts(previous)
	copied := previous != nil && len(previous.State.Services) == len(l.Config.Services)
	if copied { // most services are as they were, where they were
		v.State.Services, v.Selected = slices.Clone(previous.State.Services), slices.Clone(previous.Selected)
	} else {
		v.State.Services = make([]lb.RoutedService, len(l.Config.Services))
		v.Selected = make([]Selection, len(l.Config.Services))
	}
	for i := range l.Config.Services {
		s := &l.Config.Services[i]
		if previousService := previous.unchangedService(v, i); previousService != nil {
			v.State.Services[i] = lb.RoutedService{Service: *s, Paths: previousService.Paths,
				Observed: previousService.Observed}
			v.State.Services[i].Backends, v.Selected[i] = previousService.Backends, Selection{}
			continue
		}
		if at, evaluated := previous.sameEvaluation(v, i); evaluated {
			if !copied || at != i {
				v.State.Services[i], v.Selected[i] = previous.State.Services[at], previous.Selected[at]
			}
			continue
		}
		v.State.Services[i] = shareSlices(v.buildService(i), previous.byKey(s.Key()))
	}
	v.State.Pool = l.Config.Pool()
	return v
}

// SharesState reports whether the data plane's state is the same in both views.
func (v *View) SharesState(before *View) bool {
	a, b := v.State.Services, before.State.Services
	same := len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
	// A change of services of mode proxy does not affect a data plane that has no other services.
	proxied := len(v.Proxied) == len(a) && len(before.Proxied) == len(b)
	return v.Layout == before.Layout && v.State.Hairpin.Equal(before.State.Hairpin) && (same || proxied)
}

// countOverlays counts the overlays of each service, without those of absent backends.
func countOverlays(overlays map[BackendName]Overlay) map[string]int {
	counts := map[string]int{}
	for name, o := range overlays {
		if o.Absent == nil {
			counts[name.Service]++
		}
	}
	return counts
}

// byKey returns the service that the data plane has under a key, nil if none.
func (v *View) byKey(key lb.ServiceKey) *lb.RoutedService {
	if v == nil {
		return nil
	}
	if i, ok := v.Keyed[key]; ok && i < len(v.State.Services) {
		return &v.State.Services[i]
	}
	return nil
}

// Entry returns the known path to an address; nil if no backend has that address.
func (v *View) Entry(addr netip.Addr) *paths.Entry {
	if v == nil {
		return nil
	}
	if n, ok := v.Number[addr]; ok && n < len(v.Known) {
		return v.Known[n]
	}
	return nil
}

// HasService reports whether the view's configuration has service i of another one with exactly this content, and
// where.
func (v *View) HasService(i int, s *lb.Service) (at int, has bool) {
	if v == nil {
		return 0, false
	}
	at, there := v.at(i, s)
	if !there {
		return 0, false
	}
	previousService := &v.Config.Services[at]
	if lb.Identical(previousService, s) {
		return at, true
	}
	if !lb.SameBackends(previousService.Backends, s.Backends) {
		return 0, false
	}
	a, b := *previousService, *s
	a.Backends, b.Backends = nil, nil
	return at, reflect.DeepEqual(a, b)
}

// unchangedService returns the routed service whose backends and paths equal those of service i of the next view; nil
// if there is none.
func (v *View) unchangedService(next *View, i int) *lb.RoutedService {
	s := &next.Config.Services[i]
	if v == nil || !next.isPlain(i) {
		return nil
	}
	previous, there := v.at(i, s)
	if !there || previous >= len(v.State.Services) || !v.isPlain(previous) {
		return nil
	}
	previousService := &v.State.Services[previous]
	if previousService.Mode != s.Mode {
		return nil
	}
	if !lb.SameBackends(v.Config.Services[previous].Backends, s.Backends) {
		return nil
	}
	for j := range s.Backends {
		if !samePath(v.Known[v.At[previous][j]], next.Known[next.At[i][j]]) {
			return nil
		}
	}
	return previousService
}

// sameEvaluation returns the index of a service of this view that evaluate would return for service i of the next view:
// one with the same configuration, verdicts, paths and ejections, without operations and without slow start. Evaluating
// 100,000 backends again for a change of one would take half a second of a core.
func (v *View) sameEvaluation(next *View, i int) (at int, ok bool) {
	s := &next.Config.Services[i]
	if s.SlowStart > 0 || next.OverlayCounts[s.Name] > 0 {
		return 0, false
	}
	at, held := v.HasService(i, s)
	if !held || v.OverlayCounts[s.Name] > 0 || at >= len(v.State.Services) ||
		!sameVerdicts(v.Verdicts[at], next.Verdicts[i]) {
		return 0, false
	}
	was, is := v.At[at], next.At[i]
	for j := range s.Backends {
		if !samePath(v.Known[was[j]], next.Known[is[j]]) {
			return 0, false
		}
		if len(v.Ejections)+len(next.Ejections) == 0 {
			continue
		}
		if key := s.BackendKey(s.Backends[j]); v.Ejections[key].Reason != next.Ejections[key].Reason {
			return 0, false
		}
	}
	return at, true
}

// sameVerdicts says whether verdicts are the same; mostly they share their memory.
func sameVerdicts(a, b []Verdict) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// buildService builds the routed service of service i, and sets which of its backends take new flows.
func (v *View) buildService(i int) (made lb.RoutedService) {
	if !v.isPlain(i) {
		made, v.Selected[i] = v.evaluate(i)
		return made
	}
	s := v.Config.Services[i]
	v.Selected[i] = Selection{}
	made = lb.RoutedService{Service: s, Paths: make([]lb.Path, 0, len(s.Backends)),
		Observed: lb.ObservationsOf(len(s.Backends), func(j int) lb.Observed { return lb.ObservedOf(s.Backends[j]) })}
	for j := range s.Backends {
		made.Paths = append(made.Paths, pathOf(s, v.Known[v.At[i][j]]))
	}
	return made
}

// pathOf returns the path of a service's packets along an entry; the zero path if they cannot take it.
func pathOf(s lb.Service, e *paths.Entry) lb.Path {
	if WhyUnreachable(s, e) != "" || s.Mode.Proxied() {
		return lb.Path{}
	}
	return e.Path()
}

// shareSlices returns a service with the slices of a previous one, which may be nil, where their contents are equal.
func shareSlices(made lb.RoutedService, previous *lb.RoutedService) lb.RoutedService {
	if previous == nil {
		return made
	}
	if lb.SameBackends(made.Backends, previous.Backends) {
		made.Backends = previous.Backends
	}
	if made.Observed.Equal(previous.Observed) {
		made.Observed = previous.Observed
	}
	if slices.EqualFunc(made.Paths, previous.Paths, equalPaths) {
		made.Paths = previous.Paths
	}
	return made
}

func equalPaths(a, b lb.Path) bool {
	return a.Interface == b.Interface && bytes.Equal(a.MAC, b.MAC) && bytes.Equal(a.Source, b.Source) &&
		a.MTU == b.MTU && a.Local == b.Local
}

// WithOverlays returns the view with other overlays, as of now; services are those whose overlays have changed.
func (v *View) WithOverlays(overlays map[BackendName]Overlay, services []int, now time.Time) *View {
	next := *v
	next.Overlays, next.OverlayCounts, next.Tallies = overlays, countOverlays(overlays), v.talliesFor(overlays)
	next.State.Services, next.Selected = slices.Clone(v.State.Services), slices.Clone(v.Selected)
	next.Starts, next.Now = slices.Clone(v.Starts), now
	for _, i := range services {
		next.State.Services[i] = shareSlices(next.buildService(i), &v.State.Services[i])
	}
	return &next
}

// WithPaths returns the view with other paths to some addresses, by their numbers, as of now.
func (v *View) WithPaths(changed map[int]*paths.Entry, now time.Time) *View {
	next := *v
	if len(changed) == 0 {
		return &next
	}
	next.Known, next.State.Services, next.Selected = slices.Clone(v.Known), slices.Clone(v.State.Services),
		slices.Clone(v.Selected)
	next.Starts, next.Now = slices.Clone(v.Starts), now
	for n, entry := range changed {
		next.Known[n] = entry
	}
	copied := map[int]bool{}
	for n, entry := range changed {
		for _, at := range v.Uses[n] {
			s := v.Service(at)
			switch {
			case copied[at.I]:
			case !v.isPlain(at.I): // indexes may differ, and a change of one backend affects others
				next.State.Services[at.I] = shareSlices(next.buildService(at.I), &v.State.Services[at.I])
				copied[at.I] = true
			default:
				next.State.Services[at.I].Paths = slices.Clone(v.State.Services[at.I].Paths)
				copied[at.I] = true
			}
			if v.isPlain(at.I) {
				next.State.Services[at.I].Paths[at.J] = pathOf(s, entry)
			}
		}
	}
	return &next
}

// ChangedPaths returns the entries whose paths differ from the view's, by number. all: an address without an entry is
// no longer known. links are the present states of the view's interfaces.
func (v *View) ChangedPaths(links []iface.State, entries map[netip.Addr]paths.Entry, all bool) map[int]*paths.Entry {
	changed := map[int]*paths.Entry{}
	add := func(n int, entry paths.Entry) {
		entry = EntryWithin(links, entry)
		if !samePath(&entry, v.Known[n]) {
			changed[n] = NewEntry(entry)
		}
	}
	if all {
		for n, addr := range v.Backends {
			add(n, entries[addr])
		}
		return changed
	}
	for addr, entry := range entries {
		if n, ok := v.Number[addr]; ok {
			add(n, entry)
		}
	}
	return changed
}

// samePath reports whether two entries make the same path for the data plane, in every mode.
func samePath(a, b *paths.Entry) bool {
	return a == b || a.Index == b.Index && bytes.Equal(a.MAC, b.MAC) && bytes.Equal(a.Source, b.Source) &&
		a.MTU == b.MTU && a.Local == b.Local && a.ARPSource == b.ARPSource && a.Fault == b.Fault &&
		a.OnLink() == b.OnLink()
}

// SameEntry reports whether two entries are equal in everything that the status shows.
func SameEntry(a, b *paths.Entry) bool {
	return samePath(a, b) && a.Interface == b.Interface && a.Gateway == b.Gateway && a.Reason == b.Reason &&
		a.Address == b.Address
}

// NewEntry returns a pointer to a copy of an entry: only entries that have changed are allocated.
func NewEntry(entry paths.Entry) *paths.Entry { return &entry }

// OverlayOf returns the overlay of backend b of s.
func (v *View) OverlayOf(s lb.Service, b lb.Backend) Overlay {
	if len(v.Overlays) == 0 { // the usual case, which needs no hash of the name
		return Overlay{}
	}
	return v.Overlays[NameOf(s, b)]
}

// Hairpins are the clients that a view's services serve by hairpins, and why others are not served.
type Hairpins struct {
	lb.Hairpin
	// links and ports are its inputs, besides the view.
	links []iface.State
	ports string
	// Left is the number of networks of near clients beyond the limit of an interface.
	Left int
	// Trouble is why all near clients are refused; "" if they are served.
	Trouble string
}

// talliesFor returns the tallies that remain with other overlays: a backend that is taken out of its service starts a
// new count when it is back.
func (v *View) talliesFor(overlays map[BackendName]Overlay) map[BackendName]Tally {
	if len(v.Tallies) == 0 {
		return nil
	}
	all := maps.Clone(v.Tallies)
	maps.DeleteFunc(all, func(name BackendName, _ Tally) bool { return overlays[name].IsOut() })
	return all
}

// SameBackends reports whether the services of a layout have the same backends as the view's.
func (v *View) SameBackends(l *Layout) bool {
	return slices.EqualFunc(v.Config.Services, l.Config.Services, func(a, b lb.Service) bool {
		return lb.SameBackends(a.Backends, b.Backends)
	})
}
