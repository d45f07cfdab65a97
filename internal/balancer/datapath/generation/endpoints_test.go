// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestPreviousEndpoints: a backend of mode nat that leaves keeps its index, without
// its flows, for as long as its replies are to be rewritten.
func TestPreviousEndpoints(t *testing.T) {
	service := testService(vip4, 80, lb.TCP, lb.Maglev, 3)
	service.Mode = lb.NAT
	both := lb.State{Services: []lb.RoutedService{service}}
	fewer := service
	fewer.Backends, fewer.Paths = service.Backends[1:], service.Paths[1:]
	left := service.Backends[0]
	key := endpointKey{netip.AddrPortFrom(left.Address, left.Port), lb.TCP}

	r := NewRegister()
	now := time.Now()
	apply := func(t *testing.T, r *Register, state lb.State, now time.Time) {
		t.Helper()
		c, err := r.Plan(state, testTableSize, now)
		if err != nil {
			t.Fatal(err)
		}
		r.Commit(c)
	}
	// afterwards returns a register in which the first backend has left.
	afterwards := func(t *testing.T) (*Register, Place) {
		t.Helper()
		r := NewRegister()
		apply(t, r, both, now)
		was := r.Places.Backends[service.BackendKey(left)]
		apply(t, r, lb.State{Services: []lb.RoutedService{fewer}}, now)
		return r, was
	}
	apply(t, r, both, now)
	if len(r.Places.Previous) != 0 || len(r.Places.Endpoints) != 3 {
		t.Fatalf("at first: %v, previous %v", r.Places.Endpoints, r.Places.Previous)
	}
	r, was := afterwards(t)
	e, kept := r.Places.Previous[key]
	if !kept || e.Index != was.Index || e.VIP != netip.AddrPortFrom(vip4, 80) {
		t.Fatalf("after it left: %v", r.Places.Previous)
	}
	if r.Places.generations[was.Index] == was.Generation {
		t.Error("its flows go on")
	}
	t.Run("its index is not given away", func(t *testing.T) {
		r, was := afterwards(t)
		apply(t, r, lb.State{Services: []lb.RoutedService{fewer, testService(vip4, 81, lb.TCP, lb.Maglev, 2)}}, now)
		for key, place := range r.Places.Backends {
			if place.Index == was.Index {
				t.Errorf("%v has it", key)
			}
		}
	})
	t.Run("the backend that has the endpoint now has its replies", func(t *testing.T) {
		r, _ := afterwards(t)
		other := testService(netip.MustParseAddr("198.18.0.101"), 81, lb.TCP, lb.Maglev, 1)
		other.Mode, other.Backends[0].Address, other.Backends[0].Port = lb.NAT, left.Address, left.Port
		apply(t, r, lb.State{Services: []lb.RoutedService{fewer, other}}, now)
		if len(r.Places.Previous) != 0 {
			t.Errorf("still previous: %v", r.Places.Previous)
		}
	})
	t.Run("it comes back", func(t *testing.T) {
		r, was := afterwards(t)
		apply(t, r, both, now)
		is := r.Places.Backends[service.BackendKey(left)]
		if len(r.Places.Previous) != 0 || r.Places.Endpoints[key].Index != is.Index {
			t.Errorf("previous %v, present %v", r.Places.Previous, r.Places.Endpoints[key])
		}
		if is == was {
			t.Error("its flows from before it left go on")
		}
	})
	t.Run("it is forgotten", func(t *testing.T) {
		r, was := afterwards(t)
		previous := r.Places.generations[was.Index]
		apply(t, r, lb.State{}, now.Add(2*previousTime))
		if len(r.Places.Previous) != 2 {
			t.Errorf("left are %v; want the two that leave now", r.Places.Previous)
		}
		if !slices.Contains(r.Places.free, was.Index) {
			t.Errorf("its index %d is not free again: %v", was.Index, r.Places.free)
		}
		if r.Places.generations[was.Index] == previous {
			t.Error("the later fragments of its replies go on")
		}
	})
}
