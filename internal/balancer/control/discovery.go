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

// noDiscovery is in the place of a Discovery that is not there.
type noDiscovery struct{}

func (noDiscovery) Watch([]lb.Service) {}

func (noDiscovery) Sets([]lb.Service) []lb.Discovered { return nil }

func (noDiscovery) Changes() <-chan struct{} { return nil }

const (
	// discoverySettle lets changes that an origin reports in pieces be applied together: an engine starts containers
	// one by one.
	discoverySettle = 100 * time.Millisecond
	// discoveryEvery is how long changes of discovered backends are apart, from the end of one to the beginning of the
	// next: each is a change of the configuration as a whole.
	discoveryEvery = time.Second
)

// discovering is the part of the loop that follows discovered backends.
type discovering struct {
	*core
	// wanted is the configuration as it was handed in.
	wanted *config.Config
	// sets are those that were read last, and refused those of their backends that cannot be.
	sets    []lb.Discovered
	refused []config.RefusedBackend
	// told has the text logged last of each origin, and of each refused backend.
	told map[string]string
	// next is when the next change may be, and wait until one that failed is tried again.
	next time.Time
	wait time.Duration
	// undiscovered is why the discovered backends are not in force. Status reads it, and sets and refused, under the
	// lock.
	undiscovered error
	discovery    *loop.Source
	discoverTask *loop.Task
}

// takeDiscovered reads the sets of the origins.
func (d *discovering) takeDiscovered() error {
	sets := d.opt.Discovery.Sets(d.wanted.Services)
	d.mu.Lock()
	d.sets = sets
	d.mu.Unlock()
	d.logOrigins()
	return nil
}

// scheduleDiscovery arms a change to the discovered backends.
func (d *discovering) scheduleDiscovery() {
	if !d.discoverTask.On() { // one that failed is tried again no sooner
		d.discoverTask.In(max(discoverySettle, time.Until(d.next)))
	}
}

// resolve lays a reload out with the backends discovered for it.
func (d *discovering) resolve(r *reload) error {
	if r.wanting == nil {
		return nil
	}
	sets := d.opt.Discovery.Sets(r.wanting.Services)
	if len(sets) == 0 {
		return nil
	}
	var found []netip.Addr
	for _, set := range sets {
		for _, b := range set.Backends {
			found = append(found, b.Address)
		}
	}
	routes, err := d.opt.Paths.Routes(view.Distinct(found))
	if err != nil {
		return err
	}
	full, refused := r.wanting.WithDiscovered(sets, func(s lb.Service, b lb.Backend) string {
		return unsupported(s, b, r.links, view.Within(r.links, routes[b.Address]))
	})
	r.new, r.refused = view.NewLayout(full), refused
	return nil
}

// unsupported returns the reason for which a discovered backend would need another address; "" if it can be one.
func unsupported(s lb.Service, b lb.Backend, links []iface.State, r paths.Route) string {
	if s.Mode.Proxied() {
		return ""
	}
	if view.AsksFromVIP(s, r) {
		return view.Misfit(s, b.Address, r)
	}
	if r.Fault == paths.None || r.Fault.IsTransient() {
		return ""
	}
	why, _ := unreachable(s, b.Address, links, r)
	return why
}

// errUnchanged is the result where the discovered backends are in force already.
var errUnchanged = errors.New("nothing is new")

// settleDiscovery is called with the result of a change to the discovered backends.
func (d *discovering) settleDiscovery(err error) {
	d.mu.Lock()
	failed := d.undiscovered
	if d.undiscovered = err; err != nil {
		d.undiscovered = fmt.Errorf("putting the discovered backends in force, the previous ones stay: %w", err)
	}
	d.mu.Unlock()
	if err == nil {
		d.wait, d.next = 0, time.Now().Add(discoveryEvery)
		if failed != nil {
			d.opt.Log.Info("recovered: what was discovered is in force")
		}
		return
	}
	if failed == nil || failed.Error() != d.undiscovered.Error() {
		d.opt.Log.Error(loglines.OneLine(d.undiscovered))
	}
	d.wait = min(max(2*d.wait, retryFirst), retryMost)
	d.discoverTask.In(d.wait)
}

// settleWanted notes the configuration whose services backends are looked for from now on.
func (d *discovering) settleWanted(r *reload) {
	d.mu.Lock()
	d.wanted, d.refused = r.wanting, r.refused
	d.mu.Unlock()
	d.opt.Discovery.Watch(r.wanting.Services)
	d.logOrigins()
}

