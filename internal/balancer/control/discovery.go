// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// noDiscovery is used where Options has no Discovery.
type noDiscovery struct{}

func (noDiscovery) SetServices([]lb.Service) {}

func (noDiscovery) Sets([]lb.Service) []lb.Discovered { return nil }

func (noDiscovery) Changes() <-chan struct{} { return nil }

const (
	// discoverySettle batches changes that an origin reports in pieces: an engine starts containers one by one.
	discoverySettle = 100 * time.Millisecond
	// discoveryInterval is the minimum time from the end of one change of discovered backends to the beginning of the
	// next: each change is a full reload.
	discoveryInterval = time.Second
)

// discovering is the part of the loop that follows discovered backends.
type discovering struct {
	*core
	// config is the configuration as the caller passed it, without discovered backends.
	config *config.Config
	// sets are the discovered sets as read last, and refused their backends that the configuration cannot have.
	sets    []lb.Discovered
	refused []config.RefusedBackend
	// logged has the line logged last for each origin, and for each refused backend.
	logged map[string]string
	// next is the earliest time of the next change, and discoveryDelay the delay of the next retry.
	next           time.Time
	discoveryDelay time.Duration
	// failure is why the discovered backends could not be applied. Status reads it, and sets and refused, under the
	// lock.
	failure      error
	discovery    *loop.Source
	discoverTask *loop.Task
}

// readDiscovered reads the sets of the origins.
func (d *discovering) readDiscovered() error {
	sets := d.opt.Discovery.Sets(d.config.Services)
	d.mu.Lock()
	d.sets = sets
	d.mu.Unlock()
	d.logOrigins()
	return nil
}

// scheduleDiscovery schedules a change to the discovered backends.
func (d *discovering) scheduleDiscovery() {
	if !d.discoverTask.Scheduled() { // a retry keeps its time
		d.discoverTask.Schedule(max(discoverySettle, time.Until(d.next)))
	}
}

// resolve adds the discovered backends to the layout of a reload.
func (d *discovering) resolve(r *reload) error {
	if r.config == nil {
		return nil
	}
	sets := d.opt.Discovery.Sets(r.config.Services)
	if len(sets) == 0 {
		return nil
	}
	var found []netip.Addr
	for _, set := range sets {
		for _, b := range set.Backends {
			found = append(found, b.Address)
		}
	}
	routes, err := d.opt.Paths.Lookup(view.Distinct(found))
	if err != nil {
		return err
	}
	full, refused := r.config.WithDiscovered(sets, func(s lb.Service, b lb.Backend) string {
		return unsupported(s, b, r.links, view.Within(r.links, routes[b.Address]))
	})
	r.layout, r.refused = view.NewLayout(full), refused
	return nil
}

// unsupported returns why a discovered backend cannot be used without another address; "" if it can.
func unsupported(s lb.Service, b lb.Backend, links []iface.State, r paths.Route) string {
	if s.Mode.Proxied() {
		return ""
	}
	if view.SolicitsFromVIP(s, r) {
		return view.RouteProblem(s, b.Address, r)
	}
	if r.Fault == paths.None || r.Fault.IsTransient() {
		return ""
	}
	why, _ := unreachable(s, b.Address, links, r)
	return why
}

// errUnchanged is the result of a reload whose discovered backends are in force already.
var errUnchanged = errors.New("nothing is new")

// finishDiscovery records the result of a change to the discovered backends.
func (d *discovering) finishDiscovery(err error) {
	d.mu.Lock()
	failed := d.failure
	if d.failure = err; err != nil {
		d.failure = fmt.Errorf("apply the discovered backends (the previous ones stay): %w", err)
	}
	d.mu.Unlock()
	if err == nil {
		d.discoveryDelay, d.next = 0, time.Now().Add(discoveryInterval)
		if failed != nil {
			d.opt.Log.Info("recovered: the discovered backends are in force")
		}
		return
	}
	if failed == nil || failed.Error() != d.failure.Error() {
		d.opt.Log.Error(loglines.OneLine(d.failure))
	}
	d.discoveryDelay = min(max(2*d.discoveryDelay, retryFirst), retryMax)
	d.discoverTask.Schedule(d.discoveryDelay)
}

// setConfig sets the configuration whose services' backends are discovered.
func (d *discovering) setConfig(r *reload) {
	d.mu.Lock()
	d.config, d.refused = r.config, r.refused
	d.mu.Unlock()
	d.opt.Discovery.SetServices(r.config.Services)
	d.logOrigins()
}

// logOrigins logs origins that fail or have recovered, and refused backends, once each.
func (d *discovering) logOrigins() {
	now, about := map[string]string{}, map[string]events.About{}
	note := func(key, service, text string) {
		now[key], about[key] = text, events.About{Kind: events.KindDiscovery, Service: service}
	}
	for _, set := range d.sets {
		name := fmt.Sprintf("service %s: %s", set.Service, d.textOf(set))
		if set.Problem != "" {
			note(name, set.Service, fmt.Sprintf("%s: %s; %s", name, set.Problem, meanwhile(set)))
		}
		for _, text := range set.Notes {
			note(name+": "+text, set.Service, name+": "+text)
		}
	}
	for _, r := range d.refused {
		key := fmt.Sprintf("service %s: %s: %s %s", r.Service, r.Origin, r.Backend, r.Reason)
		note(key, r.Service, key+": it is left out")
	}
	lines := loglines.New(d.opt.Log.Warn)
	for _, key := range sortedKeys(now) {
		if d.logged[key] != now[key] {
			lines.Logf(about[key], "%s", now[key])
		}
	}
	lines.Flush("%d more discovered entries cannot be used: `jeoul status` says why")
	for _, set := range d.sets {
		name := fmt.Sprintf("service %s: %s", set.Service, d.textOf(set))
		if _, failed := d.logged[name]; failed && set.Problem == "" {
			d.opt.Log.Info(fmt.Sprintf("%s: recovered, backends: %d", name, len(set.Backends)),
				events.About{Kind: events.KindDiscovery, Service: set.Service}.Attr())
		}
	}
	d.logged = now
}

