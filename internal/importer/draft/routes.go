// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"regexp"
	"slices"
	"strconv"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/remark"
	"github.com/jeoul/jeoul/internal/yamlfile"
)

// AddRoute appends a route of mode proxy that stands at a line.
func (s *Service) AddRoute(at remark.At, route lb.Route) {
	s.Proxy.Routes, s.RouteAt = append(s.Proxy.Routes, route), append(s.RouteAt, at)
}

// pruneRoutes takes backends that a service does not have out of its routes, and leaves out routes without one.
func (d *Draft) pruneRoutes(s *Service) {
	if s.Proxy == nil {
		return
	}
	for k := len(s.Proxy.Routes) - 1; k >= 0; k-- {
		route := &s.Proxy.Routes[k]
		route.Backends = slices.DeleteFunc(route.Backends, func(name string) bool {
			return !slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return b.Name == name })
		})
		if len(route.Backends) == 0 {
			d.Left(s.RouteAt[k], "none of the backends that it leads to could be carried over")
			s.removeRoute(k)
		}
	}
}

func (s *Service) removeRoute(k int) {
	s.Proxy.Routes, s.RouteAt = slices.Delete(s.Proxy.Routes, k, k+1), slices.Delete(s.RouteAt, k, k+1)
}

// routeProblem is the field of a problem that is of a route.
var routeProblem = regexp.MustCompile(`^services\[(\d+)\]\.proxy\.routes\[(\d+)\]`)

// dropRoutes leaves out the routes that have problems; false: there is none.
func (d *Draft) dropRoutes(problems yamlfile.Problems) bool {
	why := map[[2]int]string{}
	for _, problem := range problems {
		if match := routeProblem.FindStringSubmatch(problem.Field); match != nil {
			i, _ := strconv.Atoi(match[1])
			k, _ := strconv.Atoi(match[2])
			why[[2]int{i, k}] = problem.Message
		}
	}
	for i, s := range d.Services {
		for k := len(s.RouteAt) - 1; k >= 0; k-- {
			if message, bad := why[[2]int{i, k}]; bad {
				d.Left(s.RouteAt[k], "the route of the service %s would be refused: %s", s.Name, withoutPlace(message, d.Input))
				s.removeRoute(k)
			}
		}
	}
	return len(why) > 0
}
