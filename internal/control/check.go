// SPDX-License-Identifier: Apache-2.0

package control

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/iface"
	"github.com/jeoul/jeoul/internal/lb"
)

// checkLink checks a configuration against the interface: layer 2 reaches only
// those backends that are neighbours.
func checkLink(cfg *config.Config, link iface.State) config.Problems {
	var problems config.Problems
	for i, s := range cfg.Services {
		if s.Mode != lb.L2DSR {
			continue
		}
		for j, b := range s.Backends {
			field := config.BackendField(i, j, "address")
			switch {
			case slices.ContainsFunc(link.Addresses, func(p netip.Prefix) bool { return p.Addr() == b.Address }):
				problems = append(problems, cfg.At(field, "%s is an address of this host's %s; a backend is another host", b.Address, link.Name))
			case !slices.ContainsFunc(link.Subnets, func(p netip.Prefix) bool { return p.Contains(b.Address) }):
				problems = append(problems, cfg.At(field, "%s is in no subnet of %s (%s), and %s reaches neighbours only; use an address there, or put the interface into the backend's subnet",
					b.Address, link.Name, listSubnets(link, b.Address), s.Mode))
			}
		}
	}
	return problems
}

// listSubnets names the interface's subnets of an address's family.
func listSubnets(link iface.State, addr netip.Addr) string {
	var list []string
	for _, p := range link.Subnets {
		if p.Addr().Is4() == addr.Is4() {
			list = append(list, p.String())
		}
	}
	if len(list) == 0 {
		return "it has none of this family"
	}
	return strings.Join(list, ", ")
}

// checkReload reports what only a restart can change.
func checkReload(before, after *config.Config) config.Problems {
	var problems config.Problems
	for _, field := range []struct {
		name          string
		before, after any
	}{
		{after.InterfaceField(), strings.Join(before.Interfaces, ", "), strings.Join(after.Interfaces, ", ")},
		{"hook", before.Hook, after.Hook},
		{"socket", before.Socket, after.Socket},
		{"table_size", before.TableSize, after.TableSize},
	} {
		if field.before != field.after {
			problems = append(problems, after.At(field.name, "changed from %v to %v, which takes a restart; nothing of the file was applied",
				field.before, field.after))
		}
	}
	return problems
}
