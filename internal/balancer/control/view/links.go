// SPDX-License-Identifier: Apache-2.0

package view

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// MissingAddresses returns the addresses that are not on the interface.
func MissingAddresses(link iface.State, addrs []netip.Addr) []netip.Addr {
	var have []netip.Addr
	for _, p := range link.Addresses {
		have = append(have, p.Addr())
	}
	return Without(addrs, have)
}

// WhyUnreachable returns why a service's packets cannot take the path to a backend, "" if they can. The backend is the
// subject of the text, as in "does not answer ARP requests".
func WhyUnreachable(s lb.Service, e *paths.Entry) string {
	if s.Mode.Proxied() { // which the kernel routes to
		return ""
	}
	switch wrong := RouteProblem(s, e.Address, e.Route); {
	case e.Fault != paths.None:
		return e.Reason
	case wrong != "":
		return wrong
	case e.MAC == nil && e.Reason == "":
		return "was not asked yet"
	}
	return e.Reason
}

// reached reports whether packets of a service can be sent along a path to a backend. In mode proxy the kernel routes
// them, and health checks find its faults.
func reached(s lb.Service, p lb.Path) bool { return s.Mode.Proxied() || p.MAC != nil }

// RouteProblem returns why an existing route cannot be used by a service's mode; "" if it can.
func RouteProblem(s lb.Service, addr netip.Addr, r paths.Route) string {
	switch {
	case s.Mode.NeedsNeighbours() && r.Gateway.IsValid():
		return fmt.Sprintf("is behind the router %s, and %s reaches neighbours only", r.Gateway, s.Mode)
	case SolicitsFromVIP(s, r):
		return fmt.Sprintf(
			"does not answer ARP requests from the VIP %s, which this host asks from on %s and the backend has itself in %s", s.VIP, r.Interface, s.Mode)
	case s.Mode.Tunnels() && r.Interface != "" && (!r.Local.IsValid() || r.Local.IsLinkLocalUnicast() &&
		!addr.IsLinkLocalUnicast()):
		return fmt.Sprintf("cannot be sent tunnel packets: this host has no %s address on %s to send them from",
			family(addr), r.Interface)
	}
	return ""
}

// SolicitsFromVIP reports whether the host's ARP requests for a service's backend have the VIP as their source, while
// the backend has that address, too: its kernel treats a request from one of its own addresses as spoofed, and does not
// answer (fib_validate_source in net/ipv4/fib_frontend.c). In all other cases, a VIP that is also an address of the
// host is harmless: IPv6 solicits from a link-local address, and a router on the path does not have the VIP.
func SolicitsFromVIP(s lb.Service, r paths.Route) bool {
	return s.Mode.KeepsPort() && r.ARPSource.IsValid() && r.ARPSource == s.VIP
}

func family(addr netip.Addr) string {
	if addr.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// SameLink reports whether two states are of the same interface.
func SameLink(a, b iface.State) bool { return a.Index == b.Index }

// HasMoved reports whether an interface has another MAC address.
func HasMoved(before, now iface.State) bool { return before.MAC.String() != now.MAC.String() }

// ListLinks returns the names of interfaces as a list in one text.
func ListLinks(links []iface.State) string {
	return strings.Join(LinkNames(links), ", ")
}

// LinkNames returns the names of interfaces, in their order.
func LinkNames(links []iface.State) []string {
	names := make([]string, len(links))
	for i, link := range links {
		names[i] = link.Name
	}
	return names
}

// Offline returns why no backend can be reached, "" if some may be. While one of several interfaces is up, some
// backends may be reachable through it, and the routes decide which.
func Offline(links []iface.State) string {
	switch {
	case len(links) == 0 || slices.ContainsFunc(links, func(l iface.State) bool { return l.Up }):
		return ""
	case len(links) == 1:
		return fmt.Sprintf("interface %s is down", links[0].Name)
	}
	return fmt.Sprintf("interfaces %s are down", ListLinks(links))
}

// Within returns a route as seen by a balancer on these interfaces only: while the interfaces change, paths are
// resolved through the previous ones and the next ones.
func Within(links []iface.State, r paths.Route) paths.Route {
	if r.Fault != paths.None || slices.ContainsFunc(links, func(l iface.State) bool { return l.Index == r.Index }) {
		return r
	}
	return paths.ViaOtherInterface(r.Interface, LinkNames(links))
}

// EntryWithin is Within for a path entry.
func EntryWithin(links []iface.State, e paths.Entry) paths.Entry {
	if e.Interface == "" {
		return e
	}
	if r := Within(links, e.Route); r != e.Route {
		return paths.Entry{Address: e.Address, Route: r, Neighbour: e.Neighbour, Reason: r.Reason}
	}
	return e
}

// TooLarge adds the configuration's file to an error of lb.ErrTooLarge.
func TooLarge(cfg *config.Config, err error) error {
	if errors.Is(err, lb.ErrTooLarge) {
		return cfg.At("", "%v", err)
	}
	return err
}
