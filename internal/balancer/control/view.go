// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"cmp"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/outliers"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// layout is a configuration, and where things are in it. It is made once for each,
// so that a change of one backend costs no walk over all of them.
type layout struct {
	cfg *config.Config
	// addresses are what the first interface has: the VIPs and the addresses of
	// full NAT, each once.
	addresses []netip.Addr
	// backends are the backends' addresses, each once, in the configuration's
	// order, and number is the way back.
	backends []netip.Addr
	number   map[netip.Addr]int
	// at[i][j] is the number of backend j of service i, and uses[n] are the
	// backends of number n.
	at   [][]int
	uses [][]use
	// services are found by their names or keys.
	named map[string]int
	keyed map[lb.ServiceKey]int
	// pooled are the endpoints that full NAT sends to, in the configuration's order, and
	// pooledAt says where each is.
	pooled   []pooled
	pooledAt map[endpoint]int
	// plain[i]: the backends of service i are the configuration's, unless operations change
	// them.
	plain []bool
	// ejecting are the services that eject backends.
	ejecting []int
	// yielding are the VIPs that are withdrawn while none of their services, which these are,
	// has a backend that serves; nil where there is none.
	yielding map[netip.Addr][]int
	// announced are the services for which each VIP is announced to routers; nil where none is.
	announced map[netip.Addr][]int
	// cgroup is the directory of the control group whose sockets are served, as the check has found it;
	// empty: none are.
	cgroup string
	// proxied are the services of mode proxy, which the data plane has nothing to do with, and watched the
	// addresses of the others' backends, each once.
	proxied []int
	watched []netip.Addr
	// hairpinned are the numbers of backends of services that serve near clients by hairpins.
	hairpinned []int
}

// use is backend j of service i.
type use struct{ i, j int }

func newLayout(cfg *config.Config) *layout {
	l := &layout{cfg: cfg, addresses: addresses(cfg), backends: backendAddresses(cfg),
		at: make([][]int, len(cfg.Services)), named: make(map[string]int, len(cfg.Services)),
		keyed: make(map[lb.ServiceKey]int, len(cfg.Services))}
	l.number, l.uses = make(map[netip.Addr]int, len(l.backends)), make([][]use, len(l.backends))
	for n, addr := range l.backends {
		l.number[addr] = n
	}
	for i, s := range cfg.Services {
		l.named[s.Name], l.keyed[s.Key()] = i, i
		l.at[i] = make([]int, len(s.Backends))
		for j, b := range s.Backends {
			n := l.number[b.Address]
			l.at[i][j], l.uses[n] = n, append(l.uses[n], use{i, j})
		}
	}
	l.findProxied()
	l.findPooled()
	l.plain = usually(cfg.Services)
	l.ejecting = ejecting(cfg.Services)
	l.findYielding()
	l.findAnnounced()
	l.findHairpins()
	return l
}

// found is a backend of a configuration.
type found struct {
	use
	service lb.Service
	backend lb.Backend
}

// String returns "web/web01", as operations name it.
func (f *found) String() string { return f.service.Name + "/" + f.backend.Name }

// find returns the backend that has a key; nil if none has.
func (l *layout) find(key lb.BackendKey) *found {
	i, ok := l.keyed[key.Service]
	n, known := l.number[key.Address]
	if !ok || !known {
		return nil
	}
	uses := l.uses[n] // in the order of the services
	first, _ := slices.BinarySearchFunc(uses, i, func(at use, i int) int { return cmp.Compare(at.i, i) })
	for _, at := range uses[first:] {
		if at.i != i {
			break
		}
		if l.backend(at).Port == key.Port {
			return &found{at, l.service(at), l.backend(at)}
		}
	}
	return nil
}

func (l *layout) service(at use) lb.Service { return l.cfg.Services[at.i] }
func (l *layout) backend(at use) lb.Backend { return l.cfg.Services[at.i].Backends[at.j] }

// view is what the data plane was given last, and what that was made of. It is
// never changed: a change makes another, which shares what stays, and Status reads
// the one that it found without holding a caller up.
type view struct {
	*layout
	overlays map[backendName]overlay
	// links are the configuration's interfaces, as they were when it was checked.
	links []iface.State
	// passive: another balancer holds the VIPs.
	passive bool
	// joining says why the VIPs are left to other balancers yet; empty if they are not.
	joining string
	// laid counts the overlays of each service, by its name.
	laid map[string]int
	// tallies are of those whose endpoint was another's before, or is another than before.
	tallies map[backendName]tally
	// known[n] is what is known of the path to the backend address of number n.
	known []*paths.Entry
	// verdicts[i][j] is that on backend j of service i; nil for a service that asks nothing.
	verdicts [][]verdict
	// ejections are those in force; the map is never changed.
	ejections map[lb.BackendKey]outliers.Ejection
	// selected[i] says which backends of service i take new flows; zero where it is plain.
	selected []selection
	// starts[i][j] is how far backend j of service i has come; nil for a service without slow
	// start. now is when the view was made, by which that goes.
	starts [][]start
	now    time.Time
	// hairpin is of which state.Hairpin is a part.
	hairpin hairpins
	// state.Services[i] is service i, those of mode proxy included: see packets. Slices of backends and paths that a
	// change does not touch are those of the view before: the data plane compares by them.
	state lb.State
}

