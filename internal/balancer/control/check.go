// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// hostChecks checks configurations against the machine.
type hostChecks struct{ *core }

// check checks a configuration against the machine. The error is a yamlfile.Problems if something in the file cannot be
// used on this host; the warnings name settings that work but are hardly meant, and backends that get no packets for
// now: those that can serve do, and Run brings the others in when routes and addresses allow it.
func (m *hostChecks) check(l *view.Layout, links []iface.State) (warnings yamlfile.Problems, err error) {
	cfg := l.Config
	routes, err := m.opt.Paths.Routes(l.Watched)
	if err != nil {
		return nil, err
	}
	for addr, r := range routes {
		routes[addr] = view.Within(links, r)
	}
	mistakes, unreached := checkRoutes(cfg, links, routes)
	mistakes = append(mistakes, m.checkChecks(l)...)
	mistakes = append(mistakes, m.findCgroup(l)...)
	if err := mistakes.Err(); err != nil {
		return nil, err
	}
	return slices.Concat(unreached, checkMTUs(cfg, routes), m.checkPorts(cfg, links)), nil
}

// findCgroup finds the control group whose sockets are to be served.
func (m *hostChecks) findCgroup(l *view.Layout) yamlfile.Problems {
	local := l.Config.Local
	if !local.On {
		return nil
	}
	if m.opt.Cgroup == nil {
		return yamlfile.Problems{l.Config.At("local", "this program does not serve clients on its own host")}
	}
	var err error
	if l.Cgroup, err = m.opt.Cgroup(local.Cgroup); err != nil {
		return yamlfile.Problems{l.Config.At(local.Field(), "%v", err)}
	}
	return nil
}

// checkRoutes finds backends that the services' modes do not reach: mistakes that only
// another address in the file mends, and those that are unreached until a route or an
// address of the host changes.
func checkRoutes(cfg *config.Config, links []iface.State, routes map[netip.Addr]paths.Route) (mistakes,
	unreached yamlfile.Problems) {
	down := slices.ContainsFunc(links, func(link iface.State) bool { return !link.Up })
	well := reaching(routes)
	for i := range cfg.Services {
		if well(&cfg.Services[i]) {
			continue
		}
		s, claimed := cfg.Services[i], false
		for j, b := range s.Backends {
			r := routes[b.Address]
			if view.AsksFromVIP(s, r) {
				if !claimed {
					mistakes = append(mistakes, cfg.At(config.ServiceField(i, "vip"), ownVIP, s.VIP, r.Interface,
						b.Name, b.Address, s.Mode))
				}
				claimed = true
				continue
			}
			if down && r.Fault.IsTransient() {
				continue // routes come with the interface, which is reported to be down
			}
			reason, advice := unreachable(s, b.Address, links, r)
			if reason == "" {
				continue
			}
			field := config.BackendField(i, j, "address")
			if r.Fault != paths.None && !r.Fault.IsTransient() {
				mistakes = append(mistakes, cfg.At(field, "%s %s; %s", b.Address, reason, advice))
				continue
			}
			unreached = append(unreached, cfg.At(field, "%s %s; %s. Until then it gets no packets", b.Address,
				reason, advice))
		}
	}
	return mistakes, unreached
}

// reaching returns a predicate: true if a service reaches every backend by these routes, which it knows without a look
// at each; false if it may not. There are many backends, and few addresses and modes.
func reaching(routes map[netip.Addr]paths.Route) func(*lb.Service) bool {
	asks, by := map[netip.Addr]bool{}, map[lb.Mode]bool{}
	for _, r := range routes {
		asks[r.ARPSource] = true
	}
	return func(s *lb.Service) bool {
		if s.Mode.Proxied() { // whose backends are the kernel's to find
			return true
		}
		all, known := by[s.Mode]
		if !known {
			all = true
			for addr, r := range routes {
				all = all && r.Fault == paths.None && view.Misfit(lb.Service{Mode: s.Mode}, addr, r) == ""
			}
			by[s.Mode] = all
		}
		return all && !asks[s.VIP]
	}
}

// ownVIP says why a VIP cannot be the address that the host asks for its backends from.
const ownVIP = "%[1]s is the address from which this host sends its ARP requests on %[2]s: in %[5]s its backends have the VIP, too, and no host answers a request from an address of its own, so none of them would be found (%[3]s, %[4]s, for one). " +

	"Use an address for the VIP that is not this host's own, or give the interface another address in the backends' subnet and keep this one as a /32; or use mode nat or fullnat, whose backends do not have the VIP"

// unreachable returns the reason for which a service's packets do not reach a backend's address, and the remedy; "" if
// they do.
func unreachable(s lb.Service, addr netip.Addr, links []iface.State, r paths.Route) (reason, advice string) {
	wrong := view.Misfit(s, addr, r)
	switch {
	case s.Mode.NeedsNeighbours() && r.Fault == paths.NoRoute:
		return fmt.Sprintf("is in no subnet of %s (%s), and %s reaches neighbours only", view.ListLinks(links),
				listSubnets(links, addr), s.Mode),
			"use an address there, or put the interface into the backend's subnet"
	case r.Fault != paths.None:
		return r.Reason, r.Advice
	case wrong != "" && s.Mode.NeedsNeighbours():
		return wrong, fmt.Sprintf("use %s or %s, or an address in a subnet of %s (%s)", lb.IPIP, lb.GUE,
			view.ListLinks(links), listSubnets(links, addr))
	case wrong != "":
		return wrong, "give the interface one"
	}
	return "", ""
}

// listSubnets names the interfaces' subnets of an address's family.
func listSubnets(links []iface.State, addr netip.Addr) string {
	var list []string
	for _, link := range links {
		for _, p := range link.Subnets {
			if p.Addr().Is4() == addr.Is4() {
				list = append(list, p.String())
			}
		}
	}
	if len(list) == 0 {
		return "there is none of this family"
	}
	return strings.Join(list, ", ")
}

