// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestWithoutBackend: the consequences of a dead backend depend on its service's scheduler.
func TestWithoutBackend(t *testing.T) {
	service := func(name string, scheduler lb.Scheduler, tracked bool, states ...lb.BackendState) ops.Service {
		s := ops.Service{Name: name, Protocol: lb.TCP, Scheduler: scheduler, Tracked: tracked}
		for i, state := range states {
			s.Backends = append(s.Backends, ops.Backend{Name: string('a' + rune(i)), State: state,
				Reason: "has no route"})
		}
		return s
	}
	udp := service("dns", lb.Maglev, false, lb.NoMAC, lb.Up)
	udp.Protocol = lb.UDP
	tests := map[string]struct {
		services []ops.Service
		want     string
	}{
		"all up":      {[]ops.Service{service("web", lb.Maglev, false, lb.Up, lb.Up)}, ""},
		"maglev":      {[]ops.Service{service("web", lb.Maglev, false, lb.NoMAC, lb.Up)}, hashedAnew},
		"sh":          {[]ops.Service{service("web", lb.SourceHash, false, lb.Up, lb.NoRoute)}, hashedAnew},
		"UDP":         {[]ops.Service{udp}, hashedUDP},
		"limits":      {[]ops.Service{service("web", lb.Maglev, true, lb.NoMAC, lb.Up)}, rememberedDead},
		"first of fo": {[]ops.Service{service("web", lb.Failover, false, lb.NoMAC, lb.Up)}, nextTakesOver},
		"next of fo":  {[]ops.Service{service("web", lb.Failover, true, lb.Up, lb.NoMAC)}, notItsTurn},
		"none left": {[]ops.Service{service("web", lb.RoundRobin, true, lb.NoMAC, lb.Draining, lb.NoRoute)},
			noneLeft},
		"several": {[]ops.Service{service("web", lb.Maglev, false, lb.NoMAC, lb.Up),
			service("shop", lb.RoundRobin, true, lb.NoMAC, lb.Up),
			service("db", lb.Maglev, false, lb.NoMAC, lb.NoMAC, lb.Up)},
			"web, db: " + hashedAnew + " shop: " + rememberedDead},
	}
	for _, scheduler := range lb.Schedulers {
		if scheduler.Remembers() {
			test := tests["limits"]
			test.services = []ops.Service{service("web", scheduler, true, lb.NoMAC, lb.Up)}
			tests[string(scheduler)] = test
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, f := range checkStates(&ops.Status{Services: test.services}) {
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

// TestUnwritten: a file that cannot be written is a risk, and named with its path and the reason.
func TestUnwritten(t *testing.T) {
	found := checkUnwritten(&ops.Status{Unwritten: []ops.Unwritten{
		{What: "the snapshot of the data plane", Path: "/run/jeoul/snapshot", Error: "no space left on device",
			Kept: true}}})
	if len(found) != 1 || found[0].Kind != notDurable {
		t.Fatalf("found %+v", found)
	}
	if note := found[0].Seen[0].Note; !strings.Contains(found[0].Title, "/run/jeoul/snapshot") ||
		!strings.Contains(note, "no space left") {
		t.Errorf("found %+v", found[0])
	}
	if found := checkUnwritten(&ops.Status{}); found != nil {
		t.Errorf("with all written it found %+v", found)
	}
}