// textOf describes an origin and its query.
func (d *discovering) textOf(set lb.Discovered) string {
	i := slices.IndexFunc(d.config.Services, func(s lb.Service) bool { return s.Name == set.Service })
	if i < 0 {
		return string(set.Origin)
	}
	return d.config.Services[i].Discovery.Text(set.Origin)
}

// meanwhile describes the set that stays in force while its origin fails.
func meanwhile(set lb.Discovered) string {
	switch n := len(set.Backends); {
	case set.Taken.IsZero():
		return "it has given no backend yet"
	case n == 0:
		return "it has no backend"
	case set.Overdue:
		return fmt.Sprintf(
			"what it said at %s is out of date, and used only where the service had no backend otherwise; backends: %d",
			set.Taken.Format(time.DateTime), n)
	default:
		return fmt.Sprintf("what it said at %s counts until %s; backends: %d", set.Taken.Format(time.DateTime),
			set.Until.Format(time.DateTime), n)
	}
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// logDiscovered logs the backends that a change of the discovered backends has added and removed.
func (d *discovering) logDiscovered(before *view.View) {
	lines := loglines.New(d.opt.Log.Info)
	for _, s := range d.view.Config.Services {
		if !s.Discovery.On() {
			continue
		}
		i, known := before.Named[s.Name]
		if !known {
			continue
		}
		added := newNames(s.Backends, before.AddressesIn(s.Name))
		removed := newNames(before.Config.Services[i].Backends, d.view.AddressesIn(s.Name))
		if len(added)+len(removed) > 0 {
			lines.Logf(events.About{Kind: events.KindDiscovery, Service: s.Name}, "service %s: backends: %d%s%s", s.Name,
				len(s.Backends), nameList("came", added), nameList("went", removed))
		}
	}
	lines.Flush("the backends of %d more services have changed")
}

// newNames returns the names of backends that were not there before.
func newNames(backends []lb.Backend, before map[string]string) (names []string) {
	for _, b := range backends {
		if _, known := before[b.Name]; !known {
			names = append(names, b.Name)
		}
	}
	return names
}

// nameList lists up to ten names after a word, and counts the others.
func nameList(word string, names []string) string {
	const limit = 10
	switch {
	case len(names) == 0:
		return ""
	case len(names) > limit:
		return fmt.Sprintf("; %s: %s and %d more", word, strings.Join(names[:limit], ", "), len(names)-limit)
	}
	return fmt.Sprintf("; %s: %s", word, strings.Join(names, ", "))
}

// discoveredStatus returns the status of the origins of service i; sets and refused are those of the loop.
func discoveredStatus(v *view.View, i int, sets []lb.Discovered, refused []config.RefusedBackend,
	now time.Time) (all []ops.Discovered) {
	s := v.Config.Services[i]
	for _, origin := range s.Discovery.Origins() {
		status := ops.Discovered{Origin: origin, From: s.Discovery.Text(origin)}
		for _, b := range s.Backends {
			if b.Origin == origin {
				status.Backends++
			}
		}
		for _, set := range sets {
			if set.Service != s.Name || set.Origin != origin {
				continue
			}
			status.Taken, status.Problem, status.Since = set.Taken, set.Problem, set.Since
			status.Until, status.Overdue = set.Until, set.Overdue
			if !set.Taken.IsZero() {
				status.AgeSeconds = now.Sub(set.Taken).Seconds()
			}
			status.Refused = append(status.Refused, set.Notes...)
		}
		for _, r := range refused {
			if r.Service == s.Name && r.Origin == origin {
				status.Refused = append(status.Refused, r.Backend+" "+r.Reason)
			}
		}
		status.RefusedCount = len(status.Refused)
		if n := status.RefusedCount; n > maxRefused {
			status.Refused = append(status.Refused[:maxRefused:maxRefused], fmt.Sprintf("and %d more", n-maxRefused))
		}
		all = append(all, status)
	}
	return all
}

// maxRefused is the number of refused backends that a status lists for an origin.
const maxRefused = 20

// discoveryProblems lists the origins that fail, and counts the entries that cannot be used as backends.
func discoveryProblems(services []ops.Service) (list []string) {
	for _, s := range services {
		for _, d := range s.Discovered {
			if d.Problem != "" {
				set := lb.Discovered{Backends: make([]lb.Backend, d.Backends), Taken: d.Taken, Until: d.Until,
					Overdue: d.Overdue}
				list = append(list, fmt.Sprintf("service %s: %s: %s; %s", s.Name, d.From, d.Problem, meanwhile(set)))
			}
			if n := d.RefusedCount; n > 0 {
				list = append(list, fmt.Sprintf("service %s: %s names what cannot be a backend: %s%s", s.Name, d.From,
					d.Refused[0], andMore(n-1)))
			}
		}
	}
	return list
}

func andMore(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more", n)
}
