// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestCountersSurviveChanges sends packets, changes backends, and checks whose the counts are.
func TestCountersSurviveChanges(t *testing.T) {
	service := testService(vip4, 80, lb.TCP, lb.Maglev, 3)
	r := newRig(t, lb.HookXDP, lb.State{Services: []lb.RoutedService{service}})
	send := func(n int) {
		for i := range n {
			p := web4()
			p.sport = uint16(1000 + i)
			r.check(t, p.build(t))
		}
	}
	send(60)
	before := r.last
	gone := service.BackendKey(service.Backends[0])
	kept := service.BackendKey(service.Backends[1])

	fewer := service
	fewer.Backends, fewer.Paths = service.Backends[1:], service.Paths[1:]
	r.apply(t, lb.State{Services: []lb.RoutedService{fewer}})
	if _, ok := r.last.Backends[gone]; ok {
		t.Error("a backend that was removed is still listed")
	}
	if got, want := r.last.Backends[kept], before.Backends[kept]; got != want {
		t.Errorf("a backend that stayed counts %v after the change, %v before", got, want)
	}
	if got, want := r.last.Outcomes[0], before.Outcomes[0]; got != want {
		t.Errorf("forwarded is %v after a backend left, %v before", got, want)
	}
	send(30)

	r.apply(t, lb.State{Services: []lb.RoutedService{service}})
	if got := r.last.Backends[gone]; got != (lb.BackendCount{}) {
		t.Errorf("a backend that comes starts with the counts of another: %v", got)
	}
	send(30)
}

// TestMapsGrow configures more backends than the shared maps were made for.
func TestMapsGrow(t *testing.T) {
	small := testService(vip4, 80, lb.TCP, lb.RoundRobin, 3)
	r := newRig(t, lb.HookXDP, lb.State{Services: []lb.RoutedService{small}})
	for range 10 {
		r.check(t, web4().build(t))
	}
	before := r.last
	large := testService(vip6, 80, lb.TCP, lb.RoundRobin, 700)
	large.TableSize = 1021
	r.apply(t, lb.State{Services: []lb.RoutedService{small, large}})
	for key, count := range before.Backends {
		if got := r.last.Backends[key]; got != count {
			t.Errorf("%v counts %v after the maps grew, %v before", key, got, count)
		}
	}
	if got, want := r.last.Outcomes[0].Packets, uint64(10); got != want {
		t.Errorf("forwarded is %d after the maps grew, want %d", got, want)
	}
	r.check(t, web4().build(t))
	for i := range 100 {
		p := web6()
		p.sport = uint16(1000 + i)
		r.check(t, p.build(t))
	}
}

// TestFlowsDoNotFollowAnIndex takes a backend away and gives its index to
// another: the flow of the first must not become one of the second.
func TestFlowsDoNotFollowAnIndex(t *testing.T) {
	a := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1)
	r := newRig(t, lb.HookXDP, lb.State{Services: []lb.RoutedService{a}})
	r.check(t, web4().build(t))

	b := testService(vip4, 80, lb.TCP, lb.RoundRobin, 2)
	b.Backends, b.Paths = b.Backends[1:], b.Paths[1:]
	r.apply(t, lb.State{Services: []lb.RoutedService{b}})
	if got, was := r.datapath.register.Places.Backends[b.BackendKey(b.Backends[0])].Index, uint32(0); got != was {
		t.Fatalf("the new backend has index %d: the test needs the one that was freed", got)
	}
	if v := r.check(t, with(web4(), func(p *packetSpec) { p.flags = "S" }).build(t)); !v.opens {
		t.Error("a SYN after the backend left did not open a flow anew")
	}
}

// TestFailedApplyChangesNothing applies an impossible state: the old state serves.
func TestFailedApplyChangesNothing(t *testing.T) {
	r := newRig(t, lb.HookXDP, testState())
	program := r.datapath.Program()
	bad := NewDetached(Options{Hook: lb.HookXDP, TableSize: 100}, balancerMAC)
	defer bad.Close()
	if err := bad.Apply(testState()); err == nil {
		t.Fatal("a table size that is no prime was taken")
	}
	// The first service would change, and the last cannot.
	state := testState()
	state.Services[0].Backends[0].Weight = 0
	state.Services[len(state.Services)-1].TableSize = 100
	if err := r.datapath.Apply(state); err == nil {
		t.Fatal("a table size that is no prime was taken")
	}
	if r.datapath.Program() != program {
		t.Error("a change that failed replaced the program")
	}
	r.check(t, web4().build(t))
}

// TestClosedDatapath refuses work and may be closed again.
func TestClosedDatapath(t *testing.T) {
	r := newRig(t, lb.HookTC, testState())
	for range 2 {
		if err := r.datapath.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := r.datapath.Apply(testState()); err == nil {
		t.Error("a closed datapath took a state")
	}
}

// TestEveryOutcomeIsExplained keeps the help in step with the C enum.
func TestEveryOutcomeIsExplained(t *testing.T) {
	r := newRig(t, lb.HookXDP, testState())
	for _, outcome := range r.last.Outcomes {
		if outcome.Name == "" || outcome.Help == "" {
			t.Errorf("outcome %q has no help", outcome.Name)
		}
	}
	if len(sharedmaps.OutcomeHelp) != len(r.last.Outcomes) {
		t.Errorf("%d outcomes and %d helps", len(r.last.Outcomes), len(sharedmaps.OutcomeHelp))
	}
}
