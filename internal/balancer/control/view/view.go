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

// View is the state that the data plane was given last, with the inputs that it was made of. It is never changed: a
// change makes another, which shares the unchanged parts, and Status reads the one that it found without holding a
// caller up.
type View struct {
	*Layout
	Overlays map[BackendName]Overlay
	// Links are the configuration's interfaces, as they were when it was checked.
	Links []iface.State
	// Passive: another balancer holds the VIPs.
	Passive bool
	// Joining says why the VIPs are left to other balancers yet; empty if they are not.
	Joining string
	// Laid counts the overlays of each service, by its name.
	Laid map[string]int
	// Tallies are the tallies of names whose endpoint was another's before, or is another than before.
	Tallies map[BackendName]Tally
	// Known[n] is the known path to the backend address of number n.
	Known []*paths.Entry
	// Verdicts[i][j] is that on backend j of service i; nil for a service that asks nothing.
	Verdicts [][]Verdict
	// Ejections are the ejections in force; the map is never changed.
	Ejections map[lb.BackendKey]outliers.Ejection
	// Selected[i] says which backends of service i take new flows; zero where it is plain.
	Selected []Selection
	// Starts[i][j] is how far backend j of service i has come; nil for a service without slow
	// start. Now is when the view was made, by which that goes.
	Starts [][]Start
	Now    time.Time
	// Hairpin is the state of hairpins, of which State.Hairpin is a part.
	Hairpin Hairpins
	// State.Services[i] is service i, those of mode proxy included: see Packets. Slices of backends and paths that a
	// change does not touch are those of the view before: the data plane compares by them.
	State lb.State
}

// New puts a configuration, operations, paths, verdicts and ejections together, as of now. Unchanged parts are shared
// with the previous view, which may be nil.
func New(l *Layout, overlays map[BackendName]Overlay, known []*paths.Entry, verdicts [][]Verdict,
	ejections map[lb.BackendKey]outliers.Ejection,
	previous *View, now time.Time) *View {
	v := &View{Layout: l, Overlays: overlays, Laid: countOverlays(overlays), Known: known,
		Verdicts: verdicts, Ejections: ejections, Selected: make([]Selection, len(l.Config.Services)), Now: now,
		State: lb.State{Services: make([]lb.RoutedService, len(l.Config.Services)), Hook: l.Config.Hook,
			Interfaces: l.Config.Interfaces, Local: l.Cgroup}}
	v.findStarts(previous)
	for i, s := range l.Config.Services {
		if old := previous.same(v, i); old != nil {
			s.Backends = old.Backends
			v.State.Services[i] = lb.RoutedService{Service: s, Paths: old.Paths, Observed: old.Observed}
			continue
		}
		if at, judged := previous.evaluatedAlike(v, i); judged {
			v.State.Services[i], v.Selected[i] = previous.State.Services[at], previous.Selected[at]
			continue
		}
		v.State.Services[i] = sharing(v.join(i), previous.byKey(s.Key()))
	}
	v.State.Pool = l.Config.Pool()
	return v
}

// SharesState says whether the data plane has nothing to do to get from a view to this one.
func (v *View) SharesState(before *View) bool {
	a, b := v.State.Services, before.State.Services
	same := len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
	// A change of services of mode proxy does not concern a data plane that has no others.
	proxied := len(v.Proxied) == len(a) && len(before.Proxied) == len(b)
	return v.Layout == before.Layout && v.State.Hairpin.Equal(before.State.Hairpin) && (same || proxied)
}

