// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestUnhealthyBackends: a finding names the backend, the reason and the destination of its flows.
func TestUnhealthyBackends(t *testing.T) {
	ill := ops.Backend{Name: "web01", Weight: 1, State: lb.Unhealthy,
		Health: &ops.Health{State: lb.Failing, Reason: "answers with status 503"}}
	well := ops.Backend{Name: "web02", Weight: 1, State: lb.Up, Health: &ops.Health{State: lb.Healthy}}
	ejected := ops.Backend{Name: "web01", Weight: 1, State: lb.Ejected,
		Ejection: &ops.Ejection{Reason: "has answered 0 of 40 new connections in 5s"}}
	used := ill
	used.State = lb.Up
	for name, test := range map[string]struct {
		service ops.Service
		title   string
		means   string
	}{
		"all healthy": {ops.Service{Backends: []ops.Backend{well, {Name: "web03", Weight: 1, State: lb.Up}}}, "", ""},
		"one fails": {ops.Service{Backends: []ops.Backend{ill, well}},
			"The health checks of backend web/web01 fail: it answers with status 503", othersUsed + " " + flowsStay},
		"reset": {ops.Service{OnDown: lb.ResetFlows, Backends: []ops.Backend{ill, well}},
			"backend web/web01 fail", othersUsed + " " + flowsReset},
		"move": {ops.Service{OnDown: lb.MoveFlows, Backends: []ops.Backend{ill, well}}, "backend web/web01 fail",
			othersUsed + " " + flowsMove},
		"backups": {ops.Service{Serving: ops.ServingBackups, Backends: []ops.Backend{ill, well}},
			"backend web/web01 fail", backupsUsed + " " + flowsStay},
		"panic": {ops.Service{Serving: ops.ServingAll, Backends: []ops.Backend{used, used}},
			"The health checks of 2 backends fail, such as those of web/web01: it answers", allUsed},
		"none": {ops.Service{Backends: []ops.Backend{ill, {Name: "web03", State: lb.Up, Health: well.Health}}},
			"backend web/web01 fail", noneHealthy + " " + flowsStay},
		"ejected": {ops.Service{Backends: []ops.Backend{ejected, well}},
			"Backend web/web01 fails what clients send it: it has answered 0 of 40", othersUsed + " " + flowsStay},
		"spared": {ops.Service{Backends: []ops.Backend{{Name: "web01", State: lb.Up, Weight: 1,
			Spared: "no other backend serves"}}},
			"Backend web/web01 fails what clients send it: it is not ejected, for no other backend serves",
			sparedServes},
		"withdrawn": {ops.Service{Withdrawn: true, Backends: []ops.Backend{ill, ill}}, "2 backends fail", vipGone},
	} {
		t.Run(name, func(t *testing.T) {
			test.service.Name = "web"
			found := checkHealth(&ops.Status{Services: []ops.Service{test.service}})
			if test.title == "" {
				if len(found) > 0 {
					t.Errorf("found %+v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Kind != backendUnhealthy || !strings.Contains(found[0].Title, test.title) ||
				found[0].Means != test.means {
				t.Errorf("found %+v, expected %q, %q", found, test.title, test.means)
			}
		})
	}
}