// newView puts a configuration, operations, paths, verdicts and ejections together, as of now. What is as in the former
// view, which may be nil, is taken from there.
func newView(l *layout, overlays map[backendName]overlay, known []*paths.Entry, verdicts [][]verdict,
	ejections map[lb.BackendKey]outliers.Ejection,
	former *view, now time.Time) *view {
	v := &view{layout: l, overlays: overlays, laid: countOverlays(overlays), known: known,
		verdicts: verdicts, ejections: ejections, selected: make([]selection, len(l.cfg.Services)), now: now,
		state: lb.State{Services: make([]lb.RoutedService, len(l.cfg.Services)), Hook: l.cfg.Hook,
			Interfaces: l.cfg.Interfaces, Local: l.cgroup}}
	v.findStarts(former)
	for i, s := range l.cfg.Services {
		if old := former.same(v, i); old != nil {
			s.Backends = old.Backends
			v.state.Services[i] = lb.RoutedService{Service: s, Paths: old.Paths, Observed: old.Observed}
			continue
		}
		v.state.Services[i] = sharing(v.join(i), former.byKey(s.Key()))
	}
	v.state.Pool = l.cfg.Pool()
	return v
}

// sharesState says whether the data plane has nothing to do to get from a view to this one.
func (v *view) sharesState(before *view) bool {
	a, b := v.state.Services, before.state.Services
	same := len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
	// What changes in services of mode proxy is nothing to a data plane that has no others.
	proxied := len(v.proxied) == len(a) && len(before.proxied) == len(b)
	return v.layout == before.layout && v.state.Hairpin.Equal(before.state.Hairpin) && (same || proxied)
}

// countOverlays counts those of each service's backends, without those of backends that are absent.
func countOverlays(overlays map[backendName]overlay) map[string]int {
	laid := map[string]int{}
	for name, o := range overlays {
		if o.absent == nil {
			laid[name.service]++
		}
	}
	return laid
}

// byKey returns the service that the data plane has under a key, nil if none.
func (v *view) byKey(key lb.ServiceKey) *lb.RoutedService {
	if v == nil {
		return nil
	}
	if i, ok := v.keyed[key]; ok && i < len(v.state.Services) {
		return &v.state.Services[i]
	}
	return nil
}

// entry returns what was known of an address; nil if it was no backend's.
func (v *view) entry(addr netip.Addr) *paths.Entry {
	if v == nil {
		return nil
	}
	if n, ok := v.number[addr]; ok && n < len(v.known) {
		return v.known[n]
	}
	return nil
}

// holds says whether the view's configuration has a service, just so.
func (v *view) holds(s lb.Service) bool {
	if v == nil {
		return false
	}
	i, ok := v.keyed[s.Key()]
	if !ok {
		return false
	}
	old := v.cfg.Services[i]
	if !slices.Equal(old.Backends, s.Backends) {
		return false
	}
	old.Backends, s.Backends = nil, nil
	return reflect.DeepEqual(old, s)
}

// same returns the former service whose backends and paths are those of service i
// of the next view; nil if there is none.
func (v *view) same(next *view, i int) *lb.RoutedService {
	s := next.cfg.Services[i]
	old := v.byKey(s.Key())
	if old == nil || old.Mode != s.Mode {
		return nil
	}
	former := v.keyed[s.Key()]
	if !v.isPlain(former) || !next.isPlain(i) {
		return nil
	}
	if !slices.Equal(v.cfg.Services[former].Backends, s.Backends) {
		return nil
	}
	for j := range s.Backends {
		if !samePath(v.known[v.at[former][j]], next.known[next.at[i][j]]) {
			return nil
		}
	}
	return old
}

// join puts service i together, and notes which backends of it take new flows.
func (v *view) join(i int) (made lb.RoutedService) {
	if !v.isPlain(i) {
		made, v.selected[i] = v.judge(i)
		return made
	}
	s := v.cfg.Services[i]
	v.selected[i] = selection{}
	made = lb.RoutedService{Service: s, Paths: make([]lb.Path, 0, len(s.Backends)),
		Observed: lb.ObservationsOf(len(s.Backends), func(j int) lb.Observed { return lb.ObservedOf(s.Backends[j]) })}
	for j := range s.Backends {
		made.Paths = append(made.Paths, pathOf(s, v.known[v.at[i][j]]))
	}
	return made
}

