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
// Those of other members are among them only with VRRP, where the active balancer holds them all.
func addresses(cfg *config.Config) []netip.Addr {
	pool := cfg.Pool()
	if cfg.VRRP.ID == 0 {
		pool.Others = nil
	}
	return Distinct(append(VIPsOf(cfg), pool.All()...))
}

// backendAddresses returns the addresses of a configuration's backends, each once, in its order.
func backendAddresses(cfg *config.Config) []netip.Addr {
	var all []netip.Addr
	for _, s := range cfg.Services {
		for _, b := range s.Backends {
			all = append(all, b.Address)
		}
	}
	return Distinct(all)
}

// Distinct removes duplicate addresses in place, and keeps the order.
func Distinct(addrs []netip.Addr) []netip.Addr {
	seen := make(map[netip.Addr]bool, len(addrs))
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool {
		again := seen[a]
		seen[a] = true
		return again
	})
}

// Without returns the addresses of all that are not in excluded.
func Without(all, some []netip.Addr) []netip.Addr {
	excluded := make(map[netip.Addr]bool, len(some))
	for _, a := range some {
		excluded[a] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return excluded[a] })
}
