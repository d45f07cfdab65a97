// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Verdict is the part of a lb.Verdict that decides about a backend, as of its last change.
type Verdict struct {
	// State is the state by the checks, with a reason of it, since Since.
	State  lb.Health
	reason string
	Since  time.Time
	// Share is the share of its weight that the backend asks for, in per cent; Drain: it asks for no new flow.
	Share uint16
	Drain bool
	// unconfirmed: see lb.Verdict.
	unconfirmed bool
}

// VerdictOf returns the part of a verdict that decides.
func VerdictOf(v lb.Verdict) Verdict {
	return Verdict{v.State, v.Reason, v.Since, v.Weight, v.Drain, v.Unconfirmed}
}

// Checking returns the checks of a configuration's backends.
func (l *Layout) Checking() []lb.CheckTarget {
	n := 0
	for i := range l.Config.Services {
		if s := &l.Config.Services[i]; s.Checks.On() {
			n += len(s.Backends)
		}
	}
	all := make([]lb.CheckTarget, 0, n)
	for i := range l.Config.Services {
		all = appendChecking(all, &l.Config.Services[i])
	}
	return all
}

// appendChecking adds the checks of a service's backends.
func appendChecking(all []lb.CheckTarget, s *lb.Service) []lb.CheckTarget {
	if !s.Checks.On() {
		return all
	}
	list := s.ResolvedChecks()
	for _, b := range s.Backends {
		all = append(all, lb.CheckTarget{Backend: s.BackendKey(b), Mode: s.Mode, Checks: list, Any: s.Checks.Any})
	}
	return all
}

// CheckingSince returns the differences of Checking from that of another layout: the checks of services that may be
// others, and the backends that these and services that are gone had checked, of which put may have some again. It
// walks over the backends of such services only.
func (l *Layout) CheckingSince(before *Layout) (put []lb.CheckTarget, removed []lb.BackendKey) {
	left := func(was *lb.Service) {
		if !was.Checks.On() {
			return
		}
		for _, b := range was.Backends {
			removed = append(removed, was.BackendKey(b))
		}
	}
	stay := 0
	for i := range l.Config.Services {
		s := &l.Config.Services[i]
		if at, there := before.at(i, s); there {
			stay++
			was := &before.Config.Services[at]
			if lb.Identical(was, s) {
				continue
			}
			left(was)
		}
		put = appendChecking(put, s)
	}
	if stay == len(before.Config.Services) {
		return put, removed
	}
	for i := range before.Config.Services {
		if was := &before.Config.Services[i]; !l.has(was.Key()) {
			left(was)
		}
	}
	return put, removed
}

// at returns where the layout has a service that has a place in another one: mostly at the same.
func (l *Layout) at(i int, s *lb.Service) (at int, there bool) {
	key := s.Key()
	if i < len(l.Config.Services) && l.Config.Services[i].Key() == key {
		return i, true
	}
	at, there = l.Keyed[key]
	return at, there
}

func (l *Layout) has(key lb.ServiceKey) bool { _, there := l.Keyed[key]; return there }

// WithVerdicts returns the view with other verdicts on some backends, as of now, and whose those are.
func (v *View) WithVerdicts(news map[lb.BackendKey]lb.Verdict, now time.Time) (*View, []Use) {
	next := *v
	var changed []Use
	services := map[int]bool{}
	for key, news := range news {
		at := v.Find(key)
		if at == nil || v.Verdicts[at.I] == nil {
			continue // of a configuration before
		}
		is := VerdictOf(news)
		if was := v.Verdicts[at.I][at.J]; was == is {
			continue
		}
		if len(changed) == 0 {
			next.Verdicts, next.Selected = slices.Clone(v.Verdicts), slices.Clone(v.Selected)
			next.State.Services = slices.Clone(v.State.Services)
			next.Starts, next.Now = slices.Clone(v.Starts), now
		}
		if !services[at.I] {
			next.Verdicts[at.I] = slices.Clone(v.Verdicts[at.I])
			services[at.I] = true
		}
		next.Verdicts[at.I][at.J] = is
		changed = append(changed, at.Use)
	}
	for i := range services {
		next.State.Services[i] = sharing(next.join(i), &v.State.Services[i])
	}
	slices.SortFunc(changed, func(a, b Use) int { return cmp.Or(cmp.Compare(a.I, b.I), cmp.Compare(a.J, b.J)) })
	return &next, changed
}