// leastMTU is the MTU that every IPv6 link has at least (RFC 8200 section 5): senders need not go below it, however
// often they are told that a packet is too big.
const leastMTU = 1280

// checkMTUs warns of tunnels too narrow for IPv6.
func checkMTUs(cfg *config.Config, routes map[netip.Addr]paths.Route) yamlfile.Problems {
	var warnings yamlfile.Problems
	for i := range cfg.Services {
		if cfg.Services[i].VIP.Is4() {
			continue
		}
		s := cfg.Services[i]
		for j, b := range s.Backends {
			r, over := routes[b.Address], s.Mode.Overhead(b.Address)
			if over == 0 || r.Fault != paths.None || r.MTU-over >= leastMTU {
				continue
			}
			warnings = append(warnings, cfg.At(config.BackendField(i, j, "address"),
				"the way to %s by %s takes %d bytes, of which %s leaves %d, and IPv6 clients need not send less than %d; raise the MTU to %d",
				b.Address, r.Interface, r.MTU, s.Mode, r.MTU-over, leastMTU, leastMTU+over))
		}
	}
	return warnings
}

// checkPorts warns where an address of full NAT is one that the host sends from,
// and may use the same ports: replies to it would be dropped.
func (m *hostChecks) checkPorts(cfg *config.Config, links []iface.State) yamlfile.Problems {
	var warnings yamlfile.Problems
	pool := cfg.FullNAT
	for i, listed := range pool.Addresses {
		addr := listed.Address
		ours := slices.Contains(m.view.Addresses, addr) && m.generation > 0
		if ours || !hostHas(links, addr) {
			continue
		}
		value, err := m.opt.Host.Sysctl(view.PortRange)
		if err != nil {
			return append(warnings, cfg.At("fullnat.ports", "not compared with the host's own ports: %v", err))
		}
		var first, last uint16
		if _, err := fmt.Sscan(value, &first, &last); err != nil {
			return append(warnings, cfg.At("fullnat.ports", "not compared with the host's own ports: %s is %q",
				view.PortRange, value))
		}
		if first <= pool.LastPort && pool.FirstPort <= last {
			warnings = append(warnings, cfg.At(fmt.Sprintf("fullnat.addresses[%d]", i),
				"%s is an address of this host already, whose own connections take ports %d-%d (%s); use another address, or ports outside of these",
				addr, first, last, view.PortRange))
		}
	}
	return warnings
}

func hostHas(links []iface.State, addr netip.Addr) bool {
	return slices.ContainsFunc(links, func(link iface.State) bool {
		return slices.ContainsFunc(link.Addresses, func(p netip.Prefix) bool { return p.Addr() == addr })
	})
}

// orNone shows an address that may be absent.
func orNone(at netip.AddrPort) string {
	if !at.IsValid() {
		return "none"
	}
	return at.String()
}

// checkReload refuses changes of keys that need a restart.
func checkReload(before, after *config.Config) yamlfile.Problems {
	var problems yamlfile.Problems
	was, is := before.Flows.Timeouts, after.Flows.Timeouts
	for _, field := range append(membersFields(before.Members, after.Members), []reloadField{
		{"socket", before.Socket, after.Socket},
		{"metrics.listen", orNone(before.Metrics.Listen), orNone(after.Metrics.Listen)},
		{"metrics.backends", before.Metrics.Backends, after.Metrics.Backends},
		{"api.listen", orNone(before.API.Listen), orNone(after.API.Listen)},
		{"orphan", before.Orphan, after.Orphan},
		{"flows.limit", before.Flows.Limit, after.Flows.Limit},
		{"flows.unproven", before.Flows.Unproven, after.Flows.Unproven},
		{"flows.timeouts.opening", was.Opening, is.Opening},
		{"flows.timeouts.first", was.First, is.First},
		{"flows.timeouts.established", was.Established, is.Established},
		{"flows.timeouts.udp", was.UDP, is.UDP},
		{"flows.timeouts.fin", was.Fin, is.Fin},
		{"flows.timeouts.closed", was.Closed, is.Closed},
	}...) {
		if field.before != field.after {
			problems = append(problems,
				after.At(field.name, "changed from %v to %v, which takes a restart; nothing of the file was applied",
					field.before, field.after))
		}
	}
	return problems
}

// reloadField is a field that only a restart can change, with its values before and after a reload.
type reloadField struct {
	name          string
	before, after any
}

// membersFields are the fields of members that only a restart can change: all but the peers and the key.
func membersFields(before, after lb.MembersConfig) []reloadField {
	if !before.Listen.IsValid() || !after.Listen.IsValid() {
		return []reloadField{{"members", orNone(before.Listen), orNone(after.Listen)}}
	}
	fields := []reloadField{
		{"members.listen", before.Listen, after.Listen},
		{"members.name", cmp.Or(before.Name, "the host's"), cmp.Or(after.Name, "the host's")},
		{"members.hand_over", before.HandOver, after.HandOver},
	}
	if before.Listen.Port() == after.Listen.Port() { // which it follows by itself
		fields = append(fields, reloadField{"members.flows_port", before.FlowsAt(), after.FlowsAt()})
	}
	return fields
}

// checkChecks finds the checks that cannot be made on this host.
func (m *hostChecks) checkChecks(l *view.Layout) (problems yamlfile.Problems) {
	for i, s := range l.Config.Services {
		for k, check := range s.ResolvedChecks() {
			if why := m.opt.Checks.Unsupported(check); why != "" {
				problems = append(problems, l.Config.At(l.Config.CheckField(i, k), "%s", why))
			}
		}
	}
	return problems
}
