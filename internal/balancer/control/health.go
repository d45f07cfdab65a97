// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// noChecks is in the place of Checks that are not there.
type noChecks struct{}

func (noChecks) Unfit(lb.Check) string {
	return "this program makes no health checks; remove the check"
}

func (noChecks) Watch([]lb.Checking) {}

func (noChecks) CutOff(string) {}

func (noChecks) Changes() <-chan struct{} { return nil }

func (noChecks) Changed() map[lb.BackendKey]lb.Verdict { return nil }

func (noChecks) Verdicts() map[lb.BackendKey]lb.Verdict { return nil }

func (noChecks) Verdict(lb.BackendKey) (lb.Verdict, bool) { return lb.Verdict{}, false }

func (noChecks) Ask(context.Context, lb.Checking, func(lb.CheckStep)) ([]lb.CheckResult, error) {
	return nil, nil
}

// verdict is what of a lb.Verdict decides about a backend, as of when it last changed.
type verdict struct {
	state  lb.Health
	reason string
	since  time.Time
	// weight is in per cent.
	weight uint16
	drain  bool
	// former: see lb.Verdict.
	former bool
}

func verdictOf(v lb.Verdict) verdict {
	return verdict{v.State, v.Reason, v.Since, v.Weight, v.Drain, v.Former}
}

// checking is what a configuration asks of its backends.
func (l *layout) checking() (all []lb.Checking) {
	for _, s := range l.cfg.Services {
		if !s.Checks.On() {
			continue
		}
		list := s.Asked()
		for _, b := range s.Backends {
			all = append(all, lb.Checking{Backend: s.BackendKey(b), Mode: s.Mode, Checks: list, Any: s.Checks.Any})
		}
	}
	return all
}

// withVerdicts returns the view with other verdicts on some backends, as of now, and whose those are.
func (v *view) withVerdicts(news map[lb.BackendKey]lb.Verdict, now time.Time) (*view, []use) {
	next := *v
	var changed []use
	services := map[int]bool{}
	for key, news := range news {
		at := v.find(key)
		if at == nil || v.verdicts[at.i] == nil {
			continue // of a configuration before
		}
		is := verdictOf(news)
		if was := v.verdicts[at.i][at.j]; was == is {
			continue
		}
		if len(changed) == 0 {
			next.verdicts, next.selected = slices.Clone(v.verdicts), slices.Clone(v.selected)
			next.state.Services = slices.Clone(v.state.Services)
			next.starts, next.now = slices.Clone(v.starts), now
		}
		if !services[at.i] {
			next.verdicts[at.i] = slices.Clone(v.verdicts[at.i])
			services[at.i] = true
		}
		next.verdicts[at.i][at.j] = is
		changed = append(changed, at.use)
	}
	for i := range services {
		next.state.Services[i] = sharing(next.join(i), &v.state.Services[i])
	}
	slices.SortFunc(changed, func(a, b use) int { return cmp.Or(cmp.Compare(a.i, b.i), cmp.Compare(a.j, b.j)) })
	return &next, changed
}

// verdict returns that on a backend; the zero one where it is not asked.
func (v *view) verdict(at use) verdict {
	if v.verdicts[at.i] == nil {
		return verdict{}
	}
	return v.verdicts[at.i][at.j]
}

// serving says which backends of a service take new flows.
type serving uint8

const (
	// primaries: those that are no backups, and healthy.
	primaries serving = iota
	// backups: the backups that are healthy, for no other backend serves.
	backups
	// panicked: healthy or not, for too few are healthy.
	panicked
)

// selection is which backends of a service take new flows, and out of how many.
type selection struct {
	serving
	// onBackups: the backups are among them.
	onBackups bool
	// healthy are those that could serve of wanted, which are those that operations and
	// configuration let take new flows, backups among them only where they alone are let.
	healthy, wanted int
}

// member is a backend of a service, as operations have it, and what is known of it.
type member struct {
	lb.Backend
	lb.Observed
	verdict
	path lb.Path
	// reached: packets can be sent to it.
	reached bool
	// ejection says why it is to take no new flow by what it answers to clients; "": it is not
	// ejected.
	ejection string
	// out: a deadline has taken it out of its service.
	out bool
	// slow is what slow start leaves of its weight, in per cent.
	slow uint16
}

// wanted says whether the backend could take new flows, if it is healthy.
func (m *member) wanted() bool { return m.Backend.TakesFlows() && m.reached && !m.drain }

// serves says whether the backend could take new flows, and would be right to.
func (m *member) serves() bool {
	return m.wanted() && m.state != lb.Failing && m.ejection == ""
}

