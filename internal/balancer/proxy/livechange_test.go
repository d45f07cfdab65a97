// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
	"github.com/jeoul/jeoul/internal/host/durable"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	backend := func(name string, last byte) lb.Backend {
		return lb.Backend{Name: name, Address: netip.AddrFrom4([4]byte{198, 51, 100, last}), Port: 80, Weight: 10}
	}
	with := func(change func(*Service)) *Rendering {
		d := simple(lb.Proxy{Speaks: lb.SpeaksHTTP})
		s := &d.Services[0]
		s.Scheduler = lb.WeightedRoundRobin
		s.Backends = []lb.Backend{backend("w1", 1), backend("w2", 2)}
		change(s)
		r, err := Render(d, golden)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	old := with(func(*Service) {})
	const pool = "192.0.2.1_80.all/198.51.100."
	for name, c := range map[string]struct {
		change func(*Service)
		left   map[string]Server
		want   []string
		left_  []string
		reload bool
	}{
		"nothing": {change: func(*Service) {}},
		"name":    {change: func(s *Service) { s.Backends[0].Name = "other" }},
		"weight": {change: func(s *Service) { s.Backends[0].Weight = 3 },
			want: []string{"set server " + pool + "1_80 weight 3"}},
		"drain": {change: func(s *Service) { s.Backends[0].Draining = true },
			want: []string{"set server " + pool + "1_80 weight 0"}},
		"down": {change: func(s *Service) { s.Observed = lb.Observations{{Unhealthy: "x"}} },
			want: []string{"set server " + pool + "1_80 state maint"}},
		"down, and its connections": {change: func(s *Service) {
			s.Checks.OnDown = lb.ResetFlows
			s.Observed = lb.Observations{{Unhealthy: "x"}}
		},
			want: []string{"set server " + pool + "1_80 state maint", "shutdown sessions server " + pool + "1_80"}},
		"out, and its connections": {change: func(s *Service) { s.Out = []int{0} },
			want: []string{"set server " + pool + "1_80 weight 0", "set server " + pool + "1_80 state maint",
				"shutdown sessions server " + pool + "1_80"}},
		"out, and was the heaviest": {change: func(s *Service) {
			s.Backends[0].Weight, s.Out = 60000, []int{0}
		},
			want: []string{"set server " + pool + "1_80 weight 0", "set server " + pool + "1_80 state maint",
				"shutdown sessions server " + pool + "1_80"}},
		"full": {change: func(s *Service) { s.Backends[1].Upper = 7 },
			want: []string{"set maxconn server " + pool + "2_80 7"}},
		"come and go": {change: func(s *Service) { s.Backends[0] = backend("w3", 3) },
			want: []string{"add server " + pool + "3_80 198.51.100.3:80 id 110298507 weight 10", "set server " + pool +
				"3_80 state ready",
				"set server " + pool + "1_80 state maint"}, left_: []string{pool + "1_80"}},
		"come back": {change: func(s *Service) { s.Backends = append(s.Backends, backend("w3", 3)) },
			left: map[string]Server{pool + "3_80": {Name: "198.51.100.3_80", Address: "198.51.100.3:80", ID: 110298507,
				Weight: 1, Off: true}},
			want: []string{"set server " + pool + "3_80 weight 10", "set server " + pool + "3_80 state ready"}},
		"another header": {change: func(s *Service) {
			s.Proxy.RequestHeaders = []lb.Header{{Name: "A", Value: "b"}}
		}, reload: true},
		"encryption": {change: func(s *Service) { s.Proxy.BackendTLS = lb.BackendTLSUnverified }, reload: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps, can := compareRenderings(old, with(c.change), c.left)
			if can == c.reload {
				t.Fatalf("can be done by commands: %v", can)
			}
			if !can {
				return
			}
			var got []string
			for _, s := range steps.commands() {
				got = append(got, s.command)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("commands (- want, + got):\n%s", diff)
			}
			if diff := cmp.Diff(c.left_, sortedKeys(steps.draining)); diff != "" && len(c.left_)+len(steps.draining) > 0 {
				t.Errorf("servers left (- want, + got):\n%s", diff)
			}
		})
	}
}

// TestKeepsProgram: a running HAProxy is not replaced by another program, and the state says that another one is
// configured.
func TestKeepsProgram(t *testing.T) {
	t.Parallel()
	e := &engine{running: &savedState{Program: "/nowhere/haproxy", Version: "2.6.12"}}
	installed := program{path: "/opt/haproxy", version: "3.0.1"}
	for _, step := range []struct {
		runs    bool
		want    string
		problem bool
	}{{true, "/nowhere/haproxy", true}, {false, "/opt/haproxy", false}} {
		c := &candidate{program: installed}
		e.keepProgram(t.Context(), c, step.runs)
		problem := e.State().Problem
		if c.program.path != step.want || (problem != "") != step.problem ||
			step.problem && !strings.Contains(problem, "HAProxy goes on as /nowhere/haproxy, not as /opt/haproxy") {
			t.Errorf("%+v: program %+v, problem %q", step, c.program, problem)
		}
	}
}

func TestCountsNeverGoBack(t *testing.T) {
	t.Parallel()
	object := master.Object{Section: "192.0.2.1_80.clients", Server: master.Frontend}
	reading := func(n, active uint64) master.Statistics {
		return master.Statistics{object: {"conn_tot": n, "scur": active}}
	}
	var counts counterTotals
	path := t.TempDir() + "/counts.json"
	for i, step := range []struct {
		workers       map[int]master.Statistics
		total, active uint64
		settled       bool // must be written: HAProxy no longer knows it
	}{
		{map[int]master.Statistics{1: reading(5, 2)}, 5, 2, false},
		{map[int]master.Statistics{1: reading(7, 1), 2: reading(1, 1)}, 8, 2, false}, // a reload
		{map[int]master.Statistics{2: reading(3, 1)}, 10, 1, true},                   // the old one has ended
		{map[int]master.Statistics{2: reading(1, 0)}, 11, 0, true},                   // begun again
		{nil, 11, 0, true}, // killed
		{map[int]master.Statistics{3: reading(1, 1)}, 12, 1, false},
	} {
		if i%2 == 1 { // another process goes on
			if err := counts.save((*durable.Files)(nil).Content("counts", path, "", 0o600)); err != nil {
				t.Fatal(err)
			}
			counts = counterTotals{}
			counts.load(path)
		}
		settled := counts.update(step.workers)
		sum := counts.sums()[object]
		if sum["conn_tot"] != step.total || sum["scur"] != step.active || settled != step.settled {
			t.Errorf("step %d: %v, settled %v, want %d and %d, %v", i, sum, settled, step.total, step.active, step.settled)
		}
	}
}

func TestDelays(t *testing.T) {
	t.Parallel()
	for deaths, want := range []time.Duration{0, 0, 500 * time.Millisecond, time.Second, 2 * time.Second} {
		if got := backoff(deaths); got != want {
			t.Errorf("after %d deaths: %v, want %v", deaths, got, want)
		}
	}
	if got := backoff(1000); got != maxBackoff {
		t.Errorf("after many deaths: %v", got)
	}
}
