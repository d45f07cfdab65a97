// SPDX-License-Identifier: Apache-2.0

package lb

import "testing"

func TestConditionOf(t *testing.T) {
	well, silent, unrouted := Reachability{}, Reachability{NoMAC: true, Reason: "does not answer"},
		Reachability{NoRoute: true, NoMAC: true, Reason: "has no route"}
	tests := map[string]struct {
		backend Backend
		is      Observed
		out     bool
		reach   Reachability
		want    Condition
		takes   bool
	}{
		"up":                    {Backend{Weight: 1}, Observed{}, false, well, Condition{Up, ""}, true},
		"weight 0":              {Backend{}, Observed{}, false, well, Condition{WeightZero, ""}, false},
		"weight 0 and silent":   {Backend{}, Observed{}, false, silent, Condition{WeightZero, "does not answer"}, false},
		"draining and weight 0": {Backend{Draining: true}, Observed{}, false, well, Condition{Draining, ""}, false},
		"out after a drain":     {Backend{Weight: 1, Draining: true}, Observed{}, true, well, Condition{Out, ""}, false},
		"no route":              {Backend{Weight: 1}, Observed{}, false, unrouted, Condition{NoRoute, "has no route"}, true},
		"silent":                {Backend{Weight: 1}, Observed{}, false, silent, Condition{NoMAC, "does not answer"}, true},
		"unhealthy": {Backend{Weight: 1}, Observed{Unhealthy: "answers 503"}, false, well,
			Condition{Unhealthy, "answers 503"}, false},
		"unhealthy and silent": {Backend{Weight: 1}, Observed{Unhealthy: "times out"}, false, silent,
			Condition{NoMAC, "does not answer"}, false},
		"ejected": {Backend{Weight: 1}, Observed{Unhealthy: "answers nothing", Ejected: true}, false, well,
			Condition{Ejected, "answers nothing"}, false},
		"unhealthy and draining": {Backend{Weight: 1, Draining: true}, Observed{Unhealthy: "times out"}, false, well,
			Condition{Draining, "times out"}, false},
		"on standby": {Backend{Weight: 1, Backup: true}, Observed{Standby: true}, false, well,
			Condition{Standby, ""}, false},
		"not ready, as its origin says": {Backend{Weight: 1, NotReady: "is paused"},
			ObservedOf(Backend{NotReady: "is paused"}), false, well, Condition{Unhealthy, "is paused"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ConditionOf(test.backend, test.is, test.out, test.reach); got != test.want {
				t.Errorf("condition %+v, want %+v", got, test.want)
			}
			service := RoutedService{Service: Service{Backends: []Backend{test.backend}},
				Observed: Observations{test.is}}
			if got := service.Admits(0); got != test.takes {
				t.Errorf("takes flows while it is reached: %t, want %t", got, test.takes)
			}
		})
	}
}

func TestObservations(t *testing.T) {
	some := ObservationsOf(3, func(i int) Observed { return Observed{Standby: i == 1} })
	none := ObservationsOf(3, func(int) Observed { return Observed{} })
	if none != nil || len(some) != 3 || some.Of(0).Standby || !some.Of(1).Standby || some.Of(7) != (Observed{}) {
		t.Errorf("none: %v, some: %v", none, some)
	}
	for name, test := range map[string]struct {
		a, b Observations
		same bool
	}{
		"none and zeros": {none, make(Observations, 3), true}, "some and none": {some, none, false},
		"with what is there": {some, some.With(1, Observed{Standby: true}), true},
		"with another":       {some, some.With(2, Observed{Standby: true}), false},
		"another and back":   {some, some.With(4, Observed{Ejected: true}).With(4, Observed{}), true},
		"without the first":  {some.Without(0), Observations{{Standby: true}}, true},
		"without one beyond": {some.Without(3), some, true},
	} {
		if test.a.Equal(test.b) != test.same || test.b.Equal(test.a) != test.same {
			t.Errorf("%s: %v and %v: equal: %t", name, test.a, test.b, !test.same)
		}
	}
}
