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

// WhyUnreachable says why a service's packets cannot take the path to a backend, and ""
// if they can. It is worded of the backend, as in "does not answer ARP requests".
func WhyUnreachable(s lb.Service, e *paths.Entry) string {
	if s.Mode.Proxied() { // whose ways are the kernel's
		return ""
	}
	switch wrong := Misfit(s, e.Address, e.Route); {
	case e.Fault != paths.None:
		return e.Reason
	case wrong != "":
		return wrong
	case e.MAC == nil && e.Reason == "":
		return "was not asked yet"
	}
	return e.Reason
}

// reached says whether packets of a service can be sent along a path to a backend. In mode proxy the kernel sends them,
// by ways that are not looked at here: health checks find their faults.
func reached(s lb.Service, p lb.Path) bool { return s.Mode.Proxied() || p.MAC != nil }

// Misfit returns the reason for which an existing route does not do for a service's mode; "" if it does.
func Misfit(s lb.Service, addr netip.Addr, r paths.Route) string {
	switch {
	case s.Mode.NeedsNeighbours() && r.Gateway.IsValid():
		return fmt.Sprintf("is behind the router %s, and %s reaches neighbours only", r.Gateway, s.Mode)
	case AsksFromVIP(s, r):
		return fmt.Sprintf(
			"does not answer ARP requests from the VIP %s, which this host asks from on %s and the backend has itself in %s", s.VIP, r.Interface, s.Mode)
	case s.Mode.Tunnels() && r.Interface != "" && (!r.Local.IsValid() || r.Local.IsLinkLocalUnicast() &&
		!addr.IsLinkLocalUnicast()):
		return fmt.Sprintf("cannot be sent tunnel packets: this host has no %s address on %s to send them from",
			family(addr), r.Interface)
	}
	return ""
}

// AsksFromVIP says whether the host asks for a service's backend by ARP from the VIP,
// where the backend has that address, too: the kernel there takes a request from an
// address of its own for a forgery, and does not answer (fib_validate_source in
// net/ipv4/fib_frontend.c). Nothing else about a VIP that is this host's own does harm:
// IPv6 solicits from a link-local address, and a router between does not have the VIP.
func AsksFromVIP(s lb.Service, r paths.Route) bool {
	return s.Mode.KeepsPort() && r.ARPSource.IsValid() && r.ARPSource == s.VIP
}

func family(addr netip.Addr) string {
	if addr.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// SameLink says whether two states are of one interface.
func SameLink(a, b iface.State) bool { return a.Index == b.Index }

// HasMoved says whether an interface has got another MAC address.
func HasMoved(before, now iface.State) bool { return before.MAC.String() != now.MAC.String() }

// ListLinks names the interfaces.
func ListLinks(links []iface.State) string {
	return strings.Join(LinkNames(links), ", ")
}

// LinkNames are the names of interfaces, in their order.
func LinkNames(links []iface.State) []string {
	names := make([]string, len(links))
	for i, link := range links {
		names[i] = link.Name
	}
	return names
}

// Offline says why no backend can be reached, or "". While one interface of several is up, it leads
// to some backends, and which of them the checks would reach is the routes' to say.
func Offline(links []iface.State) string {
	switch {
	case len(links) == 0 || slices.ContainsFunc(links, func(l iface.State) bool { return l.Up }):
		return ""
	case len(links) == 1:
		return fmt.Sprintf("interface %s is down", links[0].Name)
	}
	return fmt.Sprintf("interfaces %s are down", ListLinks(links))
}

// Within returns a route as it is for a balancer on these interfaces: while they change, paths
// are looked for by those before and after.
func Within(links []iface.State, r paths.Route) paths.Route {
	if r.Fault != paths.None || slices.ContainsFunc(links, func(l iface.State) bool { return l.Index == r.Index }) {
		return r
	}
	return paths.ViaOtherInterface(r.Interface, LinkNames(links))
}

// EntryWithin is within for a path entry of an address.
func EntryWithin(links []iface.State, e paths.Entry) paths.Entry {
	if e.Interface == "" {
		return e
	}
	if r := Within(links, e.Route); r != e.Route {
		return paths.Entry{Address: e.Address, Route: r, Neighbour: e.Neighbour, Reason: r.Reason}
	}
	return e
}

// TooLarge names the file whose configuration does not fit into memory.
func TooLarge(cfg *config.Config, err error) error {
	if errors.Is(err, lb.ErrTooLarge) {
		return cfg.At("", "%v", err)
	}
	return err
}
