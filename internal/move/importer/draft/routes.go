// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/remark"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// AddRoute appends a route of mode proxy with its line.
func (s *Service) AddRoute(at remark.At, route lb.Route) {
	s.Proxy.Routes, s.RouteAt = append(s.Proxy.Routes, route), append(s.RouteAt, at)
}

// pruneRoutes removes backends that a service does not have from its routes. A service with a route that has no backend
// left is left out: the route's requests would go where the input does not send them.
func (d *Draft) pruneRoutes() {
	d.Services = slices.DeleteFunc(d.Services, func(s *Service) bool {
		if s.Proxy == nil {
			return false
		}
		for k := range s.Proxy.Routes {
			route := &s.Proxy.Routes[k]
			route.Backends = slices.DeleteFunc(route.Backends, func(name string) bool {
				return !slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return b.Name == name })
			})
			if len(route.Backends) == 0 {
				d.Left(s.RouteAt[k], "none of the backends that it leads to could be carried over")
				d.abandon(s, "a route of the service, at "+s.RouteAt[k].String()+
					", could not be carried over, and its requests would go to other backends")
				return true
			}
		}
		return false
	})
}

// abandon leaves out a service that was read.
func (d *Draft) abandon(s *Service, why string) {
	d.Left(s.At, "%s", why)
	d.dropped = append(d.dropped, s)
}

func (s *Service) removeRoute(k int) {
	s.Proxy.Routes, s.RouteAt = slices.Delete(s.Proxy.Routes, k, k+1), slices.Delete(s.RouteAt, k, k+1)
}

// routeProblem matches the field of a problem in a route.
var routeProblem = regexp.MustCompile(`^services\[(\d+)\]\.proxy\.routes\[(\d+)\]`)

// dropRoutes leaves out the routes that no request reaches, and the services of other routes that have problems; false:
// no route has a problem.
func (d *Draft) dropRoutes(problems yamlfile.Problems) bool {
	why := map[[2]int]string{}
	for _, problem := range problems {
		if match := routeProblem.FindStringSubmatch(problem.Field); match != nil {
			i, _ := strconv.Atoi(match[1])
			k, _ := strconv.Atoi(match[2])
			why[[2]int{i, k}] = problem.Message
		}
	}
	var kept []*Service
	for i, s := range d.Services {
		safe := true
		for k := len(s.RouteAt) - 1; k >= 0; k-- {
			message, bad := why[[2]int{i, k}]
			if !bad {
				continue
			}
			d.Left(s.RouteAt[k], "the route of the service %s would be refused: %s", s.Name,
				withoutPlace(message, d.Input))
			safe = safe && unreached.MatchString(message)
			s.removeRoute(k)
		}
		if !safe {
			d.abandon(s, "a route of the service could not be carried over, and its requests would go to other backends")
			continue
		}
		kept = append(kept, s)
	}
	d.Services = kept
	return len(why) > 0
}

// unreached matches the problem of a route that no request reaches. Without such a route, all requests go where they go
// with it.
var unreached = regexp.MustCompile(`^no request for .* gets here|is the earlier route's already`)

// unroutedVariable is the HAProxy variable that is set when a request takes a route.
const unroutedVariable = "txn.routed"

// RefuseUnrouted makes a service of mode proxy answer requests that take no route by line, a rule of HAProxy without
// its condition.
func (s *Service) RefuseUnrouted(line string) {
	for _, route := range s.Proxy.Routes {
		for _, condition := range routeConditions(route) {
			s.AddFrontend("http-request set-var(" + unroutedVariable + ") bool(true) if " + condition)
		}
	}
	s.AddFrontend(line + " unless { var(" + unroutedVariable + ") -m bool }")
}

// AddFrontend appends a line in HAProxy's language to the service's lines for clients.
func (s *Service) AddFrontend(line string) {
	s.Proxy.Frontend = strings.TrimPrefix(s.Proxy.Frontend+"\n"+line, "\n")
}

// routeConditions returns the HAProxy conditions of a route, the same ones that the proxy engine generates. A request
// takes the route if one of them holds.
func routeConditions(r lb.Route) []string {
	var whole, below []string
	for _, p := range r.Paths {
		if p == "/" {
			whole, below = nil, nil
			break
		}
		whole, below = append(whole, p), append(below, p+"/")
	}
	hosts, paths := HostConditions(r.Hosts), slices.Concat(alternatives("path -m str --", whole),
		alternatives("path -m beg --", below))
	switch {
	case len(hosts) == 0 && len(paths) == 0:
		return []string{"TRUE"}
	case len(hosts) == 0:
		return paths
	case len(paths) == 0:
		return hosts
	}
	var all []string
	for _, host := range hosts {
		for _, path := range paths {
			all = append(all, host+" "+path)
		}
	}
	return all
}

// HostConditions returns HAProxy conditions on the host of a request, one of which must hold. A host is a name, or "*."
// and a name for all names below it.
func HostConditions(hosts []string) []string {
	var exact, below []string
	for _, h := range hosts {
		if rest, isWildcard := strings.CutPrefix(h, "*"); isWildcard {
			below = append(below, rest)
		} else {
			exact = append(exact, h)
		}
	}
	const host = "req.hdr(host),host_only,lower -m "
	return slices.Concat(alternatives(host+"str --", exact), alternatives(host+"end --", below))
}

// alternatives makes conditions of patterns, with as many patterns in each as fit in HAProxy's longest line.
func alternatives(sample string, patterns []string) (all []string) {
	for some := range slices.Chunk(patterns, 20) {
		all = append(all, "{ "+sample+" "+strings.Join(some, " ")+" }")
	}
	return all
}
