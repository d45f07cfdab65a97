// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Verdict is the part of a lb.Verdict that affects whether a backend serves, as of its last change.
type Verdict struct {
	// State is the state according to the checks, with its reason and its beginning.
	State  lb.Health
	reason string
	Since  time.Time
	// Share is the share of its weight that the backend's agent reports, in per cent; Drain: the agent reports that it
	// is draining.
	Share uint16
	Drain bool
	// Reported is the weight that the backend reports in place of its configured one.
	Reported lb.ReportedWeight
	// finishing and unconfirmed: see lb.Verdict.
	finishing, unconfirmed bool
}

// VerdictOf returns the part of a verdict that a view needs.
func VerdictOf(v lb.Verdict) Verdict {
	return Verdict{v.State, v.Reason, v.Since, v.Weight, v.Drain, v.Reported, v.Finishing, v.Unconfirmed}
}

// CheckTargets returns the targets of a configuration's health checks.
func (l *Layout) CheckTargets() []lb.CheckTarget {
	n := 0
	for i := range l.Config.Services {
		if s := &l.Config.Services[i]; s.Checks.On() {
			n += len(s.Backends)
		}
	}
	all := make([]lb.CheckTarget, 0, n)
	for i := range l.Config.Services {
		all = appendCheckTargets(all, &l.Config.Services[i])
	}
	return all
}

// appendCheckTargets appends the targets of a service's backends.
func appendCheckTargets(all []lb.CheckTarget, s *lb.Service) []lb.CheckTarget {
	if !s.Checks.On() {
		return all
	}
	list := s.ResolvedChecks()
	for _, b := range s.Backends {
		all = append(all, lb.CheckTarget{Backend: s.BackendKey(b), Mode: s.Mode, Checks: list, Any: s.Checks.Any})
	}
	return all
}

// CheckTargetChanges returns the differences between the CheckTargets of a previous layout and of this one: the targets
// of services that may have changed, and the previous backends of these and of removed services, some of which put may
// contain again. It walks over the backends of such services only.
func (l *Layout) CheckTargetChanges(before *Layout) (put []lb.CheckTarget, removed []lb.BackendKey) {
	remove := func(was *lb.Service) {
		if !was.Checks.On() {
			return
		}
		for _, b := range was.Backends {
			removed = append(removed, was.BackendKey(b))
		}
	}
	kept := 0
	for i := range l.Config.Services {
		s := &l.Config.Services[i]
		if at, there := before.at(i, s); there {
			kept++
			was := &before.Config.Services[at]
			if lb.Identical(was, s) {
				continue
			}
			remove(was)
		}
		put = appendCheckTargets(put, s)
	}
	if kept == len(before.Config.Services) {
		return put, removed
	}
	for i := range before.Config.Services {
		if was := &before.Config.Services[i]; !l.has(was.Key()) {
			remove(was)
		}
	}
	return put, removed
}

// at returns the index of a service in the layout. It tries i first, its index in another layout, which is mostly the
// same.
func (l *Layout) at(i int, s *lb.Service) (at int, there bool) {
	key := s.Key()
	if i < len(l.Config.Services) && l.Config.Services[i].Key() == key {
		return i, true
	}
	at, there = l.Keyed[key]
	return at, there
}

func (l *Layout) has(key lb.ServiceKey) bool { _, there := l.Keyed[key]; return there }

// WithVerdicts returns the view with other verdicts on some backends, as of now, and the backends whose verdicts have
// changed.
func (v *View) WithVerdicts(changes map[lb.BackendKey]lb.Verdict, now time.Time) (*View, []Use) {
	next := *v
	var changed []Use
	services := map[int]bool{}
	for key, changes := range changes {
		at := v.Find(key)
		if at == nil || v.Verdicts[at.I] == nil {
			continue // of a previous configuration
		}
		is := VerdictOf(changes)
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
		next.State.Services[i] = shareSlices(next.buildService(i), &v.State.Services[i])
	}
	slices.SortFunc(changed, func(a, b Use) int { return cmp.Or(cmp.Compare(a.I, b.I), cmp.Compare(a.J, b.J)) })
	return &next, changed
}

// Verdict returns the verdict on a backend; the zero Verdict if it is not checked.
func (v *View) Verdict(at Use) Verdict {
	if v.Verdicts[at.I] == nil {
		return Verdict{}
	}
	return v.Verdicts[at.I][at.J]
}

// Serving is the set of a service's backends that take new flows.
type Serving uint8

const (
	// Primaries: the healthy backends that are not backups.
	Primaries Serving = iota
	// backups: the healthy backups, because no other backend serves.
	backups
	// Panicked: healthy and failing ones, because too few are healthy.
	Panicked
)

// Selection is the set of a service's backends that take new flows, with the counts that led to it.
type Selection struct {
	Serving
	// onBackups: the backups are among them.
	onBackups bool
	// Wanted is the number of backends that configuration and operations let take new flows, and Healthy how many of
	// them could serve. Backups count only if no other backend is let.
	Healthy, Wanted int
}

// member is a backend of a service after operations, with its observed state.
type member struct {
	lb.Backend
	lb.Observed
	Verdict
	path lb.Path
	// reached: the backend has a path.
	reached bool
	// ejection is the reason for its ejection; "": it is not ejected.
	ejection string
	// out: it is disabled, or its drain deadline has passed.
	out bool
	// slow is its share of its weight by slow start, in per cent.
	slow uint16
}

