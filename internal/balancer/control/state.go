// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// vipsOf returns the VIPs of a configuration, each once, in its order.
func vipsOf(cfg *config.Config) []netip.Addr {
	var all []netip.Addr
	for _, s := range cfg.Services {
		all = append(all, s.VIP)
	}
	return distinct(all)
}

// addresses returns what a configuration has on the first interface: its VIPs
// and the addresses of full NAT. Other members' are among them only where the one that holds the VIPs
// holds them all.
func addresses(cfg *config.Config) []netip.Addr {
	pool := cfg.Pool()
	if cfg.VRRP.ID == 0 {
		pool.Others = nil
	}
	return distinct(append(vipsOf(cfg), pool.All()...))
}

// backendAddresses returns the backends of a configuration, each once, in its
// order.
func backendAddresses(cfg *config.Config) []netip.Addr {
	var all []netip.Addr
	for _, s := range cfg.Services {
		for _, b := range s.Backends {
			all = append(all, b.Address)
		}
	}
	return distinct(all)
}

func distinct(addrs []netip.Addr) []netip.Addr {
	seen := make(map[netip.Addr]bool, len(addrs))
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool {
		again := seen[a]
		seen[a] = true
		return again
	})
}

// without returns the addresses of all that are not in some.
func without(all, some []netip.Addr) []netip.Addr {
	leave := make(map[netip.Addr]bool, len(some))
	for _, a := range some {
		leave[a] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return leave[a] })
}

// missing returns the addresses that are not on the interface.
func missing(link iface.State, addrs []netip.Addr) []netip.Addr {
	var have []netip.Addr
	for _, p := range link.Addresses {
		have = append(have, p.Addr())
	}
	return without(addrs, have)
}

// known returns what is known of the paths to a configuration's backends, by their
// numbers. Entries that say nothing new are the former ones.
func (c *Controller) known(l *layout, links []iface.State, former *view) []*paths.Entry {
	entries, known := c.opt.Paths.Entries(), make([]*paths.Entry, len(l.backends))
	for n, addr := range l.backends {
		entry := entryWithin(links, entries[addr])
		if known[n] = former.entry(addr); known[n] == nil || !sameEntry(&entry, known[n]) {
			known[n] = kept(entry)
		}
	}
	return known
}

// reason says why a service's packets cannot take the path to a backend, and ""
// if they can. It is worded of the backend, as in "does not answer ARP requests".
func reason(s lb.Service, e *paths.Entry) string {
	if s.Mode == lb.ModeProxy { // whose ways are the kernel's
		return ""
	}
	switch wrong := misfit(s, e.Address, e.Route); {
	case e.Fault != paths.None:
		return e.Reason
	case wrong != "":
		return wrong
	case e.MAC == nil && e.Reason == "":
		return "was not asked yet"
	}
	return e.Reason
}

// reached says whether packets of a service can be sent along a path to a backend. In mode proxy the kernel
// sends them, by ways that are not looked at here: health checks find what is wrong with them.
func reached(s lb.Service, p lb.Path) bool { return s.Mode == lb.ModeProxy || p.MAC != nil }

// misfit says what is wrong with a route, that is there, for a service's mode.
func misfit(s lb.Service, addr netip.Addr, r paths.Route) string {
	switch {
	case s.Mode == lb.L2DSR && r.Gateway.IsValid():
		return fmt.Sprintf("is behind the router %s, and %s reaches neighbours only", r.Gateway, s.Mode)
	case asksFromVIP(s, r):
		return fmt.Sprintf("does not answer ARP requests from the VIP %s, which this host asks from on %s and the backend has itself in %s", s.VIP, r.Interface, s.Mode)
	case s.Mode.Tunnels() && r.Interface != "" && (!r.Local.IsValid() || r.Local.IsLinkLocalUnicast() && !addr.IsLinkLocalUnicast()):
		return fmt.Sprintf("cannot be sent tunnel packets: this host has no %s address on %s to send them from", family(addr), r.Interface)
	}
	return ""
}

// asksFromVIP says whether the host asks for a service's backend by ARP from the VIP,
// where the backend has that address, too: the kernel there takes a request from an
// address of its own for a forgery, and does not answer (fib_validate_source in
// net/ipv4/fib_frontend.c). Nothing else about a VIP that is this host's own does harm:
// IPv6 solicits from a link-local address, and a router between does not have the VIP.
func asksFromVIP(s lb.Service, r paths.Route) bool {
	return s.Mode.KeepsPort() && r.Asks.IsValid() && r.Asks == s.VIP
}

