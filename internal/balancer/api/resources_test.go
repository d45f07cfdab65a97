// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
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
