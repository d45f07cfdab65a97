// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/lb"
)

// TestFormerEndpoints: a backend of mode nat that leaves keeps its index, without
// its flows, for as long as its replies are to be rewritten.
func TestFormerEndpoints(t *testing.T) {
	service := testService(vip4, 80, lb.TCP, lb.Maglev, 3)
	service.Mode = lb.NAT
	both := State{Services: []Service{service}}
	fewer := service
	fewer.Backends, fewer.Paths = service.Backends[1:], service.Paths[1:]
	left := service.Backends[0]
	key := endpointKey{netip.AddrPortFrom(left.Address, left.Port), lb.TCP}

	first := places{}.with(both)
	if len(first.former) != 0 || len(first.endpoints) != 3 {
		t.Fatalf("at first: %v, former %v", first.endpoints, first.former)
	}
	was := first.backends[service.BackendKey(left)]
	second := first.with(State{Services: []Service{fewer}})
	e, kept := second.former[key]
	if !kept || e.index != was.index || e.vip != netip.AddrPortFrom(vip4, 80) {
		t.Fatalf("after it left: %v", second.former)
	}
	if second.generations[was.index] == was.generation {
		t.Error("its flows go on")
	}
	t.Run("its index is not given away", func(t *testing.T) {
		other := testService(vip4, 81, lb.TCP, lb.Maglev, 2)
		third := second.with(State{Services: []Service{fewer, other}})
		for key, place := range third.backends {
			if place.index == was.index {
				t.Errorf("%v has it", key)
			}
		}
	})
	t.Run("whoever has the endpoint now has its replies", func(t *testing.T) {
		other := testService(netip.MustParseAddr("198.18.0.101"), 81, lb.TCP, lb.Maglev, 1)
		other.Mode, other.Backends[0].Address, other.Backends[0].Port = lb.NAT, left.Address, left.Port
		if third := second.with(State{Services: []Service{fewer, other}}); len(third.former) != 0 {
			t.Errorf("still former: %v", third.former)
		}
	})
	t.Run("it is forgotten", func(t *testing.T) {
		if former := second.formerAfter(State{}, time.Now().Add(2*formerTime)); len(former) != 2 {
			t.Errorf("left are %v; want the two that leave now", former)
		}
	})
}
