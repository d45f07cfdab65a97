// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/importer/draft"
	"github.com/jeoul/jeoul/internal/lb"
)

// serve makes the services of a section that listens: one for each address and port.
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
			place, err := r.place(at)
			if err != nil {
				r.Left(l.at, "%v", err)
				continue
			}
			r.service(s, l, place, front, back, servers)
		}
	}
	if !slices.ContainsFunc(s.lines, func(l line) bool { return l.is("bind") }) {
		r.Left(s.at, "listens nowhere (no bind)")
	}
}

// bindWhyNot says why clients that connect there cannot be served.
func (r *reader) bindWhyNot(s *section, l line) string {
	for i, word := range l.words {
		switch {
		case word == "interface" && i+1 < len(l.words):
			r.Arrives(l.words[i+1])
		case s.proxied: // see below
		case word == "ssl":
			return "TLS ends in HAProxy: " + needsProxy + "; or let the backends end it"
		case word == "accept-proxy", word == "accept-netscaler-cip":
			return "clients come by the PROXY protocol: " + needsProxy
		}
	}
	if s.proxied {
		return r.bindOfProxy(l)
	}
	return ""
}

// place reads where a service is.
func (r *reader) place(text string) (netip.AddrPort, error) {
	six := strings.HasPrefix(text, "ipv6@") || strings.HasPrefix(text, "[::]") || strings.HasPrefix(text, ":::")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "ipv4@"), "ipv6@")
	if strings.ContainsAny(text, "@/") {
		return netip.AddrPort{}, fmt.Errorf("%s is no address of IP", text)
	}
	host, port := draft.SplitPort(text)
	if i := strings.LastIndexByte(text, ':'); i >= 0 && port == "" { // :::80
		host, port = text[:i], text[i+1:]
	}
	if strings.Contains(port, "-") {
		return netip.AddrPort{}, fmt.Errorf("a range of ports; a service has one port: write one for each")
	}
	number, err := draft.Port("tcp", port)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" || host == "*" || host == "0.0.0.0" || host == "::" {
		vip, named := r.VIP(!six)
		if !named {
			return netip.AddrPort{}, fmt.Errorf("listens on every address; name the VIP by --vip")
		}
		return netip.AddrPortFrom(vip, number), nil
	}
	addr, err := r.Address(host)
	return netip.AddrPortFrom(addr, number), err
}

// service makes one.
func (r *reader) service(s *section, l line, place netip.AddrPort, front, back settings, servers []server) {
	service := r.NewService(l.at)
	service.Name, service.VIP, service.Port = s.name, place.Addr(), place.Port()
	if others := slices.ContainsFunc(s.lines, func(other line) bool { return other.is("bind") && other.at != l.at }); others || strings.Contains(l.words[1], ",") {
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
	service.Limits.Burst = (service.Limits.Rate + 9) / 10
	if service.Persistence.Timeout = back.persistenceOf(s.main); service.Persistence.On() {
		service.Persistence.Prefix = back.prefix.of(place.Addr().Is4())
	}
	if !s.proxied {
		service.MSS = r.segments(l)
	}
	service.Allow, service.Deny = draft.OfFamily(front.allow, place.Addr()), draft.OfFamily(front.deny, place.Addr())
	if len(front.allow) > 0 && len(service.Allow) == 0 {
		r.Left(l.at, "allows clients of the other family alone, so that no client is served")
		service.Backends = nil
		return
	}
	main := r.backends(service, s.main.name, back, servers)
	if s.proxied {
		if len(servers) > 0 {
			toServers(service, servers[0])
		}
		r.routes(service, s, main)
	}
	evenly(service)
	r.checks(service, back, servers)
}

// segments reads how large the segments of clients that connect there may be, 0 where it does not say.
func (r *reader) segments(l line) uint16 {
	i := slices.Index(l.words, "mss")
	if i < 0 || i+1 == len(l.words) {
		return 0
	}
	n, err := strconv.ParseUint(l.words[i+1], 10, 16)
	if err != nil || n < 536 || n > 65495 {
		r.Left(l.at, "mss %s is no number of bytes that Jeoul lowers an MSS to", l.words[i+1])
		return 0
	}
	return uint16(n)
}

// persistenceOf is that of a stick table that the section's clients are kept by.
func (set settings) persistenceOf(s *section) (timeout time.Duration) {
	if slices.ContainsFunc(s.lines, func(l line) bool {
		return l.is("stick", "on") && len(l.words) == 3 && clientKey.MatchString(l.words[2])
	}) {
		return set.persistence
	}
	return 0
}

// serversOf reads a section's servers, once.
func (r *reader) serversOf(s *section, set settings) []server {
	if s.servers == nil {
		s.servers = r.readServers(s, set)
	}
	return s.servers
}

// backends gives a service the servers of a section, and returns their names.
func (r *reader) backends(service *draft.Service, section string, back settings, servers []server) (names []string) {
	backups, joins := 0, newJoiner(service)
	for _, one := range servers {
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
				r.Approximate(one.at, "HAProxy takes the first backup alone where there is no option allbackups; here all backups share the connections")
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

// evenly has a service take turns where no weight differs.
func evenly(service *draft.Service) {
	if !slices.ContainsFunc(service.Backends, func(b lb.Backend) bool { return b.Weight != service.Backends[0].Weight }) && service.Scheduler == lb.WeightedRoundRobin {
		service.Scheduler = lb.RoundRobin
	}
}
