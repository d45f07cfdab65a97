// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// template reads a server-template, whose addresses HAProxy looks up at run time. The section's backends then come from
// the DNS.
func (r *reader) template(s *section, l line, set settings) (one server, ok bool) {
	if len(l.words) < 4 {
		r.Left(l.at, "servers of a template have a prefix, a number and a name")
		return one, false
	}
	_, last, isRange := strings.Cut(l.words[2], "-")
	if !isRange {
		last = l.words[2]
	}
	most, _, err := draft.Number(last, 1<<15-1)
	if err != nil || most == 0 {
		r.Left(l.at, "%s is no number of servers", l.words[2])
		return one, false
	}
	return r.looked(s, line{at: l.at, words: slices.Concat([]string{"server", l.words[1], l.words[3]}, l.words[4:])},
		set, uint32(most))
}

// byName reports whether a server has a host name that HAProxy looks up at run time and the import does not look up.
func (r *reader) byName(one server) bool {
	host, _ := draft.SplitPort(one.address)
	_, err := netip.ParseAddr(host)
	return err != nil && one.resolvers != "" && r.Resolve == nil
}

// looked makes a section discover up to most backends in the DNS, from a server line.
func (r *reader) looked(s *section, l line, set settings, most uint32) (one server, ok bool) {
	one = server{at: l.at, name: l.words[1], address: l.words[2], backend: lb.Backend{Weight: 1}, template: true}
	if err := one.parse(slices.Concat(set.server, l.words[3:])); err != nil {
		r.Left(l.at, "%v", err)
		return one, false
	}
	name, port := draft.SplitPort(one.address)
	d := lb.DNSOrigin{Name: name, OriginLimits: lb.OriginLimits{Max: most}, Servers: r.nameServers(one.resolvers),
		Hold: r.holdObsolete(one.resolvers)}
	switch {
	case s.discovery.DNS.Name != "":
		r.Left(l.at, "a service finds its backends by one name, and %s is that of another line", s.discovery.DNS.Name)
		return one, false
	case len(d.Servers) == 0 && one.resolvers != "" && !r.resolvConf(one.resolvers):
		r.Left(l.at, "the section resolvers %s names no name server that could be carried over", one.resolvers)
		return one, false
	case strings.HasPrefix(name, "_"):
		d.Type = "SRV"
	case port != "":
		number, err := draft.Port("tcp", port)
		if err != nil {
			r.Left(l.at, "%v", err)
			return one, false
		}
		d.Port = number
	}
	if one.backend != (lb.Backend{Weight: 1}) {
		r.Left(l.at, "backends that are found in the DNS have no weight, bound or role of their own, but those of SRV records")
	}
	s.discovery.DNS = d
	r.Approximate(l.at, "becomes discover: the name is asked for again when its answer's TTL has passed")
	return one, true
}

// nameServers returns the name servers of a section resolvers.
func (r *reader) nameServers(name string) (list []netip.AddrPort) {
	s := r.named("resolvers", name)
	if s == nil || name == "" {
		return nil
	}
	s.carried = true
	for _, l := range s.lines {
		if !l.is("nameserver") || len(l.words) < 3 {
			continue
		}
		host, port := draft.SplitPort(strings.TrimPrefix(l.words[2], "udp@"))
		addr, err := netip.ParseAddr(host)
		number, portErr := draft.Port("udp", port)
		if err == nil && portErr == nil && len(list) < 8 {
			list = append(list, netip.AddrPortFrom(addr, number))
		}
	}
	return list
}

// maxHold is the longest time for which discover holds a backend.
const maxHold = 30 * 24 * time.Hour

// holdObsolete returns for how long a section resolvers keeps a server that answers no longer have.
func (r *reader) holdObsolete(name string) (hold time.Duration) {
	s := r.named("resolvers", name)
	if s == nil {
		return 0
	}
	for _, l := range s.lines {
		if d, ok := holdOf(l); ok {
			hold = min(d, maxHold)
		}
	}
	return hold
}

// holdOf returns the time of a line "hold obsolete".
func holdOf(l line) (hold time.Duration, ok bool) {
	if !l.is("hold") || len(l.words) < 3 || l.words[1] != "obsolete" {
		return 0, false
	}
	d, err := draft.Time(l.words[2], time.Millisecond)
	return d, err == nil
}

// resolvConf reports whether a section resolvers uses the name servers of /etc/resolv.conf, which discover uses by
// default.
func (r *reader) resolvConf(name string) bool {
	s := r.named("resolvers", name)
	return s != nil && slices.ContainsFunc(s.lines, func(l line) bool { return l.is("parse-resolv-conf") })
}

// resolvers reads a section resolvers, and remarks on the lines that have no effect.
func (r *reader) resolvers(s *section) {
	if !s.carried {
		r.Needless(s.at, "no server that is carried over is looked up by it")
		for _, l := range s.lines {
			r.Needless(l.at, "of the section at %s, which is not needed", s.at)
		}
		return
	}
	r.Carry(s.at)
	for _, l := range s.lines {
		_, held := holdOf(l)
		switch {
		case held, l.is("nameserver"), l.is("parse-resolv-conf"):
			r.Carry(l.at)
		default:
			r.Approximate(l.at,
				"a name is asked for again when its answer's TTL has passed, and the last answer is used for as long as discover.dns.stale says")
		}
	}
}
