// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
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

// reason says why a service's packets cannot take the path to a backend, and ""
// if they can. It is worded of the backend, as in "does not answer ARP requests".
func reason(s lb.Service, e *paths.Entry) string {
	if s.Mode.Proxied() { // whose ways are the kernel's
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
func reached(s lb.Service, p lb.Path) bool { return s.Mode.Proxied() || p.MAC != nil }

// misfit says what is wrong with a route, that is there, for a service's mode.
func misfit(s lb.Service, addr netip.Addr, r paths.Route) string {
	switch {
	case s.Mode.NeedsNeighbours() && r.Gateway.IsValid():
		return fmt.Sprintf("is behind the router %s, and %s reaches neighbours only", r.Gateway, s.Mode)
	case asksFromVIP(s, r):
		return fmt.Sprintf(
			"does not answer ARP requests from the VIP %s, which this host asks from on %s and the backend has itself in %s", s.VIP, r.Interface, s.Mode)
	case s.Mode.Tunnels() && r.Interface != "" && (!r.Local.IsValid() || r.Local.IsLinkLocalUnicast() &&
		!addr.IsLinkLocalUnicast()):
		return fmt.Sprintf("cannot be sent tunnel packets: this host has no %s address on %s to send them from",
			family(addr), r.Interface)
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

func who(s lb.Service, b lb.Backend) string {
	return fmt.Sprintf("backend %s (%s) of %s", b.Name, b.Address, s.Name)
}

// sameLink says whether two states are of one interface.
func sameLink(a, b iface.State) bool { return a.Index == b.Index }

func moved(before, now iface.State) bool { return before.MAC.String() != now.MAC.String() }

// listLinks names the interfaces.
func listLinks(links []iface.State) string {
	return strings.Join(linkNames(links), ", ")
}

func linkNames(links []iface.State) []string {
	names := make([]string, len(links))
	for i, link := range links {
		names[i] = link.Name
	}
	return names
}

// cutOff says why no backend can be reached, or "". While one interface of several is up, it leads
// to some backends, and which of them the checks would reach is the routes' to say.
func cutOff(links []iface.State) string {
	switch {
	case len(links) == 0 || slices.ContainsFunc(links, func(l iface.State) bool { return l.Up }):
		return ""
	case len(links) == 1:
		return fmt.Sprintf("interface %s is down", links[0].Name)
	}
	return fmt.Sprintf("interfaces %s are down", listLinks(links))
}

// within returns a route as it is for a balancer on these interfaces: while they change, paths
// are looked for by those before and after.
func within(links []iface.State, r paths.Route) paths.Route {
	if r.Fault != paths.None || slices.ContainsFunc(links, func(l iface.State) bool { return l.Index == r.Index }) {
		return r
	}
	return paths.Elsewhere(r.Interface, linkNames(links))
}

// entryWithin is within for what is known of an address.
func entryWithin(links []iface.State, e paths.Entry) paths.Entry {
	if e.Interface == "" {
		return e
	}
	if r := within(links, e.Route); r != e.Route {
		return paths.Entry{Address: e.Address, Route: r, Neighbour: e.Neighbour, Reason: r.Reason}
	}
	return e
}

// tooLarge names the file where there is not enough memory for what it says.
func tooLarge(cfg *config.Config, err error) error {
	if errors.Is(err, lb.ErrTooLarge) {
		return cfg.At("", "%v", err)
	}
	return err
}

// oneLine keeps a message with several lines together in a log.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// aboutBackend is what an event of a backend is about.
func aboutBackend(kind events.Kind, s lb.Service, b lb.Backend) events.About {
	return events.About{Kind: kind, Service: s.Name, Backend: b.Name}
}

// some lists a few addresses and counts the others.
func some(addrs []netip.Addr) string {
	var text []string
	for _, a := range addrs[:min(len(addrs), loglines.Most)] {
		text = append(text, a.String())
	}
	if more := len(addrs) - len(text); more > 0 {
		text = append(text, fmt.Sprintf("%d more", more))
	}
	return strings.Join(text, ", ")
}
