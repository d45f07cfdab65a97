// SPDX-License-Identifier: Apache-2.0

package lb

import "testing"

// TestUp: packets of flows may be sent to a backend that can be reached, and that goes on with
// its flows if it is unhealthy.
func TestUp(t *testing.T) {
	path := Path{MAC: []byte{2, 0, 0, 0, 0, 1}}
	for _, test := range []struct {
		onDown           OnDown
		unhealthy        string
		path             Path
		up, takes, reach bool
	}{
		{"", "", path, true, true, true}, {"", "", Path{}, false, false, false},
		{"", "refuses", path, true, false, true},
		{KeepFlows, "refuses", path, true, false, true}, {KeepFlows, "refuses", Path{}, false, false, false},
		{ResetFlows, "", path, true, true, true}, {ResetFlows, "refuses", path, false, false, true},
		{MoveFlows, "", path, true, true, true}, {MoveFlows, "refuses", path, false, false, true},
	} {
		s := RoutedService{Service: Service{Checks: Checks{OnDown: test.onDown},
			Backends: []Backend{{Weight: 1}}}, Observed: Observations{{Unhealthy: test.unhealthy}},
			Paths: []Path{test.path}}
		if s.Up(0) != test.up || s.TakesFlows(0) != test.takes || s.Reachable(0) != test.reach {
			t.Errorf("%+v: up %t, takes flows %t, reachable %t", test, s.Up(0), s.TakesFlows(0), s.Reachable(0))
		}
	}
	a := RoutedService{Service: Service{Checks: Checks{OnDown: KeepFlows}}}
	b := RoutedService{Service: Service{Checks: Checks{OnDown: ResetFlows}}}
	if a.Same(&b) {
		t.Error("services that do other things to flows are the same")
	}
}
