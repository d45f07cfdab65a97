// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestFormerEndpoints: a backend of mode nat that leaves keeps its index, without
// its flows, for as long as its replies are to be rewritten.
func TestFormerEndpoints(t *testing.T) {
	service := testService(vip4, 80, lb.TCP, lb.Maglev, 3)
	service.Mode = lb.NAT
	both := lb.State{Services: []lb.RoutedService{service}}
	fewer := service
	fewer.Backends, fewer.Paths = service.Backends[1:], service.Paths[1:]
	left := service.Backends[0]
	key := endpointKey{netip.AddrPortFrom(left.Address, left.Port), lb.TCP}

	r := newRegister()
	now := time.Now()
	apply := func(t *testing.T, r *register, state lb.State, now time.Time) {
		t.Helper()
		c, err := r.plan(state, testTableSize, now)
		if err != nil {
			t.Fatal(err)
		}
		r.commit(c)
	}
	// afterwards returns a register in which the first backend has left.
	afterwards := func(t *testing.T) (*register, place) {
		t.Helper()
		r := newRegister()
		apply(t, r, both, now)
		was := r.places.backends[service.BackendKey(left)]
		apply(t, r, lb.State{Services: []lb.RoutedService{fewer}}, now)
		return r, was
	}
	apply(t, r, both, now)
	if len(r.places.previous) != 0 || len(r.places.endpoints) != 3 {
		t.Fatalf("at first: %v, previous %v", r.places.endpoints, r.places.previous)
	}
	r, was := afterwards(t)
	e, kept := r.places.previous[key]
	if !kept || e.index != was.index || e.vip != netip.AddrPortFrom(vip4, 80) {
		t.Fatalf("after it left: %v", r.places.previous)
	}
	if r.places.generations[was.index] == was.generation {
		t.Error("its flows go on")
	}
	t.Run("its index is not given away", func(t *testing.T) {
		r, was := afterwards(t)
		apply(t, r, lb.State{Services: []lb.RoutedService{fewer, testService(vip4, 81, lb.TCP, lb.Maglev, 2)}}, now)
		for key, place := range r.places.backends {
			if place.index == was.index {
				t.Errorf("%v has it", key)
			}
		}
	})
	t.Run("the backend that has the endpoint now has its replies", func(t *testing.T) {
		r, _ := afterwards(t)
		other := testService(netip.MustParseAddr("198.18.0.101"), 81, lb.TCP, lb.Maglev, 1)
		other.Mode, other.Backends[0].Address, other.Backends[0].Port = lb.NAT, left.Address, left.Port
		apply(t, r, lb.State{Services: []lb.RoutedService{fewer, other}}, now)
		if len(r.places.previous) != 0 {
			t.Errorf("still previous: %v", r.places.previous)
		}
	})
	t.Run("it comes back", func(t *testing.T) {
		r, was := afterwards(t)
		apply(t, r, both, now)
		is := r.places.backends[service.BackendKey(left)]
		if len(r.places.previous) != 0 || r.places.endpoints[key].index != is.index {
			t.Errorf("previous %v, present %v", r.places.previous, r.places.endpoints[key])
		}
		if is == was {
			t.Error("its flows from before it left go on")
		}
	})
	t.Run("it is forgotten", func(t *testing.T) {
		r, was := afterwards(t)
		previous := r.places.generations[was.index]
		apply(t, r, lb.State{}, now.Add(2*previousTime))
		if len(r.places.previous) != 2 {
			t.Errorf("left are %v; want the two that leave now", r.places.previous)
		}
		if !slices.Contains(r.places.free, was.index) {
			t.Errorf("its index %d is not free again: %v", was.index, r.places.free)
		}
		if r.places.generations[was.index] == previous {
			t.Error("the later fragments of its replies go on")
		}
	})
}
