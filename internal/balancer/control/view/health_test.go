// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestSelect: which backends of a service take new flows.
func TestSelect(t *testing.T) {
	path := lb.Path{MAC: []byte{2, 0, 0, 0, 0, 1}}
	// A word is a backend: h healthy, f failing, n healthy without a MAC, d drained, a drained by
	// its agent; in capitals, a backup.
	read := func(words string) (members []member) {
		for _, r := range words {
			m := member{Backend: lb.Backend{Weight: 1, Backup: r < 'a'}, path: path, reached: true,
				Verdict: Verdict{State: lb.Healthy, Share: 100}}
			switch r | 0x20 {
			case 'f':
				m.State = lb.Failing
			case 'n':
				m.path, m.reached = lb.Path{}, false
			case 'd':
				m.Draining = true
			case 'a':
				m.Drain = true
			}
			members = append(members, m)
		}
		return members
	}
	for _, test := range []struct {
		words string
		panic uint8
		takes string // of each, whether it takes new flows
		want  Serving
	}{
		{"hhh", 1, "+++", Primaries}, {"hff", 1, "+--", Primaries}, {"fff", 1, "+++", Panicked},
		{"fff", 0, "---", Primaries},
		{"hff", 50, "+++", Panicked}, {"hhf", 50, "++-", Primaries}, {"hf", 50, "+-", Primaries},
		{"hhH", 1, "++-", Primaries}, {"ffH", 1, "--+", backups}, {"ffH", 100, "--+", backups},
		{"ffF", 1, "++-", Panicked}, {"ffF", 0, "---", Primaries},
		{"ddH", 1, "--+", backups}, {"ddF", 1, "--+", Panicked}, {"ddF", 0, "---", backups}, {"nnH", 1, "--+", backups},
		{"nn", 1, "--", Primaries},
		{"nf", 1, "-+", Panicked}, {"af", 1, "-+", Panicked}, {"ah", 1, "-+", Primaries}, {"aH", 1, "-+", backups},
		{"dh", 100, "-+", Primaries},
		{"hfH", 100, "++-", Panicked},
	} {
		members, s := read(test.words), lb.Service{Checks: lb.Checks{Panic: test.panic}}
		got := selectBackends(s, members)
		takes := ""
		for i := range members {
			got.admit(&members[i])
			takes += map[bool]string{true: "+", false: "-"}[members[i].Backend.TakesFlows() &&
				members[i].Observed.TakesFlows() && members[i].path.MAC != nil]
		}
		if diff := cmp.Diff(test.takes, takes); diff != "" || got.Serving != test.want {
			t.Errorf("%s at %d%%: takes %s, %d; want %s, %d", test.words, test.panic, takes, got.Serving,
				test.takes, test.want)
		}
	}
}

// TestFinishing: the flows of a draining backend that says itself that it takes no new flow go on, though it fails its
// check for that; those of another that fails go by on_down.
func TestFinishing(t *testing.T) {
	for _, test := range []struct {
		draining, finishing bool
		protocol            lb.Protocol
		onDown              lb.OnDown
		up                  bool
	}{
		{true, true, lb.UDP, lb.MoveFlows, true}, {true, true, lb.TCP, lb.ResetFlows, true},
		{true, false, lb.UDP, lb.MoveFlows, false}, {false, true, lb.UDP, lb.MoveFlows, false},
		{false, true, lb.TCP, lb.ResetFlows, false}, {false, false, lb.TCP, lb.KeepFlows, true},
	} {
		path := lb.Path{MAC: []byte{2, 0, 0, 0, 0, 1}}
		healthy := member{Backend: lb.Backend{Weight: 1}, path: path, reached: true,
			Verdict: Verdict{State: lb.Healthy}}
		leaving := healthy
		leaving.Backend.Draining, leaving.Verdict = test.draining, Verdict{State: lb.Failing, finishing: test.finishing}
		s := lb.RoutedService{Service: lb.Service{Protocol: test.protocol,
			Checks: lb.Checks{Panic: lb.DefaultPanic, OnDown: test.onDown}}, Paths: []lb.Path{path, path}}
		members := []member{leaving, healthy}
		selection := selectBackends(s.Service, members)
		for i := range members {
			selection.admit(&members[i])
			s.Backends = append(s.Backends, members[i].Backend)
		}
		s.Observed = lb.ObservationsOf(2, func(i int) lb.Observed { return members[i].Observed })
		if s.Up(0) != test.up || s.TakesFlows(0) || !s.TakesFlows(1) {
			t.Errorf("%+v: up %t, takes flows %t, and the other %t", test, s.Up(0), s.TakesFlows(0), s.TakesFlows(1))
		}
	}
}
