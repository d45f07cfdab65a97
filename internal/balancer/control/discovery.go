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
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// What is discovered enters as the configuration does, by a reload that the loop itself asks for. Such a change waits for one that is under way, and is never refused for what was found:
// backends that cannot be are left out, and named.

// Discovery finds backends of services.
type Discovery interface {
	// Watch replaces the services for which backends are looked for. What stays keeps its sets.
	Watch([]lb.Service)
	// Sets returns what is known of the origins of services, watched or not.
	Sets([]lb.Service) []lb.Discovered
	// Changes is signalled when Sets may return something else.
	Changes() <-chan struct{}
}

// noDiscovery is in the place of a Discovery that is not there.
type noDiscovery struct{}

func (noDiscovery) Watch([]lb.Service)                {}
func (noDiscovery) Sets([]lb.Service) []lb.Discovered { return nil }
func (noDiscovery) Changes() <-chan struct{}          { return nil }

const (
	// discoverySettle lets what an origin tells in pieces be applied together: an engine starts
	// containers one by one.
	discoverySettle = 100 * time.Millisecond
	// discoveryEvery is how long changes of what is discovered are apart, from the end of one to the
	// beginning of the next: each is a change of the configuration as a whole.
	discoveryEvery = time.Second
)

// discovering is what the loop knows of what is discovered.
type discovering struct {
	// wanted is the configuration as it was handed in.
	wanted *config.Config
	// sets are those that were read last, and refused what of them cannot be.
	sets    []lb.Discovered
	refused []config.Refused
	// told has what was logged of each origin, and what was logged as refused.
	told map[string]string
	// next is when the next change may be, and wait until one that failed is tried again.
	next time.Time
	wait time.Duration
}

// takeDiscovered reads what the origins have found.
func (c *Controller) takeDiscovered() error {
	sets := c.opt.Discovery.Sets(c.discovering.wanted.Services)
	c.mu.Lock()
	c.discovering.sets = sets
	c.mu.Unlock()
	c.tellOrigins()
	return nil
}

// discoverSoon arms a change to what is discovered.
func (c *Controller) discoverSoon() {
	if !c.tasks.discover.On() { // one that failed is tried again no sooner
		c.tasks.discover.In(max(discoverySettle, time.Until(c.discovering.next)))
	}
}

// layAtStart returns the layout that the balancer starts with: what was discovered by the process
// before is in it.
func (c *Controller) layAtStart() (*layout, error) {
	r := &reload{new: c.view.layout, wanting: c.discovering.wanted, links: c.links}
	if err := c.layOut(r); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.discovering.refused, c.view = r.refused, &view{layout: r.new}
	return r.new, nil
}

// layOut lays a reload out with what is discovered for it.
func (c *Controller) layOut(r *reload) error {
	if r.wanting == nil {
		return nil
	}
	sets := c.opt.Discovery.Sets(r.wanting.Services)
	if len(sets) == 0 {
		return nil
	}
	var found []netip.Addr
	for _, set := range sets {
		for _, b := range set.Backends {
			found = append(found, b.Address)
		}
	}
	routes, err := c.opt.Paths.Routes(distinct(found))
	if err != nil {
		return err
	}
	full, refused := r.wanting.WithDiscovered(sets, func(s lb.Service, b lb.Backend) string {
		return unfit(s, b, r.links, within(r.links, routes[b.Address]))
	})
	r.new, r.refused = newLayout(full), refused
	return nil
}

// unfit says of a backend that was found why only another address helps; "" if it can be one.
func unfit(s lb.Service, b lb.Backend, links []iface.State, r paths.Route) string {
	if s.Mode == lb.ModeProxy {
		return ""
	}
	if asksFromVIP(s, r) {
		return misfit(s, b.Address, r)
	}
	if r.Fault == paths.None || r.Fault.Passes() {
		return ""
	}
	why, _ := unreachable(s, b.Address, links, r)
	return why
}

// discover puts in force what the origins have found, as a reload of the configuration.
func (c *Controller) discover() {
	if c.pending != nil { // which may be refused yet
		c.tasks.discover.In(discoverySettle)
		return
	}
	if err := c.discovery.Refresh(); err != nil {
		c.settleDiscovery(err)
		return
	}
	r := &reload{new: &layout{cfg: c.discovering.wanted}, wanting: c.discovering.wanted, discovered: true, done: make(chan error, 1)}
	if len(c.discovering.sets) == 0 {
		return
	}
	c.prepare(r)
}

// errUnchanged is for what was discovered where that is in force.
var errUnchanged = errors.New("nothing is new")

// sameBackends says whether the services of a layout have the backends that the view's have.
func (v *view) sameBackends(l *layout) bool {
	return slices.EqualFunc(v.cfg.Services, l.cfg.Services, func(a, b lb.Service) bool {
		return slices.Equal(a.Backends, b.Backends)
	})
}