// logOrigins logs origins that fail or work again, and backends that cannot be, once each.
func (d *discovering) logOrigins() {
	now, about := map[string]string{}, map[string]events.About{}
	note := func(key, service, text string) {
		now[key], about[key] = text, events.About{Kind: events.KindDiscovery, Service: service}
	}
	for _, set := range d.sets {
		whose := fmt.Sprintf("service %s: %s", set.Service, d.textOf(set))
		if set.Problem != "" {
			note(whose, set.Service, fmt.Sprintf("%s: %s; %s", whose, set.Problem, meanwhile(set)))
		}
		for _, text := range set.Notes {
			note(whose+": "+text, set.Service, whose+": "+text)
		}
	}
	for _, r := range d.refused {
		key := fmt.Sprintf("service %s: %s: %s %s", r.Service, r.Origin, r.Backend, r.Reason)
		note(key, r.Service, key+": it is left out")
	}
	lines := loglines.To(d.opt.Log.Warn)
	for _, key := range sortedKeys(now) {
		if d.told[key] != now[key] {
			lines.Say(about[key], "%s", now[key])
		}
	}
	lines.End("%d more of what was discovered cannot be used: `jeoul status` says why")
	for _, set := range d.sets {
		whose := fmt.Sprintf("service %s: %s", set.Service, d.textOf(set))
		if _, failed := d.told[whose]; failed && set.Problem == "" {
			d.opt.Log.Info(fmt.Sprintf("%s: recovered, backends: %d", whose, len(set.Backends)),
				events.About{Kind: events.KindDiscovery, Service: set.Service}.Attr())
		}
	}
	d.told = now
}

// textOf names an origin and the query that is sent to it.
func (d *discovering) textOf(set lb.Discovered) string {
	i := slices.IndexFunc(d.wanted.Services, func(s lb.Service) bool { return s.Name == set.Service })
	if i < 0 {
		return string(set.Origin)
	}
	return d.wanted.Services[i].Discovery.Text(set.Origin)
}

// meanwhile names the set that is in force while an origin gives no newer one.
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

func sortedKeys(of map[string]string) []string {
	keys := make([]string, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// logDiscovered logs which backends came and went with a change of the discovered backends.
func (d *discovering) logDiscovered(before *view.View) {
	lines := loglines.To(d.opt.Log.Info)
	for _, s := range d.view.Config.Services {
		if !s.Discovery.On() {
			continue
		}
		i, known := before.Named[s.Name]
		if !known {
			continue
		}
		came := newNames(s.Backends, before.AddressesIn(s.Name))
		went := newNames(before.Config.Services[i].Backends, d.view.AddressesIn(s.Name))
		if len(came)+len(went) > 0 {
			lines.Say(events.About{Kind: events.KindDiscovery, Service: s.Name}, "service %s: backends: %d%s%s", s.Name,
				len(s.Backends), someText("came", came), someText("went", went))
		}
	}
	lines.End("the backends of %d more services have changed")
}

// newNames are the names of backends that are not among those of before.
func newNames(backends []lb.Backend, before map[string]string) (names []string) {
	for _, b := range backends {
		if _, known := before[b.Name]; !known {
			names = append(names, b.Name)
		}
	}
	return names
}

// someText lists a few names after a word.
func someText(word string, names []string) string {
	const most = 10
	switch {
	case len(names) == 0:
		return ""
	case len(names) > most:
		return fmt.Sprintf("; %s: %s and %d more", word, strings.Join(names[:most], ", "), len(names)-most)
	}
	return fmt.Sprintf("; %s: %s", word, strings.Join(names, ", "))
}

// discoveredStatus returns the status of the origins of service i; sets and refused are those of the loop.
func discoveredStatus(v *view.View, i int, sets []lb.Discovered, refused []config.RefusedBackend,
	now time.Time) (all []ops.Discovered) {
	s := v.Config.Services[i]
	for _, origin := range s.Discovery.Origins() {
		shown := ops.Discovered{Origin: origin, From: s.Discovery.Text(origin)}
		for _, b := range s.Backends {
			if b.Origin == origin {
				shown.Backends++
			}
		}
		for _, set := range sets {
			if set.Service != s.Name || set.Origin != origin {
				continue
			}
			shown.Taken, shown.Problem, shown.Since, shown.Until, shown.Overdue = set.Taken, set.Problem, set.Since,
				set.Until, set.Overdue
			if !set.Taken.IsZero() {
				shown.AgeSeconds = now.Sub(set.Taken).Seconds()
			}
			shown.Refused = append(shown.Refused, set.Notes...)
		}
		for _, r := range refused {
			if r.Service == s.Name && r.Origin == origin {
				shown.Refused = append(shown.Refused, r.Backend+" "+r.Reason)
			}
		}
		if n := len(shown.Refused); n > mostRefused {
			shown.Refused = append(shown.Refused[:mostRefused:mostRefused], fmt.Sprintf("and %d more", n-mostRefused))
		}
		all = append(all, shown)
	}
	return all
}

// mostRefused is how many backends that cannot be any are shown of an origin.
const mostRefused = 20

// discoveryProblems lists the origins that give no newer set, and counts the entries that cannot be a backend.
func discoveryProblems(services []ops.Service) (list []string) {
	for _, s := range services {
		for _, d := range s.Discovered {
			if d.Problem != "" {
				set := lb.Discovered{Backends: make([]lb.Backend, d.Backends), Taken: d.Taken, Until: d.Until,
					Overdue: d.Overdue}
				list = append(list, fmt.Sprintf("service %s: %s: %s; %s", s.Name, d.From, d.Problem, meanwhile(set)))
			}
			if n := len(d.Refused); n > 0 {
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