// pathOf returns the path of a service's packets to an entry; the zero path if they
// cannot take it.
func pathOf(s lb.Service, e *paths.Entry) lb.Path {
	if reason(s, e) != "" || s.Mode.Proxied() {
		return lb.Path{}
	}
	return e.Path()
}

// sharing returns a service with the slices of a former one, which may be nil,
// where they hold the same.
func sharing(made lb.RoutedService, former *lb.RoutedService) lb.RoutedService {
	if former == nil {
		return made
	}
	if slices.Equal(made.Backends, former.Backends) {
		made.Backends = former.Backends
	}
	if made.Observed.Equal(former.Observed) {
		made.Observed = former.Observed
	}
	if slices.EqualFunc(made.Paths, former.Paths, equalPaths) {
		made.Paths = former.Paths
	}
	return made
}

func equalPaths(a, b lb.Path) bool {
	return a.Interface == b.Interface && bytes.Equal(a.MAC, b.MAC) && bytes.Equal(a.Source, b.Source) &&
		a.MTU == b.MTU && a.Local == b.Local
}

// withOverlays returns the view with other operations, as of now, of which those on services with these numbers are
// new.
func (v *view) withOverlays(overlays map[backendName]overlay, services []int, now time.Time) *view {
	next := *v
	next.overlays, next.laid, next.tallies = overlays, countOverlays(overlays), v.talliesWith(overlays)
	next.state.Services, next.selected = slices.Clone(v.state.Services), slices.Clone(v.selected)
	next.starts, next.now = slices.Clone(v.starts), now
	for _, i := range services {
		next.state.Services[i] = sharing(next.join(i), &v.state.Services[i])
	}
	return &next
}

// withPaths returns the view with other paths to the addresses of these numbers, as of now.
func (v *view) withPaths(news map[int]*paths.Entry, now time.Time) *view {
	next := *v
	if len(news) == 0 {
		return &next
	}
	next.known, next.state.Services, next.selected = slices.Clone(v.known), slices.Clone(v.state.Services),
		slices.Clone(v.selected)
	next.starts, next.now = slices.Clone(v.starts), now
	for n, entry := range news {
		next.known[n] = entry
	}
	copied := map[int]bool{}
	for n, entry := range news {
		for _, at := range v.uses[n] {
			s := v.service(at)
			switch {
			case copied[at.i]:
			case !v.isPlain(at.i): // indices may be others, and what one does changes others
				next.state.Services[at.i] = sharing(next.join(at.i), &v.state.Services[at.i])
				copied[at.i] = true
			default:
				next.state.Services[at.i].Paths = slices.Clone(v.state.Services[at.i].Paths)
				copied[at.i] = true
			}
			if v.isPlain(at.i) {
				next.state.Services[at.i].Paths[at.j] = pathOf(s, entry)
			}
		}
	}
	return &next
}

// news returns the entries that make other paths than the view has, by number. All
// says that an address of which there is no entry is not known any more. links are the view's interfaces as they are
// now.
func (v *view) news(links []iface.State, entries map[netip.Addr]paths.Entry, all bool) map[int]*paths.Entry {
	news := map[int]*paths.Entry{}
	take := func(n int, entry paths.Entry) {
		entry = entryWithin(links, entry)
		if !samePath(&entry, v.known[n]) {
			news[n] = kept(entry)
		}
	}
	if all {
		for n, addr := range v.backends {
			take(n, entries[addr])
		}
		return news
	}
	for addr, entry := range entries {
		if n, ok := v.number[addr]; ok {
			take(n, entry)
		}
	}
	return news
}

// samePath says whether two entries make the same path for the data plane, in
// every mode.
func samePath(a, b *paths.Entry) bool {
	return a == b || a.Index == b.Index && bytes.Equal(a.MAC, b.MAC) && bytes.Equal(a.Source, b.Source) &&
		a.MTU == b.MTU && a.Local == b.Local && a.Asks == b.Asks && a.Fault == b.Fault && a.OnLink() == b.OnLink()
}

// sameEntry says whether two entries say the same to a person, too, who does not
// read of probes and answers.
func sameEntry(a, b *paths.Entry) bool {
	return samePath(a, b) && a.Interface == b.Interface && a.Gateway == b.Gateway && a.Reason == b.Reason &&
		a.Address == b.Address
}

// kept returns an entry that stays; only those that are new take memory.
func kept(entry paths.Entry) *paths.Entry { return &entry }