// isEligible reports whether the backend could take new flows if it were healthy.
func (m *member) isEligible() bool { return m.Backend.TakesFlows() && m.reached && !m.Drain }

// serves reports whether the backend is eligible, healthy and not ejected.
func (m *member) serves() bool {
	return m.isEligible() && m.State != lb.Failing && m.ejection == ""
}

// fails reports whether only its checks, or its ejection, keep new flows from the backend.
func (m *member) fails() bool { return m.isEligible() && !m.serves() }

// selectBackends decides which of a service's backends take new flows.
func selectBackends(s lb.Service, members []member) Selection {
	var wanted, healthy, failing [2]int // index 0: primaries, 1: backups
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

// admit sets the observed state of a member, which decides whether it takes new flows.
func (p Selection) admit(m *member) {
	m.Standby = m.Backup && !p.onBackups
	m.Draining = m.Draining || m.Drain
	if p.Serving == Panicked && m.Backup == p.onBackups {
		return
	}
	switch {
	case m.State == lb.Failing && !(m.Draining && m.finishing): // such a one fails as is expected of it
		m.Unhealthy = ReasonOf(m.Verdict)
	case m.ejection != "":
		m.Unhealthy, m.Ejected = m.ejection, true
	}
}

// effectiveWeight returns a backend's weight: the one that it reports, or, without a report, the set one. Operations
// outrank what a backend reports, and so does 0, by which a file takes it out.
func effectiveWeight(set uint16, o Overlay, v Verdict) uint16 {
	if !v.Reported.Known || set == 0 || o.Weight != nil || o.Forced != nil {
		return set
	}
	return v.Reported.Value
}

// shareScale is the factor by which weights are multiplied before shares of slow start or agents apply: a weight of 1
// could not be divided.
const shareScale = 100

// scaled returns a share of a backend's weight, multiplied by shareScale, or less if the largest weight of the service
// would overflow.
func scaled(weight, share, most uint16) uint16 {
	if weight == 0 || share == 0 {
		return 0
	}
	scale := min(shareScale, 65535/max(uint32(most), 1))
	return uint16(max(1, uint32(weight)*scale*min(uint32(share), 100)/100))
}

// reportsShares reports whether agents on the backends report the share of their weight.
func reportsShares(s lb.Service) bool {
	return slices.ContainsFunc(s.Checks.List, func(c lb.Check) bool { return c.Type == lb.CheckAgent })
}

// evaluate builds the routed service of a service that is not plain: its backends, as modified by operations and
// checks, and their paths.
func (v *View) evaluate(i int) (lb.RoutedService, Selection) {
	s := v.Config.Services[i]
	members, most := v.members(i)
	p := selectBackends(s, members)
	made := lb.RoutedService{Service: s, Paths: make([]lb.Path, len(members))}
	made.Backends = make([]lb.Backend, len(members))
	for k := range members {
		m := &members[k]
		p.admit(m)
		if reportsShares(s) || s.SlowStart > 0 {
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
	m := member{Backend: o.ApplyTo(b), Observed: lb.ObservedOf(b), path: pathOf(s, v.Known[v.At[at.I][at.J]]),
		Verdict: v.Verdict(at), out: o.IsOut(), slow: 100,
		ejection: v.Ejections[key].Reason}
	m.reached = reached(s, m.path)
	m.Weight = effectiveWeight(m.Weight, o, m.Verdict)
	if o.Forced != nil {
		m.Verdict, m.ejection = Verdict{}, ""
	}
	return m
}

// members returns the backends of service i that are not taken out, and the largest weight among them. It updates their
// slow starts.
func (v *View) members(i int) (all []member, most uint16) {
	s := v.Config.Services[i]
	starts := slices.Clone(v.Starts[i])
	all = make([]member, len(s.Backends))
	for j := range all {
		all[j] = v.member(Use{i, j})
	}
	readmitIfNoneServes(all)
	for j := range all {
		m := &all[j]
		if starts != nil {
			starts[j] = starts[j].begin(m, m.out, s.SlowStart, v.Now)
			m.slow = starts[j].Share
		}
		if !m.out {
			most = max(most, m.Weight)
		}
	}
	v.Starts[i] = starts
	return slices.DeleteFunc(all, func(m member) bool { return m.out }), most
}

// readmitIfNoneServes ignores ejections if no other backend serves. The ejector readmits the backends when it next
// reads the counters; clients need not wait for that.
func readmitIfNoneServes(all []member) {
	if slices.ContainsFunc(all, func(m member) bool { return !m.out && m.serves() }) {
		return
	}
	for j := range all {
		all[j].ejection = ""
	}
}

// share returns the share of its weight that the backend's agent reports, in per cent.
func (m *member) share() uint16 {
	if m.State == "" {
		return 100
	}
	return m.Verdict.Share
}

// isPlain reports whether a service's backends are as configured: without checks, backups, slow start or operations.
func (v *View) isPlain(i int) bool {
	return v.plain[i] && v.OverlayCounts[v.Config.Services[i].Name] == 0
}

// AffectedServices returns the services that have backends with these numbers and are not plain.
func (v *View) AffectedServices(numbers []int) map[int]bool {
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

// Failing returns the backends that fail their checks.
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

// ReasonOf returns why a backend fails.
func ReasonOf(v Verdict) string {
	if v.reason == "" {
		return "fails its health checks"
	}
	return v.reason
}