// settleDiscovery is called with what became of a change to what was discovered.
func (c *Controller) settleDiscovery(err error) {
	d := &c.discovering
	c.mu.Lock()
	failed := c.undiscovered
	if c.undiscovered = err; err != nil {
		c.undiscovered = fmt.Errorf("what was discovered could not be put in force, and what was goes on: %w", err)
	}
	c.mu.Unlock()
	if err == nil {
		d.wait, d.next = 0, time.Now().Add(discoveryEvery)
		if failed != nil {
			c.opt.Log.Info("recovered: what was discovered is in force")
		}
		return
	}
	if failed == nil || failed.Error() != c.undiscovered.Error() {
		c.opt.Log.Error(oneLine(c.undiscovered))
	}
	d.wait = min(max(2*d.wait, retryFirst), retryMost)
	c.tasks.discover.In(d.wait)
}

// settleWanted notes the configuration whose services backends are looked for from now on.
func (c *Controller) settleWanted(r *reload) {
	c.mu.Lock()
	c.discovering.wanted, c.discovering.refused = r.wanting, r.refused
	c.mu.Unlock()
	c.opt.Discovery.Watch(r.wanting.Services)
	c.tellOrigins()
}

// tellOrigins logs what is new of origins that fail, and of backends that cannot be, once each.
func (c *Controller) tellOrigins() {
	d := &c.discovering
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
		key := fmt.Sprintf("service %s: %s: %s %s", r.Service, r.Origin, r.Backend, r.Why)
		note(key, r.Service, key+": it is left out")
	}
	lines := tale{log: c.opt.Log.Warn}
	for _, key := range sortedKeys(now) {
		if d.told[key] != now[key] {
			lines.say(about[key], "%s", now[key])
		}
	}
	lines.end("%d more of what was discovered cannot be used: `jeoul status` says why")
	for _, set := range d.sets {
		whose := fmt.Sprintf("service %s: %s", set.Service, d.textOf(set))
		if _, failed := d.told[whose]; failed && set.Problem == "" {
			c.opt.Log.Info(fmt.Sprintf("%s: recovered, backends: %d", whose, len(set.Backends)), events.About{Kind: events.KindDiscovery, Service: set.Service}.Attr())
		}
	}
	d.told = now
}

// textOf names an origin with what is asked there.
func (d *discovering) textOf(set lb.Discovered) string {
	i := slices.IndexFunc(d.wanted.Services, func(s lb.Service) bool { return s.Name == set.Service })
	if i < 0 {
		return string(set.Origin)
	}
	return d.wanted.Services[i].Discovery.Text(set.Origin)
}

// meanwhile says what holds while an origin gives no newer set.
func meanwhile(set lb.Discovered) string {
	switch n := len(set.Backends); {
	case set.Taken.IsZero():
		return "it has given no backend yet"
	case n == 0:
		return "it has no backend"
	case set.Overdue:
		return fmt.Sprintf("what it said at %s is out of date, and used only where the service had no backend otherwise; backends: %d", set.Taken.Format(time.DateTime), n)
	default:
		return fmt.Sprintf("what it said at %s counts until %s; backends: %d", set.Taken.Format(time.DateTime), set.Until.Format(time.DateTime), n)
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

// tellDiscovered logs which backends came and went with a change of what was discovered.
func (c *Controller) tellDiscovered(before *view) {
	lines := tale{log: c.opt.Log.Info}
	for _, s := range c.view.cfg.Services {
		if !s.Discovery.On() {
			continue
		}
		i, known := before.named[s.Name]
		if !known {
			continue
		}
		came := newNames(s.Backends, before.addressesIn(s.Name))
		went := newNames(before.cfg.Services[i].Backends, c.view.addressesIn(s.Name))
		if len(came)+len(went) > 0 {
			lines.say(events.About{Kind: events.KindDiscovery, Service: s.Name}, "service %s: backends: %d%s%s", s.Name, len(s.Backends), someText("came", came), someText("went", went))
		}
	}
	lines.end("the backends of %d more services have changed")
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

// discovered shows what the origins of service i have found; sets and refused are those of the loop.
func (v *view) discovered(i int, sets []lb.Discovered, refused []config.Refused, now time.Time) (all []ops.Discovered) {
	s := v.cfg.Services[i]
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
			shown.Taken, shown.Problem, shown.Since, shown.Until, shown.Overdue = set.Taken, set.Problem, set.Since, set.Until, set.Overdue
			if !set.Taken.IsZero() {
				shown.AgeSeconds = now.Sub(set.Taken).Seconds()
			}
			shown.Refused = append(shown.Refused, set.Notes...)
		}
		for _, r := range refused {
			if r.Service == s.Name && r.Origin == origin {
				shown.Refused = append(shown.Refused, r.Backend+" "+r.Why)
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

// discoveryProblems lists the origins that give no newer set, and counts what cannot be a backend.
func discoveryProblems(services []ops.Service) (list []string) {
	for _, s := range services {
		for _, d := range s.Discovered {
			if d.Problem != "" {
				set := lb.Discovered{Backends: make([]lb.Backend, d.Backends), Taken: d.Taken, Until: d.Until, Overdue: d.Overdue}
				list = append(list, fmt.Sprintf("service %s: %s: %s; %s", s.Name, d.From, d.Problem, meanwhile(set)))
			}
			if n := len(d.Refused); n > 0 {
				list = append(list, fmt.Sprintf("service %s: %s names what cannot be a backend: %s%s", s.Name, d.From, d.Refused[0], andMore(n-1)))
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
