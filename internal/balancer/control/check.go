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

// hostChecks validates configurations against the host.
type hostChecks struct{ *core }

// check validates a configuration against the host. The error is a yamlfile.Problems if something in the file cannot be
// used on this host; the warnings name settings that work but are probably not intended, and backends that are
// unreachable for now: Run adds them once routes and addresses allow it.
func (m *hostChecks) check(l *view.Layout, links []iface.State) (warnings yamlfile.Problems, err error) {
	cfg := l.Config
	routes, mistakes, unreached, err := m.lookup(l, links)
	if err != nil {
		return nil, err
	}
	mistakes = append(mistakes, m.checkChecks(l)...)
	mistakes = append(mistakes, m.findCgroup(l)...)
	if err := mistakes.Err(); err != nil {
		return nil, err
	}
	return slices.Concat(unreached, checkMTUs(cfg, routes), m.checkPorts(cfg, links)), nil
}

// lookup looks the backends up, and finds those that the services' modes do not reach. Where all are reached by the
// routes that are known, and nothing says that these have changed, the kernel is not asked again: the answer has an
// address for each of thousands of VIPs.
func (m *hostChecks) lookup(l *view.Layout, links []iface.State) (routes map[netip.Addr]paths.Route, mistakes,
	unreached yamlfile.Problems, err error) {
	routes, known := m.opt.Paths.KnownRoutes(l.Watched)
	for {
		if !known {
			if routes, err = m.opt.Paths.Lookup(l.Watched); err != nil {
				return nil, nil, nil, err
			}
		}
		for addr, r := range routes {
			routes[addr] = view.Within(links, r)
		}
		mistakes, unreached = checkRoutes(l.Config, links, routes)
		if !known || len(mistakes)+len(unreached) == 0 {
			return routes, mistakes, unreached, nil
		}
		known = false
	}
}

// findCgroup finds the control group whose sockets are served.
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