// countOverlays counts those of each service's backends, without those of backends that are absent.
func countOverlays(overlays map[BackendName]Overlay) map[string]int {
	laid := map[string]int{}
	for name, o := range overlays {
		if o.Absent == nil {
			laid[name.Service]++
		}
	}
	return laid
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

// Entry returns the known path to an address; nil if it is no backend's.
func (v *View) Entry(addr netip.Addr) *paths.Entry {
	if v == nil {
		return nil
	}
	if n, ok := v.Number[addr]; ok && n < len(v.Known) {
		return v.Known[n]
	}
	return nil
}

// Holds says whether the view's configuration has a service, just so.
func (v *View) Holds(s lb.Service) bool {
	if v == nil {
		return false
	}
	i, ok := v.Keyed[s.Key()]
	if !ok {
		return false
	}
	old := v.Config.Services[i]
	if lb.Identical(&old, &s) {
		return true
	}
	if !lb.SameBackends(old.Backends, s.Backends) {
		return false
	}
	old.Backends, s.Backends = nil, nil
	return reflect.DeepEqual(old, s)
}

// same returns the former service whose backends and paths are those of service i
// of the next view; nil if there is none.
func (v *View) same(next *View, i int) *lb.RoutedService {
	s := next.Config.Services[i]
	old := v.byKey(s.Key())
	if old == nil || old.Mode != s.Mode {
		return nil
	}
	previous := v.Keyed[s.Key()]
	if !v.isPlain(previous) || !next.isPlain(i) {
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
	return old
}

// evaluatedAlike returns the index of the service that evaluate would return for service i of the next view, if this
// view has it: with the same configuration, verdicts, paths and ejections, without operations and without slow start.
// To judge 100,000 backends anew for a change of one would take half a second of a core.
func (v *View) evaluatedAlike(next *View, i int) (at int, ok bool) {
	s := next.Config.Services[i]
	if s.SlowStart > 0 || next.Laid[s.Name] > 0 || !v.Holds(s) || v.Laid[s.Name] > 0 {
		return 0, false
	}
	at = v.Keyed[s.Key()]
	if at >= len(v.State.Services) || !slices.Equal(v.Verdicts[at], next.Verdicts[i]) {
		return 0, false
	}
	for j, b := range s.Backends {
		if !samePath(v.Known[v.At[at][j]], next.Known[next.At[i][j]]) {
			return 0, false
		}
		if len(v.Ejections)+len(next.Ejections) == 0 {
			continue
		}
		if key := s.BackendKey(b); v.Ejections[key].Reason != next.Ejections[key].Reason {
			return 0, false
		}
	}
	return at, true
}

// join puts service i together, and notes which backends of it take new flows.
func (v *View) join(i int) (made lb.RoutedService) {
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

// pathOf returns the path of a service's packets to an entry; the zero path if they
// cannot take it.
func pathOf(s lb.Service, e *paths.Entry) lb.Path {
	if WhyUnreachable(s, e) != "" || s.Mode.Proxied() {
		return lb.Path{}
	}
	return e.Path()
}

// sharing returns a service with the slices of a former one, which may be nil,
// where they hold the same.
func sharing(made lb.RoutedService, previous *lb.RoutedService) lb.RoutedService {
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

// WithOverlays returns the view with other operations, as of now, of which those on services with these numbers are
// new.
func (v *View) WithOverlays(overlays map[BackendName]Overlay, services []int, now time.Time) *View {
	next := *v
	next.Overlays, next.Laid, next.Tallies = overlays, countOverlays(overlays), v.talliesWith(overlays)
	next.State.Services, next.Selected = slices.Clone(v.State.Services), slices.Clone(v.Selected)
	next.Starts, next.Now = slices.Clone(v.Starts), now
	for _, i := range services {
		next.State.Services[i] = sharing(next.join(i), &v.State.Services[i])
	}
	return &next
}

// WithPaths returns the view with other paths to the addresses of these numbers, as of now.
func (v *View) WithPaths(news map[int]*paths.Entry, now time.Time) *View {
	next := *v
	if len(news) == 0 {
		return &next
	}
	next.Known, next.State.Services, next.Selected = slices.Clone(v.Known), slices.Clone(v.State.Services),
		slices.Clone(v.Selected)
	next.Starts, next.Now = slices.Clone(v.Starts), now
	for n, entry := range news {
		next.Known[n] = entry
	}
	copied := map[int]bool{}
	for n, entry := range news {
		for _, at := range v.Uses[n] {
			s := v.Service(at)
			switch {
			case copied[at.I]:
			case !v.isPlain(at.I): // indices may differ, and a change of one backend changes others
				next.State.Services[at.I] = sharing(next.join(at.I), &v.State.Services[at.I])
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

// News returns the entries that make other paths than the view has, by number. All
// says that an address of which there is no entry is not known any more. links are the view's interfaces as they are
// now.
func (v *View) News(links []iface.State, entries map[netip.Addr]paths.Entry, all bool) map[int]*paths.Entry {
	news := map[int]*paths.Entry{}
	take := func(n int, entry paths.Entry) {
		entry = EntryWithin(links, entry)
		if !samePath(&entry, v.Known[n]) {
			news[n] = Kept(entry)
		}
	}
	if all {
		for n, addr := range v.Backends {
			take(n, entries[addr])
		}
		return news
	}
	for addr, entry := range entries {
		if n, ok := v.Number[addr]; ok {
			take(n, entry)
		}
	}
	return news
}

// samePath says whether two entries make the same path for the data plane, in
// every mode.
func samePath(a, b *paths.Entry) bool {
	return a == b || a.Index == b.Index && bytes.Equal(a.MAC, b.MAC) && bytes.Equal(a.Source, b.Source) &&
		a.MTU == b.MTU && a.Local == b.Local && a.ARPSource == b.ARPSource && a.Fault == b.Fault &&
		a.OnLink() == b.OnLink()
}

// SameEntry says whether two entries say the same to a person, too, who does not
// read of probes and answers.
func SameEntry(a, b *paths.Entry) bool {
	return samePath(a, b) && a.Interface == b.Interface && a.Gateway == b.Gateway && a.Reason == b.Reason &&
		a.Address == b.Address
}

// Kept returns an entry that stays; only those that are new take memory.
func Kept(entry paths.Entry) *paths.Entry { return &entry }

// OverlayOf returns the overlay of backend b of s.
func (v *View) OverlayOf(s lb.Service, b lb.Backend) Overlay {
	if len(v.Overlays) == 0 { // the usual case, which needs no hash of the name
		return Overlay{}
	}
	return v.Overlays[NameOf(s, b)]
}

// Hairpins is the clients that a view's services serve by hairpins, and the reason for which others are not served so.
type Hairpins struct {
	lb.Hairpin
	// links and ports are the inputs that it was made of, besides the view.
	links []iface.State
	ports string
	// Left is how many networks of near clients are more than an interface can have.
	Left int
	// Trouble says why all such clients are refused; "" where they are served.
	Trouble string
}

// talliesWith returns the tallies that hold with other operations: a backend that is taken out of its service is
// counted anew when it is back.
func (v *View) talliesWith(overlays map[BackendName]Overlay) map[BackendName]Tally {
	if len(v.Tallies) == 0 {
		return nil
	}
	all := maps.Clone(v.Tallies)
	maps.DeleteFunc(all, func(name BackendName, _ Tally) bool { return overlays[name].Out() })
	return all
}

// SameBackends says whether the services of a layout have the backends that the view's have.
func (v *View) SameBackends(l *Layout) bool {
	return slices.EqualFunc(v.Config.Services, l.Config.Services, func(a, b lb.Service) bool {
		return lb.SameBackends(a.Backends, b.Backends)
	})
}