// fails says whether the backend would take new flows but for its checks, or its ejection.
func (m *member) fails() bool { return m.wanted() && !m.serves() }

// selectBackends decides which of a service's backends take new flows.
func selectBackends(s lb.Service, members []member) selection {
	var wanted, healthy, failing [2]int // those that are no backups, and backups
	for i := range members {
		m, kind := &members[i], 0
		if m.Backup {
			kind = 1
		}
		if m.Backend.TakesFlows() && !m.drain {
			wanted[kind]++
		}
		switch {
		case m.serves():
			healthy[kind]++
		case m.fails():
			failing[kind]++
		}
	}
	kind, p := 0, selection{serving: primaries}
	if healthy[0] == 0 && healthy[1] > 0 || wanted[0] == 0 && wanted[1] > 0 {
		kind, p.serving, p.onBackups = 1, backups, true
	}
	p.healthy, p.wanted = healthy[kind], wanted[kind]
	if failing[kind] > 0 && p.healthy*100 < int(s.Checks.Panic)*p.wanted {
		p.serving = panicked
	}
	return p
}

// admit writes into a member what was decided of it.
func (p selection) admit(m *member) {
	m.Standby = m.Backup && !p.onBackups
	m.Draining = m.Draining || m.drain
	if p.serving == panicked && m.Backup == p.onBackups {
		return
	}
	switch {
	case m.state == lb.Failing:
		m.Unhealthy = reasonOf(m.verdict)
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

// asksShares says whether backends say themselves what share of their weight they take.
func asksShares(s lb.Service) bool {
	return slices.ContainsFunc(s.Checks.List, func(c lb.Check) bool { return c.Type == lb.CheckAgent })
}

// judge puts a service that is not plain together: its backends as operations and checks have
// them, and the paths to them.
func (v *view) judge(i int) (lb.RoutedService, selection) {
	s := v.cfg.Services[i]
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

// member returns a backend with what is known of it.
func (v *view) member(at use) member {
	s, b := v.service(at), v.backend(at)
	key := s.BackendKey(b)
	o := v.overlayOf(s, b)
	m := member{Backend: o.over(b), Observed: lb.ObservedOf(b), path: pathOf(s, v.known[v.at[at.i][at.j]]),
		verdict: v.verdict(at), out: o.out(), slow: 100,
		ejection: v.ejections[key].Reason}
	m.reached = reached(s, m.path)
	if o.forced != nil {
		m.verdict, m.ejection = verdict{}, ""
	}
	return m
}

// members are the backends of service i that are not taken out, and the largest weight among
// them. It notes which of them begin to serve.
func (v *view) members(i int) (members []member, most uint16) {
	s := v.cfg.Services[i]
	starts, all := slices.Clone(v.starts[i]), make([]member, len(s.Backends))
	for j := range all {
		all[j] = v.member(use{i, j})
	}
	keepOne(all)
	for j := range all {
		m := &all[j]
		if starts != nil {
			starts[j] = starts[j].begin(m, m.out, s.SlowStart, v.now)
			m.slow = starts[j].share
		}
		if !m.out {
			most = max(most, m.Weight)
			members = append(members, *m)
		}
	}
	v.starts[i] = starts
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

// share is what the backend asks for of its weight, in per cent.
func (m *member) share() uint16 {
	if m.state == "" {
		return 100
	}
	return m.verdict.weight
}

// isPlain says whether the backends of a service are those of the configuration: without
// checks, backups, slow start or operations.
func (v *view) isPlain(i int) bool { return v.plain[i] && v.laid[v.cfg.Services[i].Name] == 0 }

// usually finds the services whose backends are the configuration's unless operations change
// them.
func usually(services []lb.Service) []bool {
	plain := make([]bool, len(services))
	for i, s := range services {
		plain[i] = !s.Judged() && s.SlowStart == 0 && !slices.ContainsFunc(s.Backends, func(b lb.Backend) bool {
			return b.Backup
		})
	}
	return plain
}

// touched are the services that have backends with these numbers and are not plain.
func (v *view) touched(numbers []int) map[int]bool {
	services := map[int]bool{}
	for _, n := range numbers {
		for _, at := range v.uses[n] {
			if !v.isPlain(at.i) {
				services[at.i] = true
			}
		}
	}
	return services
}

// failing are the backends that fail their checks.
func (v *view) failing() (all []use) {
	for i := range v.verdicts {
		for j := range v.verdicts[i] {
			if v.verdicts[i][j].state == lb.Failing {
				all = append(all, use{i, j})
			}
		}
	}
	return all
}

// reasonOf says of a backend that fails why it does.
func reasonOf(v verdict) string {
	if v.reason == "" {
		return "fails its health checks"
	}
	return v.reason
}
