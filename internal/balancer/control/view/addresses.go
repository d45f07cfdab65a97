// SPDX-License-Identifier: Apache-2.0

package view

import (
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/config"
)

// VIPsOf returns the VIPs of a configuration, each once, in its order.
func VIPsOf(cfg *config.Config) []netip.Addr {
	var all []netip.Addr
	for _, s := range cfg.Services {
		all = append(all, s.VIP)
	}
	return Distinct(all)
}

// addresses returns the addresses that a configuration puts on the first interface: its VIPs and those of full NAT.
// Other members' are among them only where the one that holds the VIPs holds them all.
func addresses(cfg *config.Config) []netip.Addr {
	pool := cfg.Pool()
	if cfg.VRRP.ID == 0 {
		pool.Others = nil
	}
	return Distinct(append(VIPsOf(cfg), pool.All()...))
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
	return Distinct(all)
}

// Distinct returns the addresses, each once, in the order in which they come first. It works in place.
func Distinct(addrs []netip.Addr) []netip.Addr {
	seen := make(map[netip.Addr]bool, len(addrs))
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool {
		again := seen[a]
		seen[a] = true
		return again
	})
}

// Without returns the addresses of all that are not in some.
func Without(all, some []netip.Addr) []netip.Addr {
	leave := make(map[netip.Addr]bool, len(some))
	for _, a := range some {
		leave[a] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return leave[a] })
}
