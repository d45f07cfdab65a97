// SPDX-License-Identifier: Apache-2.0

package view

import (
	"reflect"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
)

// DataPlaneState returns the state for the data plane: that of the view, without the services of mode proxy.
func (v *View) DataPlaneState() lb.State {
	state := v.State
	if len(v.Proxied) > 0 {
		state.Services = slices.DeleteFunc(slices.Clone(v.State.Services), func(s lb.RoutedService) bool {
			return s.Mode.Proxied()
		})
	}
	return state
}

// ProxyDesired returns the proxy engine's part of a view.
func (v *View) ProxyDesired() proxy.Desired {
	d := proxy.Desired{Engine: v.Config.Proxy}
	for _, i := range v.Proxied {
		if i < len(v.State.Services) { // there is no state before the first view
			d.Services = append(d.Services, v.proxyService(i))
		}
	}
	return d
}

// proxyService returns service i for the proxy engine. The state lacks the backends that are out; here they are in
// their places, because the engine ends their connections.
func (v *View) proxyService(i int) proxy.Service {
	configured, applied := &v.Config.Services[i], &v.State.Services[i]
	s := proxy.Service{Service: applied.Service, Observed: applied.Observed}
	if v.OverlayCounts[configured.Name] == 0 {
		return s
	}
	backends, observed, next := slices.Clone(configured.Backends), make(lb.Observations, len(configured.Backends)), 0
	for j, b := range configured.Backends {
		if o := v.OverlayOf(*configured, b); o.IsOut() {
			backends[j], s.Out = o.ApplyTo(b), append(s.Out, j)
			continue
		}
		backends[j], observed[j] = applied.Backends[next], applied.Observed.Of(next)
		next++
	}
	if len(s.Out) > 0 {
		s.Backends, s.Observed = backends, observed
	}
	return s
}

// RemovedServices returns the services that the next state does not have.
func RemovedServices(was, is proxy.Desired) (gone []proxy.Service) {
	for _, s := range was.Services {
		if !slices.ContainsFunc(is.Services, func(o proxy.Service) bool { return o.Key() == s.Key() }) {
			gone = append(gone, s)
		}
	}
	return gone
}

// SameDesired reports whether two desired states are equal. Within one layout, only backends change.
func SameDesired(a, b proxy.Desired, sameLayout bool) bool {
	if len(a.Services) != len(b.Services) || !sameLayout && !reflect.DeepEqual(a.Engine, b.Engine) {
		return false
	}
	for i := range a.Services {
		x, y := a.Services[i].Service, b.Services[i].Service
		if !slices.Equal(x.Backends, y.Backends) || !a.Services[i].Observed.Equal(b.Services[i].Observed) ||
			!slices.Equal(a.Services[i].Out, b.Services[i].Out) {
			return false
		}
		x.Backends, y.Backends = nil, nil
		if !sameLayout && !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
}
