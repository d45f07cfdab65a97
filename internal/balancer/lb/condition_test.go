// SPDX-License-Identifier: Apache-2.0

package lb

import "testing"

func TestConditionOf(t *testing.T) {
	well, silent, unrouted := Reach{}, Reach{NoMAC: true, Reason: "does not answer"},
		Reach{NoRoute: true, NoMAC: true, Reason: "has no route"}
	tests := map[string]struct {
		backend Backend
		out     bool
		reach   Reach
		want    Condition
		takes   bool
	}{
		"up":                    {Backend{Weight: 1}, false, well, Condition{Up, ""}, true},
		"weight 0":              {Backend{}, false, well, Condition{WeightZero, ""}, false},
		"weight 0 and silent":   {Backend{}, false, silent, Condition{WeightZero, "does not answer"}, false},
		"draining and weight 0": {Backend{Draining: true}, false, well, Condition{Draining, ""}, false},
		"out after a drain":     {Backend{Weight: 1, Draining: true}, true, well, Condition{Out, ""}, false},
		"no route":              {Backend{Weight: 1}, false, unrouted, Condition{NoRoute, "has no route"}, true},
		"silent":                {Backend{Weight: 1}, false, silent, Condition{NoMAC, "does not answer"}, true},
		"unhealthy": {Backend{Weight: 1, Unhealthy: "answers 503"}, false, well,
			Condition{Unhealthy, "answers 503"}, false},
		"unhealthy and silent": {Backend{Weight: 1, Unhealthy: "times out"}, false, silent,
			Condition{NoMAC, "does not answer"}, false},
		"ejected": {Backend{Weight: 1, Unhealthy: "answers nothing", Ejected: true}, false, well,
			Condition{Ejected, "answers nothing"}, false},
		"unhealthy and draining": {Backend{Weight: 1, Draining: true, Unhealthy: "times out"}, false, well,
			Condition{Draining, "times out"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ConditionOf(test.backend, test.out, test.reach); got != test.want {
				t.Errorf("condition %+v, want %+v", got, test.want)
			}
			if got := test.backend.TakesFlows(); got != test.takes {
				t.Errorf("takes flows while it is reached: %t, want %t", got, test.takes)
			}
		})
	}
}
