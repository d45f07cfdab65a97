// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// serve makes the services of a listening section, one for each address and port.
func (r *reader) serve(s *section) {
	to := s.main
	front, back := s.effective(), to.effective()
	servers := r.serversOf(to, back)
	if len(servers) == 0 {
		r.Left(to.at, "has no server that could be carried over")
	}
	for _, l := range s.lines {
		if !l.is("bind") || len(l.words) < 2 {
			continue
		}
		if why := r.bindWhyNot(s, l); why != "" {
			r.Left(l.at, "%s", why)
			continue
		}
		for at := range strings.SplitSeq(l.words[1], ",") {
			places, err := r.places(l, at)
			if err != nil {
				r.Left(l.at, "%v", err)
			}
			for _, place := range places {
				r.service(s, l, place, front, back, servers)
			}
		}
	}
	if !slices.ContainsFunc(s.lines, func(l line) bool { return l.is("bind") }) {
		r.Left(s.at, "listens nowhere (no bind)")
	}
}

// service makes one service of a section.
func (r *reader) service(s *section, l line, place netip.AddrPort, front, back settings, servers []server) {
	service := r.NewService(l.at)
	service.Name, service.VIP, service.Port = s.name, place.Addr(), place.Port()
	if others := slices.ContainsFunc(s.lines, func(other line) bool {
		return other.is("bind") && other.at != l.at
	}); others || strings.Contains(l.words[1], ",") {
		service.Name = fmt.Sprintf("%s-%d", s.name, place.Port())
	}
	service.Mode = lb.FullNAT
	if back.transparent {
		service.Mode = lb.NAT
	}
	if s.proxied {
		r.proxy(service, s, l, front, back)
	} else if s.http() {
		r.Approximate(l.at, "connections are balanced, not requests: all requests of a connection go to one backend")
	}
	r.schedule(service, back.balance)
	service.Limits.Connections, service.Limits.Rate = uint32(front.maxconn), uint32(front.rate)
	if n := l.mostConnections(); n > 0 && (service.Limits.Connections == 0 || n < uint64(service.Limits.Connections)) {
		service.Limits.Connections = uint32(n)
	}
	service.Limits.Burst = (service.Limits.Rate + 9) / 10
	if service.Persistence.Timeout = back.persistenceOf(s.main); service.Persistence.On() {
		service.Persistence.Prefix = back.prefix.of(place.Addr().Is4())
	}
	if !s.proxied {
		service.MSS = r.segments(l)
	}
	var noClients bool
	if service.Allow, service.Deny, noClients = draft.Access(place.Addr(), r.access(s)...); noClients {
		service.Unsafe = "no client of the VIP's family is served, which allow and deny cannot say"
		return
	}
	main := r.backends(service, s.main.name, back, servers)
	if service.Discovery = s.main.discovery; service.Discovery.On() && len(s.routes) > 0 {
		service.Unsafe = "routes name their backends, and those that are found in the DNS have no names yet: the requests of all routes would go to all backends"
	}
	if s.proxied {
		if len(servers) > 0 {
			toServers(service, servers[0])
		}
		r.routes(service, s, main)
	}
	evenly(service)
	r.checks(service, back, servers)
}

// persistenceOf returns the timeout of the stick table that keeps the section's clients on a server.
func (set settings) persistenceOf(s *section) (timeout time.Duration) {
	if slices.ContainsFunc(s.lines, func(l line) bool {
		return l.is("stick", "on") && len(l.words) == 3 && clientKey.MatchString(l.words[2])
	}) {
		return set.persistence
	}
	return 0
}

// serversOf returns a section's servers, and reads them on the first call.
func (r *reader) serversOf(s *section, set settings) []server {
	if s.servers == nil {
		s.servers = r.readServers(s, set)
	}
	return s.servers
}

// backends adds the servers of a section to a service, and returns the backends' names.
func (r *reader) backends(service *draft.Service, section string, back settings, servers []server) (names []string) {
	backups, joins := 0, newJoiner(service)
	for _, one := range servers {
		if one.template {
			continue
		}
		b, err := r.backend(one, service)
		if err != nil {
			r.Left(one.at, "%v", err)
			continue
		}
		if service.Mode == lb.ModeProxy {
			name, isNew := joins.join(section, &b)
			names = append(names, name)
			if !isNew {
				r.Approximate(one.at, "has the address and port of %s, and is one backend with it", name)
				continue
			}
		}
		if b.Backup {
			if backups++; backups == 2 && !back.allBackups {
				r.Approximate(one.at,
					"HAProxy takes the first backup alone where there is no option allbackups; here all backups share the connections")
			}
		}
		if one.slowStart > 0 {
			service.SlowStart = min(max(one.slowStart, service.SlowStart), time.Hour)
		}
		if one.closes {
			service.Checks.OnDown = lb.ResetFlows
		}
		service.Add(one.at, b)
		r.Carry(one.at)
	}
	return names
}

// evenly replaces weighted round robin by round robin where all weights are equal.
func evenly(service *draft.Service) {
	if !slices.ContainsFunc(service.Backends, func(b lb.Backend) bool {
		return b.Weight != service.Backends[0].Weight
	}) && service.Scheduler == lb.WeightedRoundRobin {
		service.Scheduler = lb.RoundRobin
	}
}
