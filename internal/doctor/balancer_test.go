// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/api"
	"github.com/jeoul/jeoul/internal/lb"
)

// TestWithoutBackend: what a dead backend means depends on what its service goes by.
func TestWithoutBackend(t *testing.T) {
	service := func(name string, scheduler lb.Scheduler, tracked bool, states ...api.State) api.Service {
		s := api.Service{Name: name, Protocol: lb.TCP, Scheduler: scheduler, Tracked: tracked}
		for i, state := range states {
			s.Backends = append(s.Backends, api.Backend{Name: string('a' + rune(i)), State: state, Reason: "has no route"})
		}
		return s
	}
	udp := service("dns", lb.Maglev, false, api.NoMAC, api.Up)
	udp.Protocol = lb.UDP
	tests := map[string]struct {
		services []api.Service
		want     string
	}{
		"all up":      {[]api.Service{service("web", lb.Maglev, false, api.Up, api.Up)}, ""},
		"maglev":      {[]api.Service{service("web", lb.Maglev, false, api.NoMAC, api.Up)}, hashedAnew},
		"sh":          {[]api.Service{service("web", lb.SourceHash, false, api.Up, api.NoRoute)}, hashedAnew},
		"UDP":         {[]api.Service{udp}, hashedUDP},
		"limits":      {[]api.Service{service("web", lb.Maglev, true, api.NoMAC, api.Up)}, rememberedDead},
		"first of fo": {[]api.Service{service("web", lb.Failover, false, api.NoMAC, api.Up)}, nextTakesOver},
		"next of fo":  {[]api.Service{service("web", lb.Failover, true, api.Up, api.NoMAC)}, notItsTurn},
		"none left":   {[]api.Service{service("web", lb.RoundRobin, true, api.NoMAC, api.Draining, api.NoRoute)}, noneLeft},
		"several": {[]api.Service{service("web", lb.Maglev, false, api.NoMAC, api.Up), service("shop", lb.RoundRobin, true, api.NoMAC, api.Up), service("db", lb.Maglev, false, api.NoMAC, api.NoMAC, api.Up)},
			"web, db: " + hashedAnew + " shop: " + rememberedDead},
	}
	for _, scheduler := range lb.Schedulers {
		if scheduler.Remembers() {
			test := tests["limits"]
			test.services = []api.Service{service("web", scheduler, true, api.NoMAC, api.Up)}
			tests[string(scheduler)] = test
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, f := range judgeStates(&api.Status{Services: test.services}) {
				if f.Kind != backendDown {
					t.Errorf("kind %s", f.Kind)
				}
				got += f.Means
			}
			if got != test.want {
				t.Errorf("means %q, want %q", got, test.want)
			}
			if strings.Contains(got, "carry its share") {
				t.Errorf("%q is not so for every scheduler", got)
			}
		})
	}
}