func family(addr netip.Addr) string {
	if addr.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// install gives the data plane a view.
func (c *Controller) install(v *view) error {
	if err := c.opt.DataPlane.Apply(v.packets()); err != nil {
		return err
	}
	c.remind(v)
	c.armSteps(c.view, v)
	c.stale = false
	defer c.found()
	if !slices.EqualFunc(c.view.links, v.links, sameLink) {
		c.setLinks(v.links)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view = v
	c.generation++
	return nil
}

// show puts a view in force for which the data plane has what it needs.
func (c *Controller) show(v *view) {
	c.remind(v)
	c.armSteps(c.view, v)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view = v
}

// mostTold is how many lines of one kind are logged one by one.
const mostTold = 100

// tale says things of one kind line by line, and counts those that are too many.
type tale struct {
	log    func(string, ...any)
	told   int
	untold int
}

// say logs a line, or counts it; it is an event all the same.
func (t *tale) say(about events.About, format string, args ...any) {
	if t.told == mostTold {
		t.untold++
		about.Unlogged = true
	} else {
		t.told++
	}
	t.log(fmt.Sprintf(format, args...), about.Attr())
}

// end says how many more there were, of what.
func (t *tale) end(format string) {
	if t.untold > 0 {
		t.log(fmt.Sprintf(format, t.untold))
	}
}

// describe says what a configuration asks for that the former view, nil at the
// start, had not, and what is odd about it here.
func (c *Controller) describe(former *view, warnings yamlfile.Problems) {
	cfg, services := c.view.cfg, tale{log: c.opt.Log.Info}
	for _, s := range cfg.Services {
		if former.holds(s) {
			continue
		}
		mode := string(s.Mode)
		if s.DSCP != 0 {
			mode = fmt.Sprintf("%s %d", s.Mode, s.DSCP)
		}
		services.say(events.About{Kind: events.KindConfiguration, Service: s.Name}, "service %s: %s, %s, %s, backends: %d", s.Name, s.Key(), mode, s.Scheduler, len(s.Backends))
	}
	services.end("%d more services: `jeoul status` shows them")
	c.tellWarnings(slices.Concat(cfg.Warnings, warnings))
}

// told is a backend of which something is logged once: another mode may reach the
// same address, or not.
type told struct {
	address netip.Addr
	mode    lb.Mode
}

// eachBackend calls f once for each address of these numbers and each mode, with
// the first backend that has them.
func (l *layout) eachBackend(numbers iter.Seq[int], f func(told, int, lb.Service, lb.Backend)) {
	for n := range numbers {
		var seen []lb.Mode
		for _, at := range l.uses[n] {
			s := l.service(at)
			if slices.Contains(seen, s.Mode) {
				continue
			}
			seen = append(seen, s.Mode)
			f(told{l.backends[n], s.Mode}, n, s, l.backend(at))
			if len(seen) == len(lb.Modes) {
				break
			}
		}
	}
}

// all are the numbers of all backends.
func (l *layout) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for n := range l.backends {
			if !yield(n) {
				return
			}
		}
	}
}

// place says where packets for an entry go: "" if nowhere.
func (c *Controller) place(s lb.Service, e *paths.Entry) string {
	if reason(s, e) != "" || s.Mode == lb.ModeProxy {
		return ""
	}
	place := e.MAC.String()
	if e.Gateway.IsValid() {
		place += " (the router " + e.Gateway.String() + ")"
	}
	if len(c.links) > 1 {
		place += " on " + e.Interface
	}
	return place
}

// tellMoves says which backends of these numbers were found, lost or moved since a
// view before, which may be nil.
func (c *Controller) tellMoves(before *view, numbers iter.Seq[int]) {
	found, lost := tale{log: c.opt.Log.Info}, tale{log: c.opt.Log.Warn}
	c.view.eachBackend(numbers, func(t told, n int, s lb.Service, b lb.Backend) {
		old, now := before.entry(t.address), c.view.known[n]
		c.outages.note(t, reason(s, now) != "")
		if old == now {
			return
		}
		if old == nil {
			old = &paths.Entry{}
		}
		was, is := c.place(s, old), c.place(s, now)
		switch {
		case was == is:
		case was == "":
			found.say(aboutBackend(events.KindPath, s, b), "%s is at %s", who(s, b), is)
		case is == "":
			c.outages.say(t)
			c.tellLost(&lost, s, b, now)
		default:
			found.say(aboutBackend(events.KindPath, s, b), "%s has moved from %s to %s", who(s, b), was, is)
		}
	})
	found.end("%d more backends were found or have moved: `jeoul status` shows them")
	lost.end(moreLost)
}

func who(s lb.Service, b lb.Backend) string {
	return fmt.Sprintf("backend %s (%s) of %s", b.Name, b.Address, s.Name)
}

const moreLost = "%d more backends get no packets: `jeoul status` says why"

func (c *Controller) tellLost(lost *tale, s lb.Service, b lb.Backend, e *paths.Entry) {
	lost.say(aboutBackend(events.KindPath, s, b), "%s %s: no packets until that changes", who(s, b), reason(s, e))
}

// reportSilent says, once each, which backends have not been found in a while, and
// which services have none.
func (c *Controller) reportSilent() {
	lost := tale{log: c.opt.Log.Warn}
	c.view.eachBackend(c.view.all(), func(t told, n int, s lb.Service, b lb.Backend) {
		e := c.view.known[n]
		if reason(s, e) == "" || c.excused(e) || !c.outages.say(t) {
			return
		}
		c.tellLost(&lost, s, b, e)
	})
	lost.end(moreLost)
	c.tellServices(nil, slices.Collect(c.view.all()))
}

// excused says whether an interface that is down, which was reported, is the reason
// for what is missing.
func (c *Controller) excused(e *paths.Entry) bool {
	return slices.ContainsFunc(c.links, func(link iface.State) bool {
		return !link.Up && (e.Fault != paths.None || e.Interface == "" || e.Interface == link.Name)
	})
}

// oneLine keeps a message with several lines together in a log.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
