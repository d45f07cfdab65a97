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
			s := &v.State.Services[i]
			d.Services = append(d.Services, proxy.Service{Service: s.Service, Observed: s.Observed})
		}
	}
	return d
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
		if !slices.Equal(x.Backends, y.Backends) || !a.Services[i].Observed.Equal(b.Services[i].Observed) {
			return false
		}
		x.Backends, y.Backends = nil, nil
		if !sameLayout && !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
}
