// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"testing"
	"time"
)

// TestMostEjected: at least one may be ejected, and never the last.
func TestMostEjected(t *testing.T) {
	for _, test := range []struct {
		ejected        uint8
		backends, most int
	}{
		{50, 0, 0}, {50, 1, 0}, {50, 2, 1}, {50, 3, 1}, {50, 4, 2}, {50, 9, 4}, {1, 2, 1}, {1, 99, 1}, {100, 1, 0},
		{100, 2, 1}, {100, 5, 4},
	} {
		if most := (Outliers{Ejected: test.ejected}).MaxEjected(test.backends); most != test.most {
			t.Errorf("%d%% of %d backends: %d may be ejected, want %d", test.ejected, test.backends, most, test.most)
		}
	}
}

func TestPauseOf(t *testing.T) {
	o := Outliers{Pause: 30 * time.Second, LongestPause: 100 * time.Second}
	for n, want := range map[uint32]time.Duration{0: 30 * time.Second, 1: 30 * time.Second, 2: time.Minute,
		3: 100 * time.Second, 4: 100 * time.Second, 1<<32 - 1: 100 * time.Second} {
		if pause := o.PauseOf(n); pause != want {
			t.Errorf("the %d. time: %s, want %s", n, pause, want)
		}
	}
}

// TestEjectedBackendKeepsConnections: unanswered SYNs say nothing about a backend's established connections; datagrams
// can be answered by another one.
func TestEjectedBackendKeepsConnections(t *testing.T) {
	for _, test := range []struct {
		protocol Protocol
		onDown   OnDown
		up       bool
	}{{TCP, KeepFlows, true}, {TCP, ResetFlows, true}, {UDP, KeepFlows, true}, {UDP, MoveFlows, false}} {
		s := RoutedService{Service: Service{Protocol: test.protocol, Checks: Checks{OnDown: test.onDown},
			Backends: []Backend{{Weight: 1}}},
			Observed: Observations{{Unhealthy: "answers nothing", Ejected: true}},
			Paths:    []Path{{MAC: make([]byte, 6), Source: make([]byte, 6)}}}
		if s.Up(0) != test.up || s.TakesFlows(0) || s.Serves() {
			t.Errorf("%s, on_down %s: up %t, takes flows %t, serves %t; want %t, false and false", test.protocol,
				test.onDown, s.Up(0), s.TakesFlows(0), s.Serves(), test.up)
		}
	}
}
