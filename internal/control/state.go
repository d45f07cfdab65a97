// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/datapath"
	"github.com/jeoul/jeoul/internal/iface"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/neigh"
)

// vips returns the VIPs of a configuration, each once, in its order.
func vips(cfg *config.Config) []netip.Addr {
	var all []netip.Addr
	for _, s := range cfg.Services {
		all = append(all, s.VIP)
	}
	return distinct(all)
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

// macs returns the MAC addresses of a configuration's backends, as far as they
// are known; as strings of 6 bytes, which compare.
func macs(cfg *config.Config, entries map[netip.Addr]neigh.Entry) map[netip.Addr]string {
	known := map[netip.Addr]string{}
	for _, addr := range backendAddresses(cfg) {
		if mac := entries[addr].MAC; len(mac) > 0 {
			known[addr] = string(mac)
		}
	}
	return known
}

// stateOf puts a configuration and MAC addresses together.
func stateOf(cfg *config.Config, own net.HardwareAddr, known map[netip.Addr]string) datapath.State {
	state := datapath.State{Services: make([]datapath.Service, len(cfg.Services))}
	for i, s := range cfg.Services {
		service := datapath.Service{Service: s, Paths: make([]datapath.Path, len(s.Backends))}
		for j, b := range s.Backends {
			if mac, ok := known[b.Address]; ok {
				service.Paths[j] = datapath.Path{MAC: net.HardwareAddr(mac), Source: own}
			}
		}
		state.Services[i] = service
	}
	return state
}

// apply gives the data plane a configuration and what is known of its backends.
func (c *Controller) apply(cfg *config.Config) error {
	known := macs(cfg, c.opt.Neighbours.Entries())
	if err := c.opt.DataPlane.Apply(stateOf(cfg, c.link.MAC, known)); err != nil {
		return err
	}
	c.stale = false
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied = known
	c.generation++
	return nil
}

// describe says what a configuration asks for.
func (c *Controller) describe(cfg *config.Config) {
	for _, s := range cfg.Services {
		c.opt.Log.Info(fmt.Sprintf("service %s: %s, %s, %s, backends: %d", s.Name, s.Key(), s.Mode, s.Scheduler, len(s.Backends)))
	}
	for _, warning := range cfg.Warnings {
		c.opt.Log.Warn(warning.String())
	}
}

// eachBackend calls f once for each backend address, with the first backend
// that has it.
func eachBackend(cfg *config.Config, f func(lb.Service, lb.Backend)) {
	seen := map[netip.Addr]bool{}
	for _, s := range cfg.Services {
		for _, b := range s.Backends {
			if !seen[b.Address] {
				seen[b.Address] = true
				f(s, b)
			}
		}
	}
}

// tellMoves says which backends were found, lost or moved since before.
func (c *Controller) tellMoves(before map[netip.Addr]string) {
	eachBackend(c.cfg, func(s lb.Service, b lb.Backend) {
		was, is := net.HardwareAddr(before[b.Address]), net.HardwareAddr(c.applied[b.Address])
		who := fmt.Sprintf("backend %s (%s) of %s", b.Name, b.Address, s.Name)
		switch {
		case was.String() == is.String():
		case len(was) == 0:
			delete(c.silent, b.Address)
			c.opt.Log.Info(fmt.Sprintf("%s is at %s", who, is))
		case len(is) == 0:
			c.silent[b.Address] = true
			c.opt.Log.Warn(fmt.Sprintf("%s has stopped answering %s: no packets until it does", who, discovery(b.Address)))
		default:
			c.opt.Log.Info(fmt.Sprintf("%s has moved from %s to %s", who, was, is))
		}
	})
}

// reportSilent says, once each, which backends have not been found in a while.
func (c *Controller) reportSilent() {
	if !c.link.Up {
		return // which was said, and is the reason
	}
	eachBackend(c.cfg, func(s lb.Service, b lb.Backend) {
		if _, known := c.applied[b.Address]; known || c.silent[b.Address] {
			return
		}
		c.silent[b.Address] = true
		c.opt.Log.Warn(fmt.Sprintf("backend %s (%s) of %s does not answer %s: no packets until it does; is it up, and on the segment of %s?",
			b.Name, b.Address, s.Name, discovery(b.Address), c.link.Name))
	})
}

// discovery names the protocol that finds an address's MAC.
func discovery(addr netip.Addr) string {
	if addr.Is4() {
		return "ARP"
	}
	return "neighbour discovery"
}

// oneLine keeps a message with several lines together in a log.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
