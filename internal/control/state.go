// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/datapath"
	"github.com/jeoul/jeoul/internal/iface"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/paths"
)

// vips returns the VIPs of a configuration, each once, in its order.
func vips(cfg *config.Config) []netip.Addr {
	var all []netip.Addr
	for _, s := range cfg.Services {
		all = append(all, s.VIP)
	}
	return distinct(all)
}

// addresses returns what a configuration has on the first interface: its VIPs
// and the addresses of full NAT.
func addresses(cfg *config.Config) []netip.Addr {
	return distinct(append(vips(cfg), cfg.FullNAT.Addresses...))
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

// known returns what is known of the paths to a configuration's backends.
func (c *Controller) known(cfg *config.Config) map[netip.Addr]paths.Entry {
	entries, known := c.opt.Paths.Entries(), map[netip.Addr]paths.Entry{}
	for _, addr := range backendAddresses(cfg) {
		known[addr] = entries[addr]
	}
	return known
}

// samePath says whether two entries make the same path for the data plane, in
// every mode.
func samePath(a, b paths.Entry) bool {
	return a.Index == b.Index && bytes.Equal(a.MAC, b.MAC) && bytes.Equal(a.Source, b.Source) &&
		a.MTU == b.MTU && a.Local == b.Local && a.Fault == b.Fault && a.OnLink() == b.OnLink()
}

// reason says why a service's packets cannot take the path to a backend, and ""
// if they can. It is said of the backend, as in "does not answer ARP requests".
func reason(s lb.Service, e paths.Entry) string {
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

// misfit says what is wrong with a route, that is there, for a service's mode.
func misfit(s lb.Service, addr netip.Addr, r paths.Route) string {
	switch {
	case s.Mode == lb.L2DSR && r.Gateway.IsValid():
		return fmt.Sprintf("is behind the router %s, and %s reaches neighbours only", r.Gateway, s.Mode)
	case s.Mode.Tunnels() && r.Interface != "" && (!r.Local.IsValid() || r.Local.IsLinkLocalUnicast() && !addr.IsLinkLocalUnicast()):
		return fmt.Sprintf("cannot be sent tunnel packets: this host has no %s address on %s to send them from", family(addr), r.Interface)
	}
	return ""
}

func family(addr netip.Addr) string {
	if addr.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// stateOf puts a configuration and the paths together.
func stateOf(cfg *config.Config, known map[netip.Addr]paths.Entry) datapath.State {
	state := datapath.State{Services: make([]datapath.Service, len(cfg.Services))}
	for i, s := range cfg.Services {
		service := datapath.Service{Service: s, Paths: make([]datapath.Path, len(s.Backends))}
		for j, b := range s.Backends {
			if e := known[b.Address]; reason(s, e) == "" {
				service.Paths[j] = e.Path()
			}
		}
		state.Services[i] = service
	}
	if pool := cfg.FullNAT; len(pool.Addresses) > 0 {
		state.Pool = datapath.Pool{Addresses: pool.Addresses, FirstPort: pool.FirstPort, LastPort: pool.LastPort}
	}
	return state
}

// apply gives the data plane a configuration and what is known of its backends.
func (c *Controller) apply(cfg *config.Config) error {
	known := c.known(cfg)
	if err := c.opt.DataPlane.Apply(stateOf(cfg, known)); err != nil {
		return err
	}
	c.stale = false
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied = known
	c.generation++
	return nil
}

// describe says what a configuration asks for, and what is odd about it here.
func (c *Controller) describe(cfg *config.Config, warnings config.Problems) {
	for _, s := range cfg.Services {
		mode := string(s.Mode)
		if s.DSCP != 0 {
			mode = fmt.Sprintf("%s %d", s.Mode, s.DSCP)
		}
		c.opt.Log.Info(fmt.Sprintf("service %s: %s, %s, %s, backends: %d", s.Name, s.Key(), mode, s.Scheduler, len(s.Backends)))
	}
	for _, warning := range slices.Concat(cfg.Warnings, warnings) {
		c.opt.Log.Warn(warning.String())
	}
}

// told is a backend of which something is said once: another mode may reach the
// same address, or not.
type told struct {
	address netip.Addr
	mode    lb.Mode
}

// eachBackend calls f once for each address and mode, with the first backend
// that has them.
func eachBackend(cfg *config.Config, f func(told, lb.Service, lb.Backend)) {
	seen := map[told]bool{}
	for _, s := range cfg.Services {
		for _, b := range s.Backends {
			if t := (told{b.Address, s.Mode}); !seen[t] {
				seen[t] = true
				f(t, s, b)
			}
		}
	}
}

// place says where packets for an entry go: "" if nowhere.
func (c *Controller) place(s lb.Service, e paths.Entry) string {
	if reason(s, e) != "" {
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

// tellMoves says which backends were found, lost or moved since before.
func (c *Controller) tellMoves(before map[netip.Addr]paths.Entry) {
	eachBackend(c.cfg, func(t told, s lb.Service, b lb.Backend) {
		was, is := c.place(s, before[b.Address]), c.place(s, c.applied[b.Address])
		switch {
		case was == is:
		case was == "":
			delete(c.silent, t)
			c.opt.Log.Info(fmt.Sprintf("%s is at %s", who(s, b), is))
		case is == "":
			c.silent[t] = true
			c.tellLost(s, b)
		default:
			c.opt.Log.Info(fmt.Sprintf("%s has moved from %s to %s", who(s, b), was, is))
		}
	})
}

func who(s lb.Service, b lb.Backend) string {
	return fmt.Sprintf("backend %s (%s) of %s", b.Name, b.Address, s.Name)
}

func (c *Controller) tellLost(s lb.Service, b lb.Backend) {
	c.opt.Log.Warn(fmt.Sprintf("%s %s: no packets until that changes", who(s, b), reason(s, c.applied[b.Address])))
}

// reportSilent says, once each, which backends have not been found in a while.
func (c *Controller) reportSilent() {
	eachBackend(c.cfg, func(t told, s lb.Service, b lb.Backend) {
		e := c.applied[b.Address]
		if reason(s, e) == "" || c.silent[t] || c.excused(e) {
			return
		}
		c.silent[t] = true
		c.tellLost(s, b)
	})
}

// excused says whether an interface that is down, which was said, is the reason
// for what is missing.
func (c *Controller) excused(e paths.Entry) bool {
	return slices.ContainsFunc(c.links, func(link iface.State) bool {
		return !link.Up && (e.Fault != paths.None || e.Interface == "" || e.Interface == link.Name)
	})
}

// oneLine keeps a message with several lines together in a log.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