// Verdict returns the verdict on a backend; the zero one where it is not checked.
func (v *View) Verdict(at Use) Verdict {
	if v.Verdicts[at.I] == nil {
		return Verdict{}
	}
	return v.Verdicts[at.I][at.J]
}

// Serving says which backends of a service take new flows.
type Serving uint8

const (
	// Primaries: those that are no backups, and healthy.
	Primaries Serving = iota
	// backups: the backups that are healthy, for no other backend serves.
	backups
	// Panicked: healthy or not, for too few are healthy.
	Panicked
)

// Selection is the set of a service's backends that take new flows, with the numbers that it was selected by.
type Selection struct {
	Serving
	// onBackups: the backups are among them.
	onBackups bool
	// Healthy is how many of Wanted could serve. Wanted is how many backends operations and configuration let take new
	// flows, backups among them only where they alone are let.
	Healthy, Wanted int
}

// member is a backend of a service after operations, with its observed state.
type member struct {
	lb.Backend
	lb.Observed
	Verdict
	path lb.Path
	// reached: packets can be sent to it.
	reached bool
	// ejection is the reason, by its answers to clients, for which it is to take no new flow; "": it is not ejected.
	ejection string
	// out: a deadline has taken it out of its service.
	out bool
	// slow is the share of its weight that slow start leaves it, in per cent.
	slow uint16
}

// wanted says whether the backend could take new flows, if it is healthy.
func (m *member) wanted() bool { return m.Backend.TakesFlows() && m.reached && !m.Drain }

// serves says whether the backend could take new flows, and would be right to.
func (m *member) serves() bool {
	return m.wanted() && m.State != lb.Failing && m.ejection == ""
}

// fails says whether the backend would take new flows but for its checks, or its ejection.
func (m *member) fails() bool { return m.wanted() && !m.serves() }

// selectBackends decides which of a service's backends take new flows.
func selectBackends(s lb.Service, members []member) Selection {
	var wanted, healthy, failing [2]int // those that are no backups, and backups
	for i := range members {
		m, kind := &members[i], 0
		if m.Backup {
			kind = 1
		}
		if m.Backend.TakesFlows() && !m.Drain {
			wanted[kind]++
		}
		switch {
		case m.serves():
			healthy[kind]++
		case m.fails():
			failing[kind]++
		}
	}
	kind, p := 0, Selection{Serving: Primaries}
	if healthy[0] == 0 && healthy[1] > 0 || wanted[0] == 0 && wanted[1] > 0 {
		kind, p.Serving, p.onBackups = 1, backups, true
	}
	p.Healthy, p.Wanted = healthy[kind], wanted[kind]
	if failing[kind] > 0 && p.Healthy*100 < int(s.Checks.Panic)*p.Wanted {
		p.Serving = Panicked
	}
	return p
}

// admit writes into a member whether it takes new flows.
func (p Selection) admit(m *member) {
	m.Standby = m.Backup && !p.onBackups
	m.Draining = m.Draining || m.Drain
	if p.Serving == Panicked && m.Backup == p.onBackups {
		return
	}
	switch {
	case m.State == lb.Failing:
		m.Unhealthy = ReasonOf(m.Verdict)
	case m.ejection != "":
		m.Unhealthy, m.Ejected = m.ejection, true
	}
}

// shareScale is by how much weights are multiplied where backends get shares of them, by slow
// start or as agents ask for it: a weight of 1 has none.
const shareScale = 100

// scaled returns the weight of a backend of which a share is asked for, beside others of at
// most this weight.
func scaled(weight, share, most uint16) uint16 {
	if weight == 0 || share == 0 {
		return 0
	}
	scale := min(shareScale, 65535/max(uint32(most), 1))
	return uint16(max(1, uint32(weight)*scale*min(uint32(share), 100)/100))
}