// checkRoutes finds backends that their services' modes cannot reach: mistakes, which only another address in the file
// can correct, and unreached backends, which wait for a route or an address of the host.
func checkRoutes(cfg *config.Config, links []iface.State, routes map[netip.Addr]paths.Route) (mistakes,
	unreached yamlfile.Problems) {
	down := slices.ContainsFunc(links, func(link iface.State) bool { return !link.Up })
	reaches := reachability(routes)
	for i := range cfg.Services {
		if reaches(&cfg.Services[i]) {
			continue
		}
		s, claimed := cfg.Services[i], false
		for j, b := range s.Backends {
			r := routes[b.Address]
			if view.SolicitsFromVIP(s, r) {
				if !claimed {
					mistakes = append(mistakes, cfg.At(config.ServiceField(i, "vip"), ownVIP, s.VIP, r.Interface,
						b.Name, b.Address, s.Mode))
				}
				claimed = true
				continue
			}
			if down && r.Fault.IsTransient() {
				continue // routes appear with the interface, which is logged as down
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

// reachability returns a predicate: true if a service reaches every backend by these routes, false if it may not. It
// caches the result per mode, because there are many backends, but few addresses and modes.
func reachability(routes map[netip.Addr]paths.Route) func(*lb.Service) bool {
	arpSources, reachable := map[netip.Addr]bool{}, map[lb.Mode]bool{}
	for _, r := range routes {
		arpSources[r.ARPSource] = true
	}
	return func(s *lb.Service) bool {
		if s.Mode.Proxied() { // the kernel routes to its backends
			return true
		}
		all, known := reachable[s.Mode]
		if !known {
			all = true
			for addr, r := range routes {
				all = all && r.Fault == paths.None && view.RouteProblem(lb.Service{Mode: s.Mode}, addr, r) == ""
			}
			reachable[s.Mode] = all
		}
		return all && !arpSources[s.VIP]
	}
}

// ownVIP is the error of a VIP that is the source address of the host's ARP requests for its backends.
const ownVIP = "%[1]s is the address from which this host sends its ARP requests on %[2]s: in %[5]s its backends have the VIP, too, and no host answers a request from an address of its own, so none of them would be found (%[3]s, %[4]s, for one). " +

	"Use an address for the VIP that is not this host's own, or give the interface another address in the backends' subnet and keep this one as a /32; or use mode nat or fullnat, whose backends do not have the VIP"

// unreachable returns why a service's packets do not reach a backend's address, and the remedy; "" if they do.
func unreachable(s lb.Service, addr netip.Addr, links []iface.State, r paths.Route) (reason, advice string) {
	problem := view.RouteProblem(s, addr, r)
	switch {
	case s.Mode.NeedsNeighbours() && r.Fault == paths.NoRoute:
		return fmt.Sprintf("is in no subnet of %s (%s), and %s reaches neighbours only", view.ListLinks(links),
				listSubnets(links, addr), s.Mode),
			"use an address there, or put the interface into the backend's subnet"
	case r.Fault != paths.None:
		return r.Reason, r.Advice
	case problem != "" && s.Mode.NeedsNeighbours():
		return problem, fmt.Sprintf("use %s or %s, or an address in a subnet of %s (%s)", lb.IPIP, lb.GUE,
			view.ListLinks(links), listSubnets(links, addr))
	case problem != "":
		return problem, "give the interface one"
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

// minIPv6MTU is the minimum MTU of IPv6 links (RFC 8200 section 5): senders need not send smaller packets, whatever
// Packet Too Big messages say.
const minIPv6MTU = 1280

// checkMTUs warns of tunnels whose MTU is too small for IPv6.
func checkMTUs(cfg *config.Config, routes map[netip.Addr]paths.Route) yamlfile.Problems {
	var warnings yamlfile.Problems
	for i := range cfg.Services {
		if cfg.Services[i].VIP.Is4() {
			continue
		}
		s := cfg.Services[i]
		for j, b := range s.Backends {
			r, over := routes[b.Address], s.Mode.Overhead(b.Address)
			if over == 0 || r.Fault != paths.None || r.MTU-over >= minIPv6MTU {
				continue
			}
			warnings = append(warnings, cfg.At(config.BackendField(i, j, "address"),
				"the path to %s through %s has an MTU of %d bytes, of which %s leaves %d, and IPv6 clients need not send packets smaller than %d; raise the MTU to %d",
				b.Address, r.Interface, r.MTU, s.Mode, r.MTU-over, minIPv6MTU, minIPv6MTU+over))
		}
	}
	return warnings
}

// checkPorts warns if an address of full NAT is also an address of the host, whose own connections may use the same
// ports: their replies would be dropped.
func (m *hostChecks) checkPorts(cfg *config.Config, links []iface.State) yamlfile.Problems {
	var warnings yamlfile.Problems
	pool := cfg.FullNAT
	for i, listed := range pool.Addresses {
		addr := listed.Address
		own := slices.Contains(m.view.Addresses, addr) && m.generation > 0
		if own || !hostHas(links, addr) {
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

// orNone returns the text of an address that may be absent.
func orNone(at netip.AddrPort) string {
	if !at.IsValid() {
		return "none"
	}
	return at.String()
}

// Ways to change what a reload cannot.
const (
	byRestart = "a restart"
	// byStop: HAProxy goes on over a restart.
	byStop = "a stop and a start (systemctl stop jeoul, systemctl start jeoul)"
)

// checkReload rejects changes of keys that need more than a reload.
func checkReload(before, after *config.Config) yamlfile.Problems {
	var problems yamlfile.Problems
	old, updated := before.Flows.Timeouts, after.Flows.Timeouts
	check := func(by string, fields ...reloadField) {
		for _, field := range fields {
			if field.before != field.after {
				problems = append(problems, after.At(field.name,
					"changed from %v to %v, which takes %s; nothing of the file was applied", field.before, field.after, by))
			}
		}
	}
	if hasProxied(before) && hasProxied(after) {
		check(byStop, reloadField{"proxy.program", cmp.Or(before.Proxy.Program, "the installed one"),
			cmp.Or(after.Proxy.Program, "the installed one")})
	}
	check(byRestart, append(membersFields(before.Members, after.Members), []reloadField{
		{"socket", before.Socket, after.Socket},
		{"metrics.listen", orNone(before.Metrics.Listen), orNone(after.Metrics.Listen)},
		{"metrics.backends", before.Metrics.Backends, after.Metrics.Backends},
		{"api.listen", orNone(before.API.Listen), orNone(after.API.Listen)},
		{"survive", before.Survive, after.Survive},
		{"orphan", before.Orphan, after.Orphan},
		{"flows.limit", before.Flows.Limit, after.Flows.Limit},
		{"flows.unproven", before.Flows.Unproven, after.Flows.Unproven},
		{"flows.timeouts.opening", old.Opening, updated.Opening},
		{"flows.timeouts.first", old.First, updated.First},
		{"flows.timeouts.established", old.Established, updated.Established},
		{"flows.timeouts.udp", old.UDP, updated.UDP},
		{"flows.timeouts.fin", old.Fin, updated.Fin},
		{"flows.timeouts.closed", old.Closed, updated.Closed},
	}...)...)
	return problems
}

// hasProxied reports whether a configuration has services of mode proxy, for which HAProxy runs.
func hasProxied(cfg *config.Config) bool {
	return slices.ContainsFunc(cfg.Services, func(s lb.Service) bool { return s.Mode.Proxied() })
}

// reloadField is a field that needs more than a reload to change, with its values before and after a reload.
type reloadField struct {
	name          string
	before, after any
}

// membersFields returns the fields of members that need a restart to change: all but the peers and the key.
func membersFields(before, after lb.MembersConfig) []reloadField {
	if !before.Listen.IsValid() || !after.Listen.IsValid() {
		return []reloadField{{"members", orNone(before.Listen), orNone(after.Listen)}}
	}
	fields := []reloadField{
		{"members.listen", before.Listen, after.Listen},
		{"members.name", cmp.Or(before.Name, "the host's"), cmp.Or(after.Name, "the host's")},
		{"members.hand_over", before.HandOver, after.HandOver},
	}
	if before.Listen.Port() == after.Listen.Port() { // flows_port follows it by default
		fields = append(fields, reloadField{"members.flows_port", before.FlowsAt(), after.FlowsAt()})
	}
	return fields
}

// checkChecks finds the checks that this host cannot run.
func (m *hostChecks) checkChecks(l *view.Layout) (problems yamlfile.Problems) {
	for i := range l.Config.Services {
		s := &l.Config.Services[i]
		if _, checked := m.view.HasService(i, s); checked && m.generation > 0 {
			continue
		}
		for k, check := range s.ResolvedChecks() {
			if why := m.opt.Checks.Unsupported(check); why != "" {
				problems = append(problems, l.Config.At(l.Config.CheckField(i, k), "%s", why))
			}
		}
	}
	return problems
}
