// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestResources: the parts of a status as lists, of some services or all, and one by one.
func TestResources(t *testing.T) {
	requested := []ops.Check{{Check: "tcp", Via: lb.ViaAddress}}
	service := func(name string, backends ...ops.Backend) ops.Service {
		return ops.Service{Name: name, Protocol: lb.TCP, Mode: lb.L2DSR, Scheduler: lb.Maglev, Hash: lb.HashFlow,
			Checks: requested, Backends: backends}
	}
	healthy := &ops.Health{State: lb.Healthy, Checks: []ops.CheckResult{{State: lb.Healthy, Passed: 3}}}
	path, stop := serve(t, func() (ops.Status, error) {
		return ops.Status{Services: []ops.Service{
			service("web", ops.Backend{Name: "web01", State: lb.Up, Health: healthy},
				ops.Backend{Name: "web02", State: lb.Up}),
			service("a/b", ops.Backend{Name: "c d", State: lb.Up, Health: healthy}),
		}}, nil
	})
	defer stop()
	client := NewClient(path)
	for _, test := range []struct {
		names                      []string
		services, backends, checks int
	}{{nil, 2, 3, 2}, {[]string{"web"}, 1, 2, 1}, {[]string{"a/b", "web"}, 2, 3, 2}, {[]string{"other"}, 0, 0, 0}} {
		services, err := client.Services(t.Context(), test.names...)
		if err != nil || services == nil || len(services) != test.services {
			t.Errorf("services of %q: %v, %v", test.names, services, err)
		}
		backends, err := client.Backends(t.Context(), test.names...)
		if err != nil || backends == nil || len(backends) != test.backends {
			t.Errorf("backends of %q: %v, %v", test.names, backends, err)
		}
		checks, err := client.Checks(t.Context(), test.names...)
		if err != nil || checks == nil || len(checks) != test.checks {
			t.Errorf("checks of %q: %v, %v", test.names, checks, err)
		}
	}
	for path, code := range map[string]int{servicesPath + "/web": 200, servicesPath + "/shop": 404,
		pathOf("a/b", "c d"): 200, pathOf("web", "web09"): 404, pathOf("shop", "web01"): 404} {
		response, err := client.http.Get(client.base + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != code {
			t.Errorf("%s: %s, want %d (%s)", path, response.Status, code, http.StatusText(code))
		}
	}
}

// TestBackendsInStates: for the backends in a state, only the services that have one are computed.
func TestBackendsInStates(t *testing.T) {
	all := []ops.Service{
		{Name: "web", Backends: []ops.Backend{{Name: "web01", State: lb.Up}, {Name: "web02", State: lb.NoRoute}}},
		{Name: "dns", Backends: []ops.Backend{{Name: "dns01", State: lb.NoRoute}}},
		{Name: "shop", Backends: []ops.Backend{{Name: "shop01", State: lb.Up}}},
	}
	var computed []string
	b := Balancer{
		Status: func() (ops.Status, error) {
			computed = append(computed, "all")
			return ops.Status{Services: all}, nil
		},
		Services: func(names []string) ([]ops.Service, error) {
			computed = append(computed, names...)
			return ops.Status{Services: all}.ServicesNamed(names), nil
		},
		ServicesIn: func(states []lb.BackendState) (names []string) {
			for _, s := range all {
				if len(ops.BackendsOf([]ops.Service{s}, states...)) > 0 {
					names = append(names, s.Name)
				}
			}
			return names
		},
	}
	for _, test := range []struct {
		services, states, computed, backends []string
	}{
		{nil, []string{"no-route"}, []string{"web", "dns"}, []string{"web02", "dns01"}},
		{[]string{"dns", "shop"}, []string{"no-route"}, []string{"dns"}, []string{"dns01"}},
		{[]string{"shop"}, []string{"no-route"}, nil, nil},
		{nil, []string{"no-mac"}, nil, nil},
		{[]string{"shop"}, nil, []string{"shop"}, []string{"shop01"}},
		{nil, nil, []string{"all"}, []string{"web01", "web02", "dns01", "shop01"}},
	} {
		computed = nil
		list, err := b.backends(&BackendsParams{ServicesParams{test.services}, test.states})
		var names []string
		for _, one := range list {
			names = append(names, one.Name)
		}
		if err != nil || list == nil || !slices.Equal(names, test.backends) || !slices.Equal(computed, test.computed) {
			t.Errorf("services %q, states %q: backends %q, computed %q, %v; want %q, %q", test.services, test.states, names,
				computed, err, test.backends, test.computed)
		}
	}
}