// asksShares says whether backends themselves report the share of their weight that they take.
func asksShares(s lb.Service) bool {
	return slices.ContainsFunc(s.Checks.List, func(c lb.Check) bool { return c.Type == lb.CheckAgent })
}

// evaluate puts a service that is not plain together: its backends as operations and checks have
// them, and the paths to them.
func (v *View) evaluate(i int) (lb.RoutedService, Selection) {
	s := v.Config.Services[i]
	members, most := v.members(i)
	p := selectBackends(s, members)
	made := lb.RoutedService{Service: s, Paths: make([]lb.Path, len(members))}
	made.Backends = make([]lb.Backend, len(members))
	for k := range members {
		m := &members[k]
		p.admit(m)
		if asksShares(s) || s.SlowStart > 0 {
			m.Weight = scaled(m.Weight, m.share()*m.slow/100, most)
		}
		made.Backends[k], made.Paths[k] = m.Backend, m.path
	}
	made.Observed = lb.ObservationsOf(len(members), func(k int) lb.Observed { return members[k].Observed })
	return made, p
}

// member returns a backend with its observed state.
func (v *View) member(at Use) member {
	s, b := v.Service(at), v.Backend(at)
	key := s.BackendKey(b)
	o := v.OverlayOf(s, b)
	m := member{Backend: o.Over(b), Observed: lb.ObservedOf(b), path: pathOf(s, v.Known[v.At[at.I][at.J]]),
		Verdict: v.Verdict(at), out: o.Out(), slow: 100,
		ejection: v.Ejections[key].Reason}
	m.reached = reached(s, m.path)
	if o.Forced != nil {
		m.Verdict, m.ejection = Verdict{}, ""
	}
	return m
}

// members are the backends of service i that are not taken out, and the largest weight among
// them. It notes which of them begin to serve.
func (v *View) members(i int) (members []member, most uint16) {
	s := v.Config.Services[i]
	starts, all := slices.Clone(v.Starts[i]), make([]member, len(s.Backends))
	for j := range all {
		all[j] = v.member(Use{i, j})
	}
	keepOne(all)
	for j := range all {
		m := &all[j]
		if starts != nil {
			starts[j] = starts[j].begin(m, m.out, s.SlowStart, v.Now)
			m.slow = starts[j].Share
		}
		if !m.out {
			most = max(most, m.Weight)
			members = append(members, *m)
		}
	}
	v.Starts[i] = starts
	return members, most
}

// keepOne lets those that are ejected serve where no other backend does. They are let back with the
// next look at the counters, and clients need not wait for that.
func keepOne(all []member) {
	if slices.ContainsFunc(all, func(m member) bool { return !m.out && m.serves() }) {
		return
	}
	for j := range all {
		all[j].ejection = ""
	}
}

// share returns the share of its weight that the backend asks for, in per cent.
func (m *member) share() uint16 {
	if m.State == "" {
		return 100
	}
	return m.Verdict.Share
}

// isPlain says whether the backends of a service are those of the configuration: without
// checks, backups, slow start or operations.
func (v *View) isPlain(i int) bool { return v.plain[i] && v.Laid[v.Config.Services[i].Name] == 0 }

// Touched are the services that have backends with these numbers and are not plain.
func (v *View) Touched(numbers []int) map[int]bool {
	services := map[int]bool{}
	for _, n := range numbers {
		for _, at := range v.Uses[n] {
			if !v.isPlain(at.I) {
				services[at.I] = true
			}
		}
	}
	return services
}

// Failing are the backends that fail their checks.
func (v *View) Failing() (all []Use) {
	for i := range v.Verdicts {
		for j := range v.Verdicts[i] {
			if v.Verdicts[i][j].State == lb.Failing {
				all = append(all, Use{i, j})
			}
		}
	}
	return all
}

// ReasonOf returns the reason for which a backend fails.
func ReasonOf(v Verdict) string {
	if v.reason == "" {
		return "fails its health checks"
	}
	return v.reason
}
