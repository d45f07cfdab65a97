// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// entry is the destination of requests for a host, and for paths below one.
type entry struct {
	// host is empty for all, and path for all of them.
	host, path string
	backends   []lb.Backend
	// status is the answer if there is no backend: 500 if no backend of the route exists, 503 if it has no endpoint.
	status int
	from   *attachment
}

// addHTTP makes the service of the listeners for HTTP, or HTTPS, of one port.
func (b *builder) addHTTP(g *ownGateway, list []*listener, addr netip.Addr) {
	port := list[0].port()
	s := lb.Service{Name: serviceName(g, port, addr), VIP: addr, Port: port.Number, Protocol: lb.TCP,
		Mode:      lb.ModeProxy,
		Scheduler: lb.WeightedRoundRobin, AllowEmpty: true, Checks: model.PodChecks(lb.TCP),
		Proxy: &lb.Proxy{Speaks: lb.SpeaksHTTP}}
	var entries []entry
	for _, l := range list {
		l.services = append(l.services, s.Name)
		for _, file := range l.certificates {
			if path := filepath.Join(b.settings.Certificates, file); !slices.Contains(s.Proxy.Certificates, path) {
				s.Proxy.Certificates = append(s.Proxy.Certificates, path)
			}
		}
		for _, a := range l.attached {
			entries = append(entries, b.entriesOf(l, a, pools.FamilyOf(addr))...)
		}
	}
	entries = sortEntries(entries)
	s.Backends = joinBackends(entries)
	var lines strings.Builder
	for i, e := range entries {
		e.writeCondition(&lines, i)
		if len(e.backends) > 0 {
			s.Proxy.Routes = append(s.Proxy.Routes, e.route(s.Backends))
		}
	}
	writeAnswers(&lines, entries)
	s.Proxy.Frontend = lines.String()
	b.services = append(b.services, s)
}

// entriesOf returns the entries of a route at a listener.
func (b *builder) entriesOf(l *listener, a *attachment, family pools.Family) (list []entry) {
	hosts, _ := l.hostnamesOf(a.route)
	for i := range a.route.http {
		rule := &a.route.http[i]
		if !checkRule(rule, i).ok() {
			continue
		}
		all, problem := b.resolve(a.route, backendRefs(rule), corev1.ProtocolTCP, family)
		made := entry{backends: distributeWeights(all), from: a, status: 503}
		if !problem.ok() || len(rule.BackendRefs) == 0 {
			made.status = 500
		}
		made.backends = slices.DeleteFunc(made.backends, func(b lb.Backend) bool { return b.Draining })
		matches := rule.Matches
		if len(matches) == 0 {
			matches = []v1.HTTPRouteMatch{{}}
		}
		for _, host := range hosts {
			for j := range matches {
				made.host, made.path = host, pathOf(&matches[j])
				list = append(list, made)
			}
		}
	}
	return list
}

// pathOf returns the beginning of the paths that a match is for, without a slash at its end.
func pathOf(m *v1.HTTPRouteMatch) string {
	if m.Path == nil {
		return ""
	}
	return strings.TrimRight(valueOr(m.Path.Value, "/"), "/")
}

// sortEntries sorts entries by precedence: the most specific host first, then the longest path, then the oldest route.
// Of two for the same requests, the first is kept.
func sortEntries(list []entry) []entry {
	slices.SortStableFunc(list, func(a, b entry) int {
		return cmp.Or(cmp.Compare(hostRank(b.host), hostRank(a.host)), strings.Compare(a.host, b.host),
			cmp.Compare(len(b.path), len(a.path)),
			strings.Compare(a.path, b.path), a.from.route.created().Compare(b.from.route.created()),
			strings.Compare(a.from.route.name(), b.from.route.name()))
	})
	return slices.CompactFunc(list, func(a, b entry) bool { return a.host == b.host && a.path == b.path })
}

// hostRank is higher for names than for wildcards, and among each for longer ones.
func hostRank(host string) int {
	const names = 1000 // longer than a name can be
	if host == "" || strings.HasPrefix(host, "*") {
		return len(host)
	}
	return names + len(host)
}

// joinBackends returns the backends of all entries, each endpoint once, with the weight of its first entry. A later
// entry with another weight is reported as unsupported.
func joinBackends(entries []entry) (list []lb.Backend) {
	at, names := map[netip.AddrPort]int{}, model.BackendNames{}
	for _, e := range entries {
		for _, b := range e.backends {
			endpoint := netip.AddrPortFrom(b.Address, b.Port)
			if i, duplicate := at[endpoint]; duplicate {
				if list[i].Weight != b.Weight && len(e.backends) > 1 && e.from.parent.partial.ok() {
					e.from.parent.partial = refused(v1.RouteReasonUnsupportedValue,
						"spec.rules: a Service has the same weight in all rules of a port; %s has another already",
						b.Name)
				}
				continue
			}
			at[endpoint] = len(list)
			b.Name = names.Assign(b.Name, endpoint.String())
			list = append(list, b)
		}
	}
	return list
}

// route returns the route of an entry to backends of the service.
func (e *entry) route(all []lb.Backend) lb.Route {
	var r lb.Route
	if e.host != "" {
		r.Hosts = []string{e.host}
	}
	if e.path != "" {
		r.Paths = []string{e.path}
	}
	for _, b := range e.backends {
		i := slices.IndexFunc(all, func(o lb.Backend) bool { return o.Address == b.Address && o.Port == b.Port })
		r.Backends = append(r.Backends, all[i].Name)
	}
	return r
}

// matchedVariable is the variable of HAProxy for the number of the first entry that a request matches.
const matchedVariable = "txn.gateway_rule"

// writeCondition writes the lines by which HAProxy notes the first entry that a request matches.
func (e *entry) writeCondition(lines *strings.Builder, i int) {
	rule := fmt.Sprintf("http-request set-var(%s) int(%d) if !{ var(%s) -m found }", matchedVariable, i, matchedVariable)
	if host, wildcard := strings.CutPrefix(e.host, "*"); wildcard {
		rule += " { req.hdr(host),host_only,lower -m end -- " + host + " }"
	} else if host != "" {
		rule += " { req.hdr(host),host_only,lower -m str -- " + host + " }"
	}
	if e.path != "" {
		fmt.Fprintf(lines, "acl gateway_path%d path -m str -- %s\nacl gateway_path%d path -m beg -- %s/\n",
			i, e.path, i,
			e.path)
		rule += fmt.Sprintf(" gateway_path%d", i)
	}
	lines.WriteString(rule + "\n")
}

// writeAnswers writes the lines by which HAProxy answers requests that match no entry, or an entry without backends.
func writeAnswers(lines *strings.Builder, entries []entry) {
	answer := func(status int, condition string) {
		fmt.Fprintf(lines, "http-request return status %d %s\n", status, condition)
	}
	if len(entries) == 0 {
		answer(404, "if TRUE")
		return
	}
	answer(404, "if !{ var("+matchedVariable+") -m found }")
	for i, e := range entries {
		if len(e.backends) == 0 {
			answer(e.status, fmt.Sprintf("if { var(%s) -m int %d }", matchedVariable, i))
		}
	}
}
